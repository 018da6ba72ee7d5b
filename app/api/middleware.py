"""Around every route: a proxy's prefix, the log and metrics of requests, limits and deadlines."""

import asyncio
import logging
import math
import re
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.access import ANYONE, CALLER_KEY, NEEDS, PROBES
from app.api.problems import answer
from app.core.errors import (
    BodyTooLargeError,
    DeadlineExceededError,
    DrainingError,
    InternalError,
    OverloadedError,
    ScopeJudgeError,
)
from app.flow import Flow, Kind, flowing
from app.judging.services import Services
from app.observability.logs import log_defect


class Prefix:
    """Takes off the prefix under which a proxy shows the service, if a request has it."""

    def __init__(self, app: ASGIApp, *, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI connection of any type."""
        if scope["type"] == "http" and scope["path"].startswith(f"{self._prefix}/"):
            path = scope["path"].removeprefix(self._prefix)
            raw = scope.get("raw_path", b"").removeprefix(self._prefix.encode())
            scope = {**scope, "path": path, "raw_path": raw}
        await self._app(scope, receive, send)


# Label of requests for unknown paths, and of requests that were refused before routing.
_NO_ROUTE = "none"
_PATHS = frozenset(path for _, path in NEEDS)


# The id of a request in the log: the caller's, or a new one, which the answer has, too.
_REQUEST_ID = b"x-request-id"
_PLAIN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
# A caller can send a path of any length.
_LONGEST_PATH = 300
# A part of a path that is written as it is: a word of a route, or a name. Anything else may be a
# text or a key that a caller has put into the path by mistake.
_PLAIN_PART = re.compile(r"(?!scope_)[A-Za-z0-9._-]{0,64}")
_access = logging.getLogger("app.access")


class Observation:
    """Counts and logs requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI connection of any type; only HTTP requests are observed."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        services: Services = scope["app"].state.services
        begun = time.perf_counter()
        status = 0
        sent = next((value for name, value in scope["headers"] if name == _REQUEST_ID), b"")
        request = sent if _PLAIN_ID.fullmatch(sent) else secrets.token_hex(8).encode()

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (_REQUEST_ID, request)]
            await send(message)

        try:
            await self._app(scope, receive, note)
        finally:
            # Without a status nothing was sent, because the client has left.
            if status:
                seconds = time.perf_counter() - begun
                host, port = scope.get("client") or ("", 0)
                caller = scope.get(CALLER_KEY)
                _log_access(
                    scope["method"],
                    scope["path"],
                    status,
                    client=f"{host}:{port}",
                    key=None if caller is None else caller.name,
                    request=request.decode(),
                    ms=1000 * seconds,
                )
                services.telemetry.request_seconds.labels(
                    route_of(scope), f"{status // 100}xx"
                ).observe(seconds)


def _log_access(
    method: str, path: str, status: int, *, client: str, key: str | None, request: str, ms: float
) -> None:
    """Logs a request without parts of its path that are no names, which may be a text.

    Successful probes are left out: a proxy sends two a second.
    """
    if path in (*PROBES, "/metrics") and status == 200:
        return
    parts = path[:_LONGEST_PATH].split("/")
    shown = "/".join(part if _PLAIN_PART.fullmatch(part) else "..." for part in parts)
    fields = {"key": key, "request": request, "status": status, "ms": round(ms, 1)}
    _access.info('%s - "%s %s" %d', client, method, shown, status, extra={"fields": fields})


def route_of(scope: Scope) -> str:
    """The declared path of a request's route, or "none"; a closed set of values."""
    route = scope.get("route")
    path = getattr(route, "path", scope["path"])
    return path if path in _PATHS else _NO_ROUTE


# Lists, objects and fields begin with these, or contain them. 20 bodies of nothing else took so
# much memory that other keys felt it; a full batch of long conversations has one in 20 bytes.
_PARTS = (b"[", b"{", b":")
_BYTES_PER_PART = 20
_FEWEST_PARTS = 10_000
# Share of the connections on which one key may have requests; the others are left to other keys.
_SHARE_OF_KEY = 7 / 8
# Key in a connection's state: most connections of the server.
MOST_CONNECTIONS = "scope_judge.most_connections"
# After so many seconds, the service watches whether the client disconnects.
_WATCHED_AFTER_S = 0.01


