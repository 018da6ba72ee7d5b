"""A rolling restart under load, as every client behind the proxy sees it."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.drills.load.client import Answer
from tests.drills.load.material import scripted_pairs
from tests.drills.load.traffic import Traffic
from tests.drills.replicas.fleet import Fleet, restart_each

# Every other answer is a failed request. "200 stale" is allowed because a machine that starts
# services may hold Redis up for the quarter of a second that a judgment waits for Redis.
_GOOD = {"200", "200 stale", "200 ready", "200 degraded"}


@dataclass
class Rolling:
    """The outcome of the requests while every replica was restarted.

    Args:
        seconds: Duration of the restarts.
        restarts: Number of restarts of a replica.
        requests: Route -> outcome -> count.
        slowest_s: Route -> seconds of the slowest answer.
        judgments: Number of verdicts that were checked against the calibration that they name.
        versions: Number of different calibrations that they named, each checked against the
            client's log.
        examples: Number of acknowledged examples.
        lost: Number of acknowledged examples that are not in the set at the end.
        doubled: Number of examples that are in the set but in no client's log.
        wrong: Broken promises, one sentence each.
    """

    seconds: float = 0.0
    restarts: int = 0
    requests: dict[str, dict[str, int]] = field(default_factory=dict)
    slowest_s: dict[str, float] = field(default_factory=dict)
    judgments: int = 0
    versions: int = 0
    examples: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """Number of requests without a good answer."""
        return sum(
            count
            for counts in self.requests.values()
            for outcome, count in counts.items()
            if outcome not in _GOOD
        )

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The clients' view, one line for each route."""
        return [
            (
                f"`/{route}`",
                f"{sum(counts.values()):,}",
                ", ".join(f"{count:,} x {outcome}" for outcome, count in counts.items()),
                f"{self.slowest_s[route]:.2f} s",
            )
            for route, counts in self.requests.items()
        ]

    def __str__(self) -> str:
        return (
            f"{self.restarts} restarts in {self.seconds:.0f} s: {self.failed} failed requests, "
            f"{self.judgments:,} verdicts checked against {self.versions} versions, of "
            f"{self.examples:,} acknowledged examples {self.lost} lost and {self.doubled} doubled, "
            f"{len(self.wrong)} other faults"
        )

    def count(self, kind: str, answers: Sequence[Answer]) -> None:
        """Adds the answers of one route."""
        self.requests[kind] = dict(Counter(each.outcome for each in answers).most_common())
        self.slowest_s[kind] = max((each.seconds for each in answers), default=0.0)


async def rolling_restart(fleet: Fleet, *, seconds: float = 0.0, batch_clients: int = 2) -> Rolling:
    """Restarts every replica once, and again until the time is over, under all kinds of requests.

    All requests go through the proxy: single judgments 25 times a second, batches one after the
    other, posts of examples with a log, and /readyz. Every verdict is checked against the version
    that it names.
    """
    loop = asyncio.get_running_loop()
    rolling = Rolling()
    async with Traffic(fleet.front.port, scripted_pairs(), batch_clients=batch_clients) as traffic:
        began = loop.time()
        while not rolling.restarts or loop.time() - began < seconds:
            await asyncio.to_thread(restart_each, fleet.replicas)
            rolling.restarts += len(fleet.replicas)
            traffic.check_tasks()
        await traffic.stop()
        rolling.seconds = loop.time() - began
        for kind in ("judge", "judge/batch", "calibrate", "readyz"):
            rolling.count(kind, [seen.answer for seen in traffic.seen if seen.kind == kind])
        await traffic.audit()
    ledger = traffic.ledger
    rolling.judgments, rolling.versions = traffic.judging.verdicts, ledger.checked
    rolling.examples = ledger.acknowledged
    rolling.lost, rolling.doubled = ledger.lost, ledger.doubled
    rolling.wrong = list(dict.fromkeys([*traffic.wrong, *ledger.wrong]))[:20]
    return rolling
