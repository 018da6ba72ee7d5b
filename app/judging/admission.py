"""Admission control: counts the comparisons in progress, and lets callers in by turns."""

import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from app.core.errors import OverloadedError
from app.fair_queue import CURRENT_FLOW, Claim, FairQueue
from app.judging.rate_limits import RateLimits
from app.observability.telemetry import Telemetry

# One place in eight is reserved for small requests (at most 8 comparisons), so that batches cannot
# delay single judgments. In the engine both take turns (ports.Engine).
_SMALL_REQUEST = 8
_RESERVED_SHARE = 8
# Retry-After is the pending comparisons divided by the rate of the last 10 s; at most 30 s.
_REMEMBERED_S = 10.0
_LONGEST_RETRY_S = 30


class Admission:
    """Counts the comparisons in progress, from their admission to their answer.

    Where places are scarce, callers get them in the order of a `FairQueue`. A request waits for its
    turn as long as its flow has less than its share of the places; beyond that it is refused.
    """

    def __init__(
        self,
        *,
        max_pending: int,
        telemetry: Telemetry,
        rate_limits: RateLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_pending = max_pending
        telemetry.pending.set_function(lambda: self.pending)
        telemetry.pending_limit.set(max_pending)
        self._clock = clock
        self._rate_limits = rate_limits
        self._queue = FairQueue()
        self._reserved_free = max_pending // _RESERVED_SHARE
        self._shared = self._free = max_pending - self._reserved_free
        # (time, number) of finished comparisons, and the sum of the numbers.
        self._finished: deque[tuple[float, int]] = deque()
        self._finished_count = 0

    @property
    def pending(self) -> int:
        """Number of comparisons in progress."""
        return self._max_pending - self._free - self._reserved_free

    @property
    def largest_request(self) -> int:
        """Most comparisons that one request can have; large ones leave places to other callers."""
        return max(1, self._max_pending // 2)

    @asynccontextmanager
    async def admit(self, comparisons: int, *, patient: bool = False) -> AsyncIterator[None]:
        """Takes one place for each comparison while the block runs; waits for them in turn.

        The caller limits the wait: a request that is cancelled gives up its turn.

        Args:
            patient: Whether to wait even if the flow has its share already.

        Raises:
            OverloadedError: No place is free, and the flow has its share. No place was taken.
            RateLimitedError: The caller's key has used up its comparisons a minute.
        """
        if not comparisons:
            yield
            return
        claim = Claim(flow=CURRENT_FLOW.get(), size=comparisons)
        self._queue.add(claim)
        try:
            self._admit_waiting()
            greedy = self._queue.has_more_than_share(claim.flow, self._shared)
            if greedy and not claim.holds and not patient:
                raise self._overloaded(claim)
            await self._rate_limits.spend(claim.flow, comparisons)
            await claim.turn.wait()
            yield
            self._note_finished(comparisons)
        finally:
            self._release(claim)

    def _admit_waiting(self) -> None:
        while (claim := self._admissible()) is not None:
            if claim.reserved:
                self._reserved_free -= claim.size
            else:
                self._free -= claim.size
            self._queue.hold(claim)

    def _admissible(self) -> Claim | None:
        """Returns the claim that gets its places now, if there is one."""
        for place, claim in enumerate(self._queue.in_turn()):
            claim.reserved = claim.size <= min(_SMALL_REQUEST, self._reserved_free)
            # The places that are free are kept for the first, even while it needs more.
            if claim.reserved or (place == 0 and claim.size <= self._free):
                return claim
        return None

    def _release(self, claim: Claim) -> None:
        if claim.holds:
            if claim.reserved:
                self._reserved_free += claim.size
            else:
                self._free += claim.size
        self._queue.remove(claim)
        self._admit_waiting()

    def _note_finished(self, comparisons: int) -> None:
        self._finished.append((self._clock(), comparisons))
        self._finished_count += comparisons
        self._forget_old()

    def _forget_old(self) -> None:
        while self._finished and self._finished[0][0] < self._clock() - _REMEMBERED_S:
            self._finished_count -= self._finished.popleft()[1]

    def _overloaded(self, claim: Claim) -> OverloadedError:
        self._forget_old()
        wait_s = 1.0
        if self._finished:
            took_s = max(1.0, self._clock() - self._finished[0][0])
            wait_s = self.pending * took_s / self._finished_count
        waiting = self._queue.waiting - claim.size
        more = f", {waiting} more wait for their turn" if waiting else ""
        return OverloadedError(
            f"{self.pending} comparisons are in progress{more} and the limit is "
            f"{self._max_pending} (SCOPE_MAX_PENDING): try again later, or send smaller batches",
            retry_after_s=min(_LONGEST_RETRY_S, max(1, math.ceil(wait_s))),
        )
