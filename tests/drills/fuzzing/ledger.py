"""What has been sent, what came back, and what was wrong with it."""

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_SLOWEST = 5
_SAMPLES = 3


class Slow(NamedTuple):
    """One of the slowest requests."""

    seconds: float
    what: str


@dataclass
class Ledger:
    """The count of a run.

    Args:
        statuses: Of answers, and "closed" and "hang".
        routes: Of the document, or the family where there is none.
        checks: How often each was passed.
        excused: Checks that a stricter one of ours stands in for, by reason.
        failures: By check or promise; some examples of each.
        slowest: The longest last.
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
        """Sent so far."""
        return self.statuses.total()

    def count(self, route: str, status: str, seconds: float | None) -> None:
        """Counts one request; None of those that were meant to last."""
        self.statuses[status] += 1
        self.routes[route] += 1
        if seconds is None:
            return
        heapq.heappush(self.slowest, Slow(seconds, f"{route} -> {status}"))
        if len(self.slowest) > _SLOWEST:
            heapq.heappop(self.slowest)

    def passed(self, check: str) -> None:
        """Counts a check that was passed."""
        self.checks[check] += 1

    def failed(self, check: str, example: str) -> None:
        """Counts a check that was not, and keeps the first examples."""
        self.failures[check] += 1
        kept = self.examples.setdefault(check, [])
        if len(kept) < _SAMPLES:
            kept.append(example)

    def as_json(self) -> dict[str, Any]:
        """For the file of measurements."""
        return {
            "requests": self.requests,
            "statuses": dict(sorted(self.statuses.items())),
            "routes": dict(sorted(self.routes.items())),
            "checks_passed": dict(sorted(self.checks.items())),
            "checks_in_their_stead": dict(sorted(self.excused.items())),
            "failures": dict(self.failures),
            "slowest_s": [
                {"seconds": round(slow.seconds, 3), "what": slow.what}
                for slow in sorted(self.slowest, reverse=True)
            ],
        }
