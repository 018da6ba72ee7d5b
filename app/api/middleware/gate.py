"""Limits around every route: body size, deadline, cancellation, unexpected errors."""

import asyncio
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.auth.access import MOST_CONNECTIONS
from app.api.auth.callers import ANYONE, CALLER_KEY
from app.api.auth.needs import PROBES
from app.api.errors import answer
from app.core.errors import (
    BodyTooLargeError,
    BodyTooSlowError,
    DeadlineExceededError,
    DrainingError,
    InternalError,
    OverloadedError,
    ScopeJudgeError,
)
from app.fair_queue import Flow, Kind, flowing
from app.observability.logs import log_defect

_JUDGING: dict[str, Kind] = {
    "/judge": "single",
    "/judge/batch": "batch",
    "/scores": "batch",
    "/v1/systemone": "batch",
    "/v1/decisions": "batch",
}
# Lists, objects and fields begin with these, or contain them. Parsing 2 MiB of nothing else takes
# half a second; a full batch of long conversations or of judged examples has one in 20 bytes.
_PARTS = (b"[", b"{", b":")
_BYTES_PER_PART = 20
_FEWEST_PARTS = 10_000
# Share of the connections on which one key may have requests; the others are left to other keys.
_SHARE_OF_KEY = 7 / 8
# The same for all requests without a key together, where the service has keys.
_SHARE_OF_STRANGERS = 1 / 8
_STRANGERS = ""
# After so many seconds, the service watches whether the client disconnects.
_WATCHED_AFTER_S = 0.01


