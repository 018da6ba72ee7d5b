"""The requests sent, the answers received, and their faults."""

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

_SLOWEST = 5
_SAMPLES = 3


class Slow(NamedTuple):
    """One of the slowest requests."""

    seconds: float
    what: str


@dataclass
class Tally:
    """The counts of a run.

    Args:
        statuses: Status of the answer, "closed" or "hang" -> count.
        routes: Route of the document, or family of a request without one -> count.
        checks: Check -> number of times that it passed.
        excused: Reason -> number of failed checks that a stricter one of ours replaces.
        failures: Check or promise -> some examples of its failure.
        slowest: The slowest requests in ascending order.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    routes: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    slowest: list[Slow] = field(default_factory=list)

    @property
    def requests(self) -> int:
        """Number of requests sent so far."""
        return self.statuses.total()

    def count(self, route: str, status: str, seconds: float | None) -> None:
        """Counts one request; `seconds` is None for a request that is slow on purpose."""
        self.statuses[status] += 1
        self.routes[route] += 1
        if seconds is None:
            return
        heapq.heappush(self.slowest, Slow(seconds, f"{route} -> {status}"))
        if len(self.slowest) > _SLOWEST:
            heapq.heappop(self.slowest)

    def passed(self, check: str) -> None:
        """Counts a check that passed."""
        self.checks[check] += 1

    def failed(self, check: str, example: str) -> None:
        """Counts a check that failed, and keeps the first examples."""
        self.failures[check] += 1
        kept = self.examples.setdefault(check, [])
        if len(kept) < _SAMPLES:
            kept.append(example)
