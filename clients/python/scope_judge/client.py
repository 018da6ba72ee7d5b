"""The synchronous client."""

import queue
import threading
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, TypeVar

import httpx

from scope_judge.batches import Stream
from scope_judge.calls import Calls
from scope_judge.exchange import (
    TIMEOUT_S,
    OneGroup,
    OnWait,
    Pause,
    Steps,
    client_options,
    log_wait,
    request_of,
)

R = TypeVar("R")
T = TypeVar("T")


class StoppedError(Exception):
    """The caller does not wait for the work any more."""


class ScopeClient(Calls):
    """A client of a scope-judge service. Several threads can share it.

    A request is repeated after a 429, a 503, a timeout or a broken connection, and never after
    another error. Judging and rewards change nothing in the service, so a repetition counts nothing
    twice. Every method raises `ScopeError` if the service refuses a request or does not answer.

    Args:
        url: Address of the service. By default SCOPE_URL of the environment, or else
            http://127.0.0.1:8000.
        api_key: The key, if the service needs one. By default SCOPE_API_KEY of the environment.
        timeout_s: Longest time without an answer to one try; longer than the service's own timeout
            (SCOPE_TIMEOUT_S), which ends in a clearer error.
        patience_s: How long a request is repeated. By default 600 s, but not at all while no
            service has ever answered this client: the address is then probably wrong.
        on_wait: Receives each pause before a repetition; by default it is logged as a warning.
        confirmed_only: Whether an answer whose thresholds the calibration store has not confirmed
            is asked for again, as after a 503: for results that are read much later.

    Raises:
        ValueError: The address or the key cannot be one.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        patience_s: float | None = None,
        on_wait: OnWait = log_wait,
        confirmed_only: bool = False,
    ) -> None:
        super().__init__(url, api_key, patience_s, confirmed_only=confirmed_only)
        self._http = httpx.Client(**client_options(self._session.address, timeout_s))
        self._on_wait = on_wait
        self._sleep: Callable[[float], object] | None = None
        self._lock = threading.Lock()
        self._running = 0
        self._closing = False

    def __enter__(self) -> "ScopeClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections, or lets the last running call close them.

        A call in another thread may be opening a connection, which would stay open.
        """
        with self._lock:
            self._closing = True
            is_idle = self._running == 0
        if is_idle:
            self._http.close()

    def _run(self, steps: Steps[T], stopped: threading.Event | None = None) -> T:
        """Runs the steps of a call; raises StoppedError if `stopped` is set between two of them."""
        with self._lock:
            self._running += 1
        try:
            answer: Any = None
            while True:
                if stopped is not None and stopped.is_set():
                    raise StoppedError
                try:
                    step = steps.send(answer)
                except StopIteration as end:
                    result: T = end.value
                    return result
                answer = self._answer(step, stopped)
        finally:
            with self._lock:
                self._running -= 1
                is_last = self._closing and self._running == 0
            if is_last:
                self._http.close()

    def _answer(self, step: Any, stopped: threading.Event | None) -> Any:
        if isinstance(step, Pause):
            self._on_wait(step)
            (self._sleep or (stopped or threading.Event()).wait)(step.seconds)
            return None
        if isinstance(step, OneGroup):
            return self._run(self._rewards_of(step.group, step.rule))
        try:
            return self._http.request(**request_of(step))
        except httpx.RequestError as exc:
            return exc

    def _streamed(self, stream: Stream[R]) -> Generator[R, None, None]:
        """Yields the results of the inputs, and works on later ones meanwhile."""
        stopped = threading.Event()
        ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        running = 0

        def run(steps: Steps[None]) -> None:
            try:
                self._run(steps, stopped)
            except BaseException as exc:  # noqa: BLE001 - raised in the thread of the caller
                ended.put(exc)
            else:
                ended.put(None)

        try:
            work = self._run(stream.preparation)
            batches = stream.batches(work)
            while True:
                while results := work.take():
                    yield from results
                while work.has_room() and (batch := next(batches, None)):
                    steps = work.steps(batch)
                    # A caller who leaves early, and a process that ends, do not wait for answers
                    # that are on their way.
                    threading.Thread(
                        target=run, args=(steps,), name="scope-judge", daemon=True
                    ).start()
                    running += 1
                if running:
                    failure = ended.get()
                    running -= 1
                    if failure is not None:
                        raise failure
                elif work.is_empty:
                    return
        finally:
            stopped.set()
