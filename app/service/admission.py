"""Who may come in: comparisons under way are counted, and more than may wait are refused."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.core.errors import OverloadedError
from app.telemetry import Telemetry

# Large requests leave one place in eight to small ones, so that a batch after the other does not
# keep single judgments out; in the engine both take turns (ports.Engine).
_SMALL_REQUEST = 8
_KEPT_SHARE = 8
# Retry-After is what is waiting over what was lately done, within these bounds.
_REMEMBERED_S = 10.0
_LONGEST_RETRY_S = 30


class Admission:
    """Counts the comparisons that are under way, from their admission to their answer.

    Args:
        max_pending: Most comparisons at once.
        telemetry: Shows how many there are.
        clock: Monotonic, in seconds.
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
        # (when, how many) were finished, and the sum of these.
        self._finished: deque[tuple[float, int]] = deque()
        self._finished_count = 0

    @property
    def largest_request(self) -> int:
        """The most comparisons of one request that could ever be admitted."""
        return max(1, self._max_pending - self._max_pending // _KEPT_SHARE)

    def check_room(self) -> None:
        """Raises OverloadedError if not even one comparison would be admitted now."""
        if self._pending >= self._max_pending:
            raise self._overloaded()

    @contextmanager
    def admit(self, comparisons: int) -> Iterator[None]:
        """Holds places for comparisons as long as the block runs.

        Raises:
            OverloadedError: There are too few; nothing is held, and nothing waits.
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
            f"{self._pending} comparisons are under way and {self._max_pending} may be "
            "(SCOPE_MAX_PENDING): try again later, or send smaller batches",
            retry_after_s=min(_LONGEST_RETRY_S, max(1, math.ceil(wait_s))),
        )
