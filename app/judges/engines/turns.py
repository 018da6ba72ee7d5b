"""Fair scheduling of calls: one with many prompts does not delay one with few."""

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from app.ports import is_ahead

T = TypeVar("T")

# Seconds for a prompt, assumed until one has been measured.
_FIRST_PACE_S = 0.01
# Number of prompts after which the measured pace counts half.
_REMEMBERED = 4096


class Pace:
    """Gives each prompt of a call a turn: the time at which it would run if its call were alone.

    A single judgment therefore overtakes the prompts of a batch that would run later anyway. A
    prompt of a batch is overtaken only by calls that arrive before its own turn. Under a stream of
    single judgments that could fill the engine, a batch takes twice as long as alone, and is never
    starved.

    Args:
        clock: Monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._in_flight = 0
        self._noted_at = 0.0
        self._busy_s = 0.0
        self._done = 0

    @property
    def seconds_a_prompt(self) -> float:
        """Recent average of busy time per finished prompt, in seconds."""
        return self._busy_s / self._done if self._done else _FIRST_PACE_S

    @contextmanager
    def call(self, prompts: int) -> Iterator[list[int]]:
        """Yields the turns of a call's prompts, in milliseconds of the clock; 0 for a probe.

        The prompts count as in flight within the block. Call `note_done` for each finished prompt.
        """
        now = self._clock()
        if not self._in_flight:
            self._noted_at = now
        self._in_flight += prompts
        pace_s = self.seconds_a_prompt
        try:
            if is_ahead():
                yield [0] * prompts
            else:
                yield [int(1000 * (now + place * pace_s)) for place in range(prompts)]
        finally:
            self._in_flight -= prompts

    def note_done(self, prompts: int = 1) -> None:
        """Counts finished prompts and updates the pace."""
        now = self._clock()
        self._busy_s += now - self._noted_at
        self._noted_at = now
        self._done += prompts
        if self._done > _REMEMBERED:
            self._busy_s /= 2
            self._done //= 2


class Turns:
    """A priority lock: it passes to the waiter with the smallest number, not to the first."""

    def __init__(self) -> None:
        self._taken = False
        self._count = itertools.count()
        # A heap of (number, order of arrival, future that wakes the waiter).
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def turn(self, number: int) -> AsyncIterator[None]:
        """Holds the lock for the block.

        Args:
            number: Priority among waiters: the smallest number is next, then the first arrival.
        """
        if self._taken:
            called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (number, next(self._count), called))
            try:
                await called
            except asyncio.CancelledError:
                # The waiter got the lock and was cancelled before it ran: pass the lock on.
                if called.done() and not called.cancelled():
                    self._hand_on()
                raise
        self._taken = True
        try:
            yield
        finally:
            self._hand_on()

    def _hand_on(self) -> None:
        while self._waiting:
            called = heapq.heappop(self._waiting)[2]
            if not called.done():
                called.set_result(None)
                return
        self._taken = False


async def run_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Runs coroutines concurrently; the first failure cancels the rest and is raised."""
    tasks = [asyncio.create_task(one) for one in work]
    if not tasks:
        return []
    try:
        # A TaskGroup would lose a cancellation of the caller if a task fails at that moment.
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled() and (failure := task.exception()) is not None:
            raise failure
    return [task.result() for task in tasks]
