"""Admission control: who is next, how many comparisons are in progress, and a key's own limit."""

import asyncio
import itertools
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from app.circuit_breaker import CircuitBreaker
from app.core.errors import OverloadedError, RateLimitedError
from app.flow import CURRENT_FLOW, Flow
from app.observability.telemetry import Telemetry
from app.ports import ScoreStore

# One place in eight is reserved for small requests (at most 8 comparisons), so that batches cannot
# delay single judgments. In the engine both take turns (ports.Engine).
_SMALL_REQUEST = 8
_RESERVED_SHARE = 8
_MINUTE_S = 60.0


@dataclass(kw_only=True, slots=True, eq=False)
class Claim:
    """One request for places: it waits in line, and holds them when its turn is set.

    Args:
        size: Number of places.
        reserved: Whether the places are among those for small requests.
    """

    flow: Flow
    size: int
    turn: asyncio.Event = field(default_factory=asyncio.Event)
    reserved: bool = False

    @property
    def holds(self) -> bool:
        """Whether it has left the line and holds its places."""
        return self.turn.is_set()


@dataclass(kw_only=True, slots=True)
class _Use:
    """The claims of one caller, or of one flow.

    Args:
        since: Turn of the count in which it last got or returned a part, or in which its first
            claim came.
    """

    since: int
    claims: int = 0
    waiting: int = 0
    held: int = 0


class FairQueue:
    """Claims in line, in the order in which callers get their turn.

    The next part goes to the caller who holds least, then to the kind of its requests that holds
    least; of equals, to the one that has waited longest since it had a part. Claims of one flow
    keep the order of their arrival. A caller or flow without a claim is forgotten. The owner
    decides when a part is free; nothing here waits, or is safe in several threads.
    """

    def __init__(self) -> None:
        self._count = itertools.count()
        self._callers: dict[str, _Use] = {}
        self._flows: dict[Flow, _Use] = {}
        # A dict keeps the order of arrival and lets a claim leave from the middle at once.
        self._lines: dict[Flow, dict[Claim, None]] = {}

    def add(self, claim: Claim) -> None:
        """Puts a claim in line."""
        caller = self._callers.setdefault(claim.flow.caller, _Use(since=next(self._count)))
        flow = self._flows.setdefault(claim.flow, _Use(since=next(self._count)))
        for use in (caller, flow):
            use.claims += 1
            use.waiting += claim.size
        self._lines.setdefault(claim.flow, {})[claim] = None

    def hold(self, claim: Claim) -> None:
        """Gives a claim its part, and takes it out of the line."""
        self._leave_line(claim)
        turn = next(self._count)
        for use in self._uses(claim):
            use.held += claim.size
            use.since = turn
        claim.turn.set()

    def remove(self, claim: Claim) -> None:
        """Ends a claim, whether it holds its part or still waits."""
        if claim.holds:
            turn = next(self._count)
            for use in self._uses(claim):
                use.held -= claim.size
                use.since = turn
        else:
            self._leave_line(claim)
        for use in self._uses(claim):
            use.claims -= 1
        if not self._flows[claim.flow].claims:
            del self._flows[claim.flow]
        if not self._callers[claim.flow.caller].claims:
            del self._callers[claim.flow.caller]

    def in_turn(self) -> list[Claim]:
        """Returns the first claim of each line, the one whose turn is next first."""
        return sorted((next(iter(line)) for line in self._lines.values()), key=self._rank)

    def has_more_than_share(self, flow: Flow, total: int) -> bool:
        """Whether several claims of a flow, in line or not, are larger than its part of a total."""
        use = self._flows[flow]
        return use.claims > 1 and use.waiting + use.held > self.share_of(flow, total)

    def share_of(self, flow: Flow, total: int) -> float:
        """Returns a flow's part of a total if callers, and the kinds of each caller, share it."""
        kinds = sum(other.caller == flow.caller for other in self._flows)
        return total / len(self._callers) / kinds

    @property
    def waiting(self) -> int:
        """Size of all claims in line."""
        return sum(use.waiting for use in self._callers.values())

    def _uses(self, claim: Claim) -> tuple[_Use, _Use]:
        return self._callers[claim.flow.caller], self._flows[claim.flow]

    def _rank(self, claim: Claim) -> tuple[int, int, int, int]:
        caller, flow = self._uses(claim)
        return caller.held, caller.since, flow.held, flow.since

    def _leave_line(self, claim: Claim) -> None:
        line = self._lines[claim.flow]
        del line[claim]
        if not line:
            del self._lines[claim.flow]
        for use in self._uses(claim):
            use.waiting -= claim.size


class RateLimits:
    """Refuses requests of keys that have used up their comparisons a minute.

    A key may spend the comparisons of one minute at once, and gets them back evenly. A request is
    taken whole if anything is left; the key then pays back what was missing. So no request is too
    large for a limit, and the average holds. All replicas on one store count together; while the
    store does not answer, each counts for itself.
    """

    def __init__(
        self,
        store: ScoreStore,
        telemetry: Telemetry,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._breaker = CircuitBreaker(telemetry, clock)
        self._clock = clock
        # Name of a key -> time at which it has paid back everything.
        self._paid_at: dict[str, float] = {}

    async def spend(self, flow: Flow, comparisons: int) -> None:
        """Takes comparisons from what is left to the key of a flow, or raises RateLimitedError."""
        limit = flow.comparisons_per_minute
        if limit is None:
            return
        each_s = _MINUTE_S / limit
        # At most this is owed while one comparison is left.
        most_owed_s = _MINUTE_S - each_s
        cost_s = comparisons * each_s
        owed_s = await self._breaker.ask(
            lambda: self._store.charge(flow.key, cost_s, most_owed_s=most_owed_s), None
        )
        if owed_s is None:
            owed_s = self._charge(flow.key, cost_s, most_owed_s=most_owed_s)
        if owed_s > most_owed_s:
            wait_s = math.ceil(owed_s - most_owed_s)
            raise RateLimitedError(
                f"the key {flow.key!r} may have {limit} comparisons a minute and has used them: "
                f"try again in {wait_s} s",
                retry_after_s=wait_s,
            )

    def _charge(self, key: str, cost_s: float, *, most_owed_s: float) -> float:
        now = self._clock()
        owed_s = max(0.0, self._paid_at.get(key, now) - now)
        if owed_s <= most_owed_s:
            self._paid_at[key] = now + owed_s + cost_s
        return owed_s


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
    ) -> None:
        self._max_pending = max_pending
        telemetry.pending.set_function(lambda: self.pending)
        telemetry.pending_limit.set(max_pending)
        self._rate_limits = rate_limits
        self._queue = FairQueue()
        self._reserved_free = max_pending // _RESERVED_SHARE
        self._shared = self._free = max_pending - self._reserved_free

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

    def _overloaded(self, claim: Claim) -> OverloadedError:
        waiting = self._queue.waiting - claim.size
        more = f", {waiting} more wait for their turn" if waiting else ""
        return OverloadedError(
            f"{self.pending} comparisons are in progress{more} and the limit is "
            f"{self._max_pending} (SCOPE_MAX_PENDING): try again later, or send smaller batches"
        )