@dataclass(frozen=True, slots=True)
class GateLimits:
    """Limits of one request, and of all requests together.

    Args:
        max_body_bytes: Largest body of one request.
        max_pending_bytes: Most bytes of all requests in progress together.
        timeout_s: Time from the beginning of a request to its answer, in seconds.
        body_bytes_per_s: Smallest average rate of a body. For a body of the largest size the
            deadline applies first: 2 MiB at this rate takes 128 s.
        body_grace_s: Seconds during which the rate is not enforced, because a lost packet can stop
            a client for one to three seconds.
    """

    max_body_bytes: int
    max_pending_bytes: int
    timeout_s: float
    body_bytes_per_s: int = 16 * 1024
    body_grace_s: float = 5.0

    @property
    def max_key_bytes(self) -> int:
        """Most bytes in progress for one key: half of the total, but at least one body."""
        return max(self.max_body_bytes, self.max_pending_bytes // 2)

    @property
    def max_parts(self) -> int:
        """Most lists, objects and fields in one body."""
        return max(_FEWEST_PARTS, self.max_body_bytes // _BYTES_PER_PART)


class _PendingRequest:
    """One request in progress: its messages, its deadline and the body read so far."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, timeout_s: float) -> None:
        self.scope = scope
        self.receive = receive
        self.begun = asyncio.get_running_loop().time()
        self.deadline = self.begun + timeout_s
        # Name of the caller's key; None if the service has no key file.
        caller = scope.get(CALLER_KEY)
        self.key: str | None = None if caller is None else caller.name
        self.body = bytearray()
        # Bytes that count for this request until its answer.
        self.body_bytes = 0
        self.answered = False
        self.client_left = False
        self._send = send

    async def send(self, message: Message) -> None:
        """Sends a message and notes that the answer has begun."""
        if message["type"] == "http.response.start":
            self.answered = True
            if self.scope["app"].state.draining:
                # The service stops soon: a proxy must not reuse this connection.
                message["headers"] = [*message["headers"], (b"connection", b"close")]
        await self._send(message)

    async def refuse(self, error: ScopeJudgeError) -> None:
        """Answers with an error, unless an answer has begun."""
        if not self.answered:
            await answer(self.scope["app"], error)(self.scope, self.receive, self.send)


class Gate:
    """Reads the body of a request within limits, and cancels its work when nobody waits for it.

    FastAPI does not cancel a handler when the client leaves or the deadline passes, so the engine
    would work in vain.

    A body whose Content-Length exceeds the limit is refused unread; any other as soon as the
    received bytes exceed it.

    Args:
        app: The next ASGI application.
        limits: Limits of one request, and of all requests together.
    """

    def __init__(self, app: ASGIApp, *, limits: GateLimits) -> None:
        self._app = app
        self._limits = limits
        self._bytes_held = 0
        self._bytes_of_key: Counter[str] = Counter()
        self._requests_of_key: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI connection of any type; only HTTP requests are limited."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _PendingRequest(scope, receive, send, timeout_s=self._limits.timeout_s)
        try:
            with flowing(_flow_of(scope)), self._counted(request):
                body = await self._body(request)
                if body is not None:
                    await self._run(request, body)
        except ScopeJudgeError as exc:
            await request.refuse(exc)
        except asyncio.CancelledError:
            # When draining, the server cancels requests after SCOPE_DRAIN_S: answer and end here.
            # Any other cancellation is passed on.
            await request.refuse(DrainingError("the service stopped before this request ended"))
            if not scope["app"].state.draining:
                raise
        finally:
            self._release(request)

    @contextmanager
    def _counted(self, request: _PendingRequest) -> Iterator[None]:
        """Counts a request for its key, which may not use up the connections of all others."""
        key, share = request.key, _SHARE_OF_KEY
        if key is None:
            if request.scope["app"].state.keys is None or request.scope["path"] in PROBES:
                yield
                return
            key, share = _STRANGERS, _SHARE_OF_STRANGERS
        limit = request.scope.get("state", {}).get(MOST_CONNECTIONS, math.inf)
        if self._requests_of_key[key] >= max(1, limit * share):
            who = f"the key {key!r} has" if key else "callers without a key have"
            part = "seven of eight" if key else "an eighth of the"
            raise OverloadedError(
                f"{who} a request in progress on {part} connections (SCOPE_MAX_CONNECTIONS): try "
                "again later"
            )
        self._requests_of_key[key] += 1
        try:
            yield
        finally:
            self._requests_of_key[key] -= 1

    def _check_length(self, body_bytes: int) -> None:
        if body_bytes > self._limits.max_body_bytes:
            raise BodyTooLargeError(
                f"the body has more than {self._limits.max_body_bytes} bytes "
                "(SCOPE_MAX_BODY_BYTES): send smaller batches"
            )

    def _check_parts(self, body: bytearray) -> None:
        if sum(body.count(sign) for sign in _PARTS) > self._limits.max_parts:
            raise BodyTooLargeError(
                f"the body has more than {self._limits.max_parts} lists, objects and fields (the "
                "characters [, { and :): send smaller batches"
            )

    async def _body(self, request: _PendingRequest) -> bytes | None:
        """Reads the whole body; returns None if the client leaves."""
        if request.scope["method"] != "POST":
            return b""
        announced = Headers(scope=request.scope).get("content-length", "")
        if announced.isascii() and announced.isdecimal():
            self._check_length(int(announced))
        try:
            async with asyncio.timeout_at(self._next_part_by(request)) as waiting:
                while True:
                    message = await request.receive()
                    if message["type"] == "http.disconnect":
                        return None
                    part = message.get("body", b"")
                    self._take(request, part)
                    if not message.get("more_body", False):
                        self._check_parts(request.body)
                        whole = bytes(request.body)
                        # One copy is enough while the request is worked on.
                        request.body.clear()
                        return whole
                    waiting.reschedule(self._next_part_by(request))
        except TimeoutError:
            is_deadline = self._next_part_by(request) >= request.deadline
            raise (self._too_late() if is_deadline else self._too_slow()) from None

    def _next_part_by(self, request: _PendingRequest) -> float:
        limits = self._limits
        due_s = limits.body_grace_s + len(request.body) / limits.body_bytes_per_s
        return min(request.deadline, request.begun + due_s)

    def _take(self, request: _PendingRequest, part: bytes) -> None:
        """Adds received bytes to the body and counts them; Content-Length reserves nothing."""
        size = len(part)
        self._check_length(len(request.body) + size)
        if self._bytes_held + size > self._limits.max_pending_bytes:
            raise OverloadedError(
                "the requests in progress are too large in total (128 times SCOPE_MAX_BODY_BYTES): "
                "try again later"
            )
        if request.key is not None:
            if self._bytes_of_key[request.key] + size > self._limits.max_key_bytes:
                raise OverloadedError(
                    f"the requests in progress of the key {request.key!r} have too many bytes "
                    f"together: a key may have {self._limits.max_key_bytes}, 64 times "
                    "SCOPE_MAX_BODY_BYTES; try again later"
                )
            self._bytes_of_key[request.key] += size
        self._bytes_held += size
        request.body_bytes += size
        request.body += part

    def _release(self, request: _PendingRequest) -> None:
        size = request.body_bytes
        self._bytes_held -= size
        if request.key is not None:
            self._bytes_of_key[request.key] -= size
            if not self._bytes_of_key[request.key]:
                del self._bytes_of_key[request.key]

    async def _run(self, request: _PendingRequest, body: bytes) -> None:
        body_message = [_request_message(body)]

        async def receive_body() -> Message:
            # The handler never sees the disconnect: `_ended_if_left` waits for it, and cancels it.
            return body_message.pop() if body_message else await asyncio.Future()

        failure: Exception | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout_at(request.deadline) as limit:
                try:
                    with _ended_if_left(request, limit):
                        await self._app(request.scope, receive_body, request.send)
                except Exception as exc:  # noqa: BLE001 - answered and logged below
                    failure = exc
        if limit.expired() and not request.client_left:
            await request.refuse(self._too_late())
        if failure is not None:
            # The exception's message may quote a judged text: keep it out of log and answer.
            log_defect(failure)
            await request.refuse(
                InternalError(
                    "an unexpected error occurred; see the traceback in the log of the service"
                )
            )

    def _too_slow(self) -> BodyTooSlowError:
        limits = self._limits
        return BodyTooSlowError(
            f"the body arrived too slowly: after {limits.body_grace_s:g} s it needs at least "
            f"{limits.body_bytes_per_s} bytes per second; send smaller batches, or use a faster "
            "connection"
        )

    def _too_late(self) -> DeadlineExceededError:
        return DeadlineExceededError(
            f"the request took longer than {self._limits.timeout_s:g} s (SCOPE_TIMEOUT_S) and was "
            "cancelled: send smaller batches, or try again later"
        )


def _flow_of(scope: Scope) -> Flow:
    """The flow of a request; without keys, each address is a caller."""
    caller = scope.get(CALLER_KEY)
    address = scope.get("client") or ("",)
    return Flow(
        caller=address[0] if caller is None else caller.name,
        kind=_kind_of(scope["path"]),
        key=(caller or ANYONE).name,
        comparisons_per_minute=(caller or ANYONE).comparisons_per_minute,
    )


def _kind_of(path: str) -> Kind:
    if path.startswith("/rewards/"):
        return "rewards"
    return _JUDGING.get(path, "calibration")


def _request_message(body: bytes) -> Message:
    return {"type": "http.request", "body": body, "more_body": False}


@contextmanager
def _ended_if_left(request: _PendingRequest, limit: asyncio.Timeout) -> Iterator[None]:
    """Ends the block of a time limit when the client leaves."""
    loop = asyncio.get_running_loop()
    watch: asyncio.Task[None] | None = None

    async def end_when_left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        request.client_left = True
        if not limit.expired():
            limit.reschedule(loop.time())

    def begin() -> None:
        nonlocal watch
        watch = loop.create_task(end_when_left())

    # Most requests are answered before, and need no task for it.
    timer = loop.call_later(_WATCHED_AFTER_S, begin)
    try:
        yield
    finally:
        timer.cancel()
        if watch is not None:
            watch.cancel()
