"""What stands around every route: sizes, deadlines, clients that leave, unforeseen errors."""

import asyncio
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import answer, log_defect
from app.core.errors import (
    BodyTooLargeError,
    DeadlineExceededError,
    DrainingError,
    InternalError,
    OverloadedError,
    ScopeJudgeError,
)

# What these ask for is counted in comparisons, and the least that they can ask for is one.
_COUNTED = frozenset({("POST", "/judge"), ("POST", "/judge/batch"), ("POST", "/calibrate")})


@dataclass(frozen=True, slots=True)
class GateLimits:
    """What one request, and all of them together, may take.

    Args:
        max_body_bytes: Of one request.
        max_pending_bytes: Of all requests that are under way.
        timeout_s: From a request's first byte to its answer.
    """

    max_body_bytes: int
    max_pending_bytes: int
    timeout_s: float


class _Flow:
    """One request on its way: its messages, and what has become of it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, timeout_s: float) -> None:
        self.scope = scope
        self.receive = receive
        self.deadline = asyncio.get_running_loop().time() + timeout_s
        self.bytes_held = 0
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection of any kind; only HTTP requests are gated."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        flow = _Flow(scope, receive, send, timeout_s=self._limits.timeout_s)
        try:
            self._check_room(scope)
            async with asyncio.timeout_at(flow.deadline):
                body = await self._body(flow)
            if body is not None:
                await self._run(flow, body)
        except TimeoutError:
            await flow.refuse(self._too_late())
        except ScopeJudgeError as exc:
            await flow.refuse(exc)
        except asyncio.CancelledError:
            # The server has waited as long as it may and ends what is left.
            await flow.refuse(DrainingError("the service was stopped before this was done"))
            if not scope["app"].state.draining:
                raise
        finally:
            self._bytes_held -= flow.bytes_held

    def _check_room(self, scope: Scope) -> None:
        if (scope["method"], scope["path"]) in _COUNTED:
            scope["app"].state.services.admission.check_room()

    def _check_length(self, body_bytes: int) -> None:
        if body_bytes > self._limits.max_body_bytes:
            raise BodyTooLargeError(
                f"the body may have at most {self._limits.max_body_bytes} bytes; send smaller "
                "batches"
            )

    def _hold(self, flow: _Flow, size: int) -> None:
        """Counts bytes that have come in; what is only announced takes no memory."""
        self._check_length(flow.bytes_held + size)
        if self._bytes_held + size > self._limits.max_pending_bytes:
            raise OverloadedError(
                "the requests under way have as many bytes as they may (SCOPE_MAX_PENDING_BYTES): "
                "try again later"
            )
        self._bytes_held += size
        flow.bytes_held += size

    async def _body(self, flow: _Flow) -> bytes | None:
        """The whole body; None if the client left meanwhile."""
        if flow.scope["method"] != "POST":
            return b""
        announced = Headers(scope=flow.scope).get("content-length", "")
        if announced.isascii() and announced.isdecimal():
            self._check_length(int(announced))
        body = bytearray()
        while True:
            message = await flow.receive()
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            self._hold(flow, len(part))
            body += part
            if not message.get("more_body", False):
                return bytes(body)

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
