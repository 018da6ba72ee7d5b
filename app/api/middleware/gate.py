"""The limits around every route: sizes, deadlines, clients that leave, unforeseen errors."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.auth.callers import CALLER_KEY
from app.api.errors import answer
from app.api.middleware.json_meter import JsonMeter
from app.core.errors import (
    BodyTooLargeError,
    BodyTooSlowError,
    DeadlineExceededError,
    DrainingError,
    InternalError,
    OverloadedError,
    ScopeJudgeError,
)
from app.defects import log_defect

# What these ask for is counted in comparisons, and the least that they can ask for is one.
_COUNTED = frozenset({("POST", "/judge"), ("POST", "/judge/batch"), ("POST", "/calibrate")})


@dataclass(frozen=True, slots=True)
class GateLimits:
    """What one request, and all of them together, may take.

    Args:
        max_body_bytes: Of one request.
        max_pending_bytes: Of all requests that are under way.
        timeout_s: From a request's first byte to its answer.
        max_json_parts: As `JsonMeter` counts them, of one request.
        body_bytes_per_s: Least average rate of a body. At 16 KiB/s the largest body would take
            longer than `timeout_s`.
        body_grace_s: For so long the rate does not count: a lost packet stops a client for a
            second or three.
    """

    max_body_bytes: int
    max_pending_bytes: int
    timeout_s: float
    max_json_parts: int
    body_bytes_per_s: int = 16 * 1024
    body_grace_s: float = 5.0

    @property
    def max_key_bytes(self) -> int:
        """Bytes that the requests of one key may have under way: half of all, or one body."""
        return max(self.max_body_bytes, self.max_pending_bytes // 2)


class _Flow:
    """One request on its way: its messages, and what has become of it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, timeout_s: float) -> None:
        self.scope = scope
        self.receive = receive
        self.begun = asyncio.get_running_loop().time()
        self.deadline = self.begun + timeout_s
        # The name of the key; None where there is no file of keys.
        caller = scope.get(CALLER_KEY)
        self.key: str | None = None if caller is None else caller.name
        self.body = bytearray()
        self.answered = False
        self._send = send

    async def send(self, message: Message) -> None:
        """Sends, and notes that an answer has begun; the last ones close their connection."""
        if message["type"] == "http.response.start":
            self.answered = True
            if self.scope["app"].state.draining:
                # A proxy that keeps connections must not use this one again.
                message["headers"] = [*message["headers"], (b"connection", b"close")]
        await self._send(message)

    async def refuse(self, error: ScopeJudgeError) -> None:
        """Answers with an error, unless an answer has begun."""
        if not self.answered:
            await answer(self.scope["app"], error)(self.scope, self.receive, self.send)

    def seconds_left(self) -> float:
        """Until the deadline, at least 0."""
        return max(0.0, self.deadline - asyncio.get_running_loop().time())


