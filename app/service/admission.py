"""Admission control: counts the comparisons in progress and refuses more than a limit."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.core.errors import OverloadedError
from app.telemetry import Telemetry

# One slot in eight is reserved for small requests (at most 8 comparisons), so that a series of
# batches cannot starve single judgments. In the engine both take turns (ports.Engine).
_SMALL_REQUEST = 8
_RESERVED_SHARE = 8
# Retry-After is the pending comparisons divided by the rate of the last 10 s; at most 30 s.
_REMEMBERED_S = 10.0
_LONGEST_RETRY_S = 30


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
        self._telemetry = telemetry
        telemetry.show_pending_limit(max_pending)
        self._clock = clock
        self._pending = 0
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
            OverloadedError: Too few slots are free. No slot was taken; admission never waits.
        """
        small = comparisons <= _SMALL_REQUEST
        limit = self._max_pending if small else self.largest_request
        if self._pending + comparisons > limit:
            raise self._overloaded()
        self._pending += comparisons
        self._telemetry.show_pending(self._pending)
        try:
            yield
            self._note_finished(comparisons)
        finally:
            self._pending -= comparisons
            self._telemetry.show_pending(self._pending)

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
        return OverloadedError(
            f"{self._pending} comparisons are in progress and the limit is {self._max_pending} "
            "(SCOPE_MAX_PENDING): try again later, or send smaller batches",
            retry_after_s=min(_LONGEST_RETRY_S, max(1, math.ceil(wait_s))),
        )
