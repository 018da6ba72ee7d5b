"""Admission control: counts the comparisons in progress and refuses more than a limit."""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

from app.core.errors import OverloadedError
from app.telemetry import Telemetry

# One slot in eight is reserved for small requests (at most 8 comparisons), so that a series of
# batches cannot starve single judgments. In the engine both take turns (ports.Engine).
_SMALL_REQUEST = 8
_RESERVED_SHARE = 8
# Retry-After is the pending comparisons divided by the rate of the last 10 s; at most 30 s.
_REMEMBERED_S = 10.0
_LONGEST_RETRY_S = 30


class _Waiting(NamedTuple):
    """A request that waits for its slots; its turn has a result when it has got them."""

    comparisons: int
    turn: asyncio.Future[None]


class Admission:
    """Counts the comparisons in progress, from their admission to their answer.

    Args:
        max_pending: Most comparisons in progress at once.
        telemetry: Shows the number of comparisons in progress.
        clock: Monotonic clock in seconds.
    """

    def __init__(
        self,
        *,
        max_pending: int,
        telemetry: Telemetry,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_pending = max_pending
        telemetry.show_pending(lambda: self._pending, limit=max_pending)
        self._clock = clock
        self._pending = 0
        self._waiting: deque[_Waiting] = deque()
        # (time, number) of finished comparisons, and the sum of the numbers.
        self._finished: deque[tuple[float, int]] = deque()
        self._finished_count = 0

    @property
    def largest_request(self) -> int:
        """Most comparisons that one request can have and still be admitted."""
        return max(1, self._max_pending - self._max_pending // _RESERVED_SHARE)

    def check_room(self) -> None:
        """Raises OverloadedError if no slot is free, not even for one comparison."""
        if self._pending >= self._max_pending:
            raise self._overloaded()

    @contextmanager
    def admit(self, comparisons: int) -> Iterator[None]:
        """Takes one slot for each comparison while the block runs.

        Raises:
            OverloadedError: Too few slots are free, or others wait for them. No slot was taken.
        """
        # A batch must not pass requests that have been waiting for longer.
        passes = bool(self._waiting) and comparisons > _SMALL_REQUEST
        if passes or not self._has_room(comparisons):
            raise self._overloaded()
        self._take(comparisons)
        with self._held(comparisons):
            yield

    @asynccontextmanager
    async def admit_in_turn(self, comparisons: int) -> AsyncIterator[None]:
        """Takes one slot for each comparison while the block runs; waits until they are free.

        The requests that wait are admitted in the order of their arrival. The caller limits the
        wait: a request that is cancelled gives its place up.
        """
        if comparisons and (self._waiting or not self._has_room(comparisons)):
            await self._turn(comparisons)
        else:
            self._take(comparisons)
        with self._held(comparisons):
            yield

    async def _turn(self, comparisons: int) -> None:
        """Returns when the slots of a waiting request have been taken for it."""
        place = _Waiting(comparisons, asyncio.get_running_loop().create_future())
        self._waiting.append(place)
        try:
            await place.turn
        except asyncio.CancelledError:
            if place.turn.cancelled():
                # Its place may be the one that kept the next in line waiting.
                self._admit_waiting()
            else:
                self._release(comparisons)
            raise

    def _has_room(self, comparisons: int) -> bool:
        small = comparisons <= _SMALL_REQUEST
        limit = self._max_pending if small else self.largest_request
        return self._pending + comparisons <= limit

    def _take(self, comparisons: int) -> None:
        self._pending += comparisons

    @contextmanager
    def _held(self, comparisons: int) -> Iterator[None]:
        """Gives the slots back when the block ends."""
        try:
            yield
            self._note_finished(comparisons)
        finally:
            self._release(comparisons)

    def _release(self, comparisons: int) -> None:
        self._pending -= comparisons
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        while self._waiting:
            comparisons, turn = self._waiting[0]
            if not turn.cancelled():
                if not self._has_room(comparisons):
                    break
                self._take(comparisons)
                turn.set_result(None)
            self._waiting.popleft()

    def _note_finished(self, comparisons: int) -> None:
        self._finished.append((self._clock(), comparisons))
        self._finished_count += comparisons
        self._forget_old()

    def _forget_old(self) -> None:
        while self._finished and self._finished[0][0] < self._clock() - _REMEMBERED_S:
            self._finished_count -= self._finished.popleft()[1]

    def _overloaded(self) -> OverloadedError:
        self._forget_old()
        wait_s = 1.0
        if self._finished:
            took_s = max(1.0, self._clock() - self._finished[0][0])
            wait_s = self._pending * took_s / self._finished_count
        waiting = sum(each.comparisons for each in self._waiting if not each.turn.cancelled())
        more = f", {waiting} more wait for their turn" if waiting else ""
        return OverloadedError(
            f"{self._pending} comparisons are in progress{more} and the limit is "
            f"{self._max_pending} (SCOPE_MAX_PENDING): try again later, or send smaller batches",
            retry_after_s=min(_LONGEST_RETRY_S, max(1, math.ceil(wait_s))),
        )
