"""Who is next: calls take turns, so that one with many prompts does not hold up one with few."""

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

# Until something has been measured.
_FIRST_PACE_S = 0.01
# What is remembered of the pace, in prompts.
_REMEMBERED = 4096


class Pace:
    """Gives each prompt of a call a turn: when it would be run if its call were alone.

    A single judgment so passes what of a batch would be run later anyway, and a prompt of a batch
    is passed only by what comes before its own time: under a stream of singles that would fill the
    engine a batch takes twice as long as alone, and is not put off for ever.

    Args:
        clock: Monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._in_flight = 0
        self._noted_at = 0.0
        self._busy_s = 0.0
        self._done = 0

    @property
    def seconds_a_prompt(self) -> float:
        """Of busy time, over what was done lately."""
        return self._busy_s / self._done if self._done else _FIRST_PACE_S

    @contextmanager
    def call(self, prompts: int) -> Iterator[list[int]]:
        """The turns of a call's prompts, in milliseconds, while they are in flight.

        `note_done` is to be called for each that is done.
        """
        now = self._clock()
        if not self._in_flight:
            self._noted_at = now
        self._in_flight += prompts
        pace_s = self.seconds_a_prompt
        try:
            yield [int(1000 * (now + place * pace_s)) for place in range(prompts)]
        finally:
            self._in_flight -= prompts

    def note_done(self, prompts: int = 1) -> None:
        """Counts prompts that are done."""
        now = self._clock()
        self._busy_s += now - self._noted_at
        self._noted_at = now
        self._done += prompts
        if self._done > _REMEMBERED:
            self._busy_s /= 2
            self._done //= 2


class Turns:
    """A lock that is handed on to the waiter with the smallest number, not to the first."""

    def __init__(self) -> None:
        self._taken = False
        self._count = itertools.count()
        # Number, order of arrival, and what its waiter waits for.
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def turn(self, number: int) -> AsyncIterator[None]:
        """Holds the lock for the block; of those that wait the smallest number goes first."""
        if self._taken:
            called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (number, next(self._count), called))
            try:
                await called
            except asyncio.CancelledError:
                # Called and cancelled at once: the turn is not to be lost.
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