class _PendingRequest:
    """One request in progress: its messages, its deadline and the body read so far."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, timeout_s: float) -> None:
        self.scope = scope
        self.receive = receive
        self.deadline = asyncio.get_running_loop().time() + timeout_s
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

    Args:
        timeout_s: Time from the beginning of a request to its answer.
        bodies_pending: All requests in progress have at most as many bytes as so many of the
            largest; those of one key have at most half of it.
    """

    def __init__(
        self, app: ASGIApp, *, max_body_bytes: int, timeout_s: float, bodies_pending: int = 128
    ) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes
        self._max_pending_bytes = bodies_pending * max_body_bytes
        self._timeout_s = timeout_s
        # Name of the key, or None for all without one -> requests in progress, and their bytes.
        self._requests: Counter[str | None] = Counter()
        self._bytes: Counter[str | None] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI connection of any type; only HTTP requests are limited."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _PendingRequest(scope, receive, send, timeout_s=self._timeout_s)
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
            self._bytes[request.key] -= request.body_bytes

    @contextmanager
    def _counted(self, request: _PendingRequest) -> Iterator[None]:
        """Counts a request: there are no more than connections, and a key has not all of them."""
        key = request.key
        most = request.scope.get("state", {}).get(MOST_CONNECTIONS, math.inf)
        if request.scope["path"] not in PROBES:
            if self._requests.total() >= most:
                raise OverloadedError(
                    "all connections (SCOPE_MAX_CONNECTIONS) have requests in progress: try again "
                    "later"
                )
            if key is not None and self._requests[key] >= max(1, most * _SHARE_OF_KEY):
                raise OverloadedError(
                    f"the key {key!r} has a request in progress on seven of eight connections "
                    "(SCOPE_MAX_CONNECTIONS): try again later"
                )
        self._requests[key] += 1
        try:
            yield
        finally:
            self._requests[key] -= 1

    def _check_length(self, body_bytes: int) -> None:
        if body_bytes > self._max_body_bytes:
            raise BodyTooLargeError(
                f"the body has more than {self._max_body_bytes} bytes "
                "(SCOPE_MAX_BODY_BYTES): send smaller batches"
            )

    def _check_parts(self, body: bytearray) -> None:
        most = max(_FEWEST_PARTS, self._max_body_bytes // _BYTES_PER_PART)
        if sum(body.count(sign) for sign in _PARTS) > most:
            raise BodyTooLargeError(
                f"the body has more than {most} lists, objects and fields (the characters [, {{ "
                "and :): send smaller batches"
            )

    async def _body(self, request: _PendingRequest) -> bytes | None:
        """Reads the whole body; returns None if the client leaves."""
        if request.scope["method"] != "POST":
            return b""
        announced = Headers(scope=request.scope).get("content-length", "")
        if announced.isascii() and announced.isdecimal():
            self._check_length(int(announced))
        try:
            async with asyncio.timeout_at(request.deadline):
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
        except TimeoutError:
            raise self._too_late() from None

    def _take(self, request: _PendingRequest, part: bytes) -> None:
        """Adds received bytes to the body and counts them; Content-Length reserves nothing."""
        size = len(part)
        self._check_length(len(request.body) + size)
        if self._bytes.total() + size > self._max_pending_bytes:
            raise OverloadedError(
                "the requests in progress are too large in total (128 times SCOPE_MAX_BODY_BYTES): "
                "try again later"
            )
        key = request.key
        if key is not None and self._bytes[key] + size > self._max_pending_bytes / 2:
            raise OverloadedError(
                f"the requests in progress of the key {key!r} are too large in total (64 times "
                "SCOPE_MAX_BODY_BYTES): try again later"
            )
        self._bytes[key] += size
        request.body_bytes += size
        request.body += part

    async def _run(self, request: _PendingRequest, body: bytes) -> None:
        body_message: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

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

    def _too_late(self) -> DeadlineExceededError:
        return DeadlineExceededError(
            f"the request took longer than {self._timeout_s:g} s (SCOPE_TIMEOUT_S) and was "
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
    if path == "/judge":
        return "single"
    if path.startswith("/rewards/"):
        return "rewards"
    return "batch" if NEEDS.get(("POST", path)) == "judge" else "calibration"


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