class Gate:
    """Reads a request's body within the limits, and ends the work on it when nobody waits for it.

    FastAPI does not cancel a handler when its client goes: the engine would work on for nobody. The
    same holds for a request whose time is over.

    Args:
        app: What the gate stands before.
        limits: A body over them is refused before it is read, where its length is announced, and as
            soon as it exceeds them, where it is not.
    """

    def __init__(self, app: ASGIApp, *, limits: GateLimits) -> None:
        self._app = app
        self._limits = limits
        self._bytes_held = 0
        self._bytes_of_key: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection of any kind; only HTTP requests are gated."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        flow = _Flow(scope, receive, send, timeout_s=self._limits.timeout_s)
        try:
            self._check_room(scope)
            body = await self._body(flow)
            if body is not None:
                await self._run(flow, body)
        except ScopeJudgeError as exc:
            await flow.refuse(exc)
        except asyncio.CancelledError:
            # The server has waited as long as it may and ends what is left.
            await flow.refuse(DrainingError("the service was stopped before this was done"))
            if not scope["app"].state.draining:
                raise
        finally:
            self._release(flow)

    def _check_room(self, scope: Scope) -> None:
        if (scope["method"], scope["path"]) in _COUNTED:
            scope["app"].state.services.admission.check_room()

    def _check_length(self, body_bytes: int) -> None:
        if body_bytes > self._limits.max_body_bytes:
            raise BodyTooLargeError(
                f"the body may have at most {self._limits.max_body_bytes} bytes; send smaller "
                "batches"
            )

    async def _body(self, flow: _Flow) -> bytes | None:
        """The whole body; None if the client left meanwhile."""
        if flow.scope["method"] != "POST":
            return b""
        announced = Headers(scope=flow.scope).get("content-length", "")
        if announced.isascii() and announced.isdecimal():
            self._check_length(int(announced))
        meter = JsonMeter(self._limits.max_json_parts)
        try:
            async with asyncio.timeout_at(self._next_part_by(flow)) as waiting:
                while True:
                    message = await flow.receive()
                    if message["type"] == "http.disconnect":
                        return None
                    part = message.get("body", b"")
                    self._take(flow, part)
                    meter.feed(part)
                    if not message.get("more_body", False):
                        return bytes(flow.body)
                    waiting.reschedule(self._next_part_by(flow))
        except TimeoutError:
            over = self._next_part_by(flow) >= flow.deadline
            raise (self._too_late() if over else self._too_slow()) from None

    def _next_part_by(self, flow: _Flow) -> float:
        limits = self._limits
        due_s = limits.body_grace_s + len(flow.body) / limits.body_bytes_per_s
        return min(flow.deadline, flow.begun + due_s)

    def _take(self, flow: _Flow, part: bytes) -> None:
        """Counts and keeps bytes that have come in; what is only announced takes no memory."""
        size = len(part)
        self._check_length(len(flow.body) + size)
        if self._bytes_held + size > self._limits.max_pending_bytes:
            raise OverloadedError(
                "the requests under way have as many bytes as they may (SCOPE_MAX_PENDING_BYTES): "
                "try again later"
            )
        if flow.key is not None:
            if self._bytes_of_key[flow.key] + size > self._limits.max_key_bytes:
                raise OverloadedError(
                    f"the requests of the key {flow.key!r} that are under way have as many bytes "
                    "as those of one key may (half of SCOPE_MAX_PENDING_BYTES): try again later"
                )
            self._bytes_of_key[flow.key] += size
        self._bytes_held += size
        flow.body += part

    def _release(self, flow: _Flow) -> None:
        size = len(flow.body)
        self._bytes_held -= size
        if flow.key is not None:
            self._bytes_of_key[flow.key] -= size
            if not self._bytes_of_key[flow.key]:
                del self._bytes_of_key[flow.key]

    async def _run(self, flow: _Flow, body: bytes) -> None:
        unread = [_request_message(body)]

        async def receive_body() -> Message:
            # After the body a handler would only wait for the client to leave: that is seen to.
            return unread.pop() if unread else await asyncio.Future()

        work = asyncio.ensure_future(self._app(flow.scope, receive_body, flow.send))
        left = asyncio.ensure_future(_until_disconnect(flow.receive))
        both: set[asyncio.Future[Any]] = {work, left}
        try:
            done, _ = await asyncio.wait(
                both, timeout=flow.seconds_left(), return_when=asyncio.FIRST_COMPLETED
            )
            work.cancel()
            await asyncio.wait((work,))
        finally:
            work.cancel()
            left.cancel()
        if not done:
            await flow.refuse(self._too_late())
        failure = None if work.cancelled() else work.exception()
        if failure is not None:
            # The last resort: nothing of the error's message may reach a log or the caller.
            log_defect(failure)
            await flow.refuse(
                InternalError("something went wrong; the service's log has the place")
            )

    def _too_slow(self) -> BodyTooSlowError:
        limits = self._limits
        return BodyTooSlowError(
            f"after the first {limits.body_grace_s:g} s a body has to arrive with at least "
            f"{limits.body_bytes_per_s} bytes a second: send smaller batches, or over a faster line"
        )

    def _too_late(self) -> DeadlineExceededError:
        return DeadlineExceededError(
            f"there was no answer within {self._limits.timeout_s:g} s (SCOPE_TIMEOUT_S), and the "
            "work was stopped: send smaller batches, or try again later"
        )


def _request_message(body: bytes) -> Message:
    return {"type": "http.request", "body": body, "more_body": False}


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
