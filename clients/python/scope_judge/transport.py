"""The two transports: each runs an exchange with httpx, one waiting in a thread, one in a task."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx

from scope_judge.address import Address
from scope_judge.exchange import Answer, BodyError, Call, Pause, Steps

T = TypeVar("T")
OnWait = Callable[[Pause], None]

# Longer than the service's own timeout, which ends in a clearer error.
TIMEOUT_S = 600.0
# Requests at a time: the service works on one while others are on their way.
IN_FLIGHT = 4
_CONNECT_TIMEOUT_S = 10.0
# Far more than any answer of the service has, and little memory even on a small machine.
LARGEST_ANSWER_BYTES = 2**26

logger = logging.getLogger("scope_judge")


def log_wait(pause: Pause) -> None:
    """Logs a pause; without a configuration of logging, the line appears on stderr."""
    logger.warning("waiting %.1f s for the service: %s", pause.seconds, pause.reason)


class StoppedError(Exception):
    """The caller does not wait for the work any more."""


class _Body:
    """The body of one answer; its size and its time are limited, because a service may be hostile.

    httpx's own timeout is for a single read: a byte now and then would hold the caller forever.

    Args:
        response: The answer, of which only the headers were read.
        timeout_s: Longest time that the body may take.
        clock: Monotonic clock in seconds.

    Raises:
        BodyError: The body is compressed, which the client does not ask for.
    """

    def __init__(
        self, response: httpx.Response, timeout_s: float, clock: Callable[[], float]
    ) -> None:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise BodyError("with a compressed body, which was not requested")
        self._response = response
        self._timeout_s = timeout_s
        self._clock = clock
        self._begun = clock()
        self._content = bytearray()

    def add(self, piece: bytes) -> None:
        """Adds the next bytes.

        Raises:
            BodyError: The body is too large.
            ReadTimeout: The body takes too long.
        """
        self._content += piece
        if len(self._content) > LARGEST_ANSWER_BYTES:
            raise BodyError(f"with more than {LARGEST_ANSWER_BYTES} bytes")
        if self._clock() - self._begun > self._timeout_s:
            raise httpx.ReadTimeout(f"the answer was not complete after {self._timeout_s:g} s")

    def response(self) -> httpx.Response:
        """The whole answer."""
        return httpx.Response(
            self._response.status_code,
            headers=self._response.headers,
            content=bytes(self._content),
        )


class SyncTransport:
    """Runs exchanges in the calling thread; several threads may run some at once.

    Args:
        address: The address of the service and its key.
        timeout_s: Longest time without an answer, and longest time that the rest of one may take.
        on_wait: Receives each pause when it begins.
        sleep: Waits some seconds; None to wait until `stopped`.
        clock: Monotonic clock in seconds.
    """

    def __init__(
        self,
        address: Address,
        timeout_s: float,
        on_wait: OnWait,
        sleep: Callable[[float], None] | None,
        clock: Callable[[], float],
    ) -> None:
        self._http = httpx.Client(**_options(address, timeout_s))
        self._timeout_s = timeout_s
        self._on_wait = on_wait
        self._sleep = sleep
        self._clock = clock
        self._lock = threading.Lock()
        self._running = 0
        self._closing = False

    def close(self) -> None:
        """Closes the connections, or lets the last running exchange close them.

        An exchange in another thread may be opening a connection, which would stay open.
        """
        with self._lock:
            self._closing = True
            is_idle = self._running == 0
        if is_idle:
            self._http.close()

    def run(self, steps: Steps[T], stopped: threading.Event | None = None) -> T:
        """Runs an exchange and returns its result.

        Raises:
            ScopeError: The exchange raises it.
            StoppedError: `stopped` was set between two steps.
        """
        with self._lock:
            self._running += 1
        try:
            return self._run(steps, stopped or threading.Event())
        finally:
            with self._lock:
                self._running -= 1
                is_last = self._closing and self._running == 0
            if is_last:
                self._http.close()

    def _run(self, steps: Steps[T], stopped: threading.Event) -> T:
        answer: Answer = None
        while True:
            if stopped.is_set():
                raise StoppedError
            try:
                step = steps.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Pause):
                self._on_wait(step)
                (self._sleep or stopped.wait)(step.seconds)
                answer = None
            else:
                answer = self._send(step)

    def _send(self, call: Call) -> Answer:
        try:
            with self._http.stream(**_request(call)) as response:
                body = _Body(response, self._timeout_s, self._clock)
                for piece in response.iter_raw():
                    body.add(piece)
                return body.response()
        except httpx.RequestError as exc:
            return exc


class AsyncTransport:
    """Runs exchanges on asyncio's event loop.

    Args:
        address: The address of the service and its key.
        timeout_s: Longest time without an answer, and longest time that the rest of one may take.
        on_wait: Receives each pause when it begins.
        sleep: Waits some seconds.
        clock: Monotonic clock in seconds.
    """

    def __init__(
        self,
        address: Address,
        timeout_s: float,
        on_wait: OnWait,
        sleep: Callable[[float], Awaitable[None]] | None,
        clock: Callable[[], float],
    ) -> None:
        self.http = httpx.AsyncClient(**_options(address, timeout_s))
        self._timeout_s = timeout_s
        self._on_wait = on_wait
        self._sleep = sleep or asyncio.sleep
        self._clock = clock

    async def run(self, steps: Steps[T]) -> T:
        """Runs an exchange and returns its result; raises what the exchange raises."""
        answer: Answer = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Pause):
                self._on_wait(step)
                await self._sleep(step.seconds)
                answer = None
            else:
                answer = await self._send(step)

    async def _send(self, call: Call) -> Answer:
        try:
            async with self.http.stream(**_request(call)) as response:
                body = _Body(response, self._timeout_s, self._clock)
                async for piece in response.aiter_raw():
                    body.add(piece)
                return body.response()
        except httpx.RequestError as exc:
            return exc


def _options(address: Address, timeout_s: float) -> dict[str, Any]:
    from scope_judge import __version__

    headers = {
        "User-Agent": f"scope-judge-client/{__version__}",
        # The service does not compress, and a small compressed body may be a large one.
        "Accept-Encoding": "identity",
    }
    if address.key is not None:
        headers |= address.key.headers()
    return {
        "base_url": address.url,
        "headers": headers,
        # Waiting for a free connection of the pool is the client's own matter.
        "timeout": httpx.Timeout(timeout_s, connect=_CONNECT_TIMEOUT_S, pool=None),
    }


def _request(call: Call) -> dict[str, Any]:
    headers = {} if call.content is None else {"Content-Type": "application/json"}
    return {"method": call.method, "url": call.path, "content": call.content, "headers": headers}
