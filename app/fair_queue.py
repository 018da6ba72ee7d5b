"""Decides who is next where callers compete for the places of comparisons."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["single", "batch", "rewards", "calibration"]


@dataclass(kw_only=True, slots=True)
class RequestUsage:
    """The work of the judge for one request; the scorer adds to it.

    Args:
        engine_prompts: Prompts that the judge read.
        prompt_tokens: Their tokens; 0 for a judge that counts none.
        written_tokens: Tokens of answers in words, for which only `evaluate` asks.
        escalated: Comparisons that the large judge of a cascade was asked about.
        large_prompts: Prompts that it read.
        large_prompt_tokens: Their tokens.
    """

    engine_prompts: int = 0
    prompt_tokens: int = 0
    written_tokens: int = 0
    escalated: int = 0
    large_prompts: int = 0
    large_prompt_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Flow:
    """A request, or the service's own work; those of one caller and one kind are equal.

    Args:
        caller: Name of the caller's key, or its address if the service has no keys; empty for the
            service's own work.
        kind: Kind of the requests; everything that is neither judged nor rewarded is "calibration".
        key: Name under which the use of the caller's key is counted.
        comparisons_per_minute: Limit of the key; None without one.
        usage: The work of the judge for this request alone.
    """

    caller: str = ""
    kind: Kind = "calibration"
    key: str = field(default="service", compare=False)
    comparisons_per_minute: int | None = field(default=None, compare=False)
    usage: RequestUsage = field(default_factory=RequestUsage, compare=False)


_OWN_WORK = Flow()
# Set by the API for each request, and inherited by the tasks and threads that work on it.
CURRENT_FLOW: ContextVar[Flow] = ContextVar("flow", default=_OWN_WORK)


@contextmanager
def flowing(flow: Flow) -> Iterator[None]:
    """Counts the work of the block as work for a flow."""
    before = CURRENT_FLOW.set(flow)
    try:
        yield
    finally:
        CURRENT_FLOW.reset(before)


@dataclass(kw_only=True, slots=True, eq=False)
class Claim:
    """One request for places: it waits in line, and later holds them.

    Args:
        flow: The flow that it belongs to.
        size: Number of places.
        turn: Is set when it leaves the line and holds its places.
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
        waiting: Size of the claims in line.
        held: Size of the parts that are held.
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
