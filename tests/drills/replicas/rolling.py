"""A rolling restart under load, as every client behind the proxy sees it."""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.drills.faults.experiment import SERVED
from tests.drills.faults.material import ALPHA, scripted_pairs
from tests.drills.faults.talking import Answer, Client
from tests.drills.faults.traffic import Traffic
from tests.drills.faults.verdicts import fault_of, ground_of
from tests.drills.replicas.fleet import Fleet, restart_each

_BATCH = 16
_PAUSE_S = 0.05
# Every other answer is a failed request. "200 stale" is allowed because a machine that starts
# services may hold Redis up for the quarter of a second that a judgment waits for Redis.
_GOOD = SERVED | {"200 ready", "200 degraded"}


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
    found = Rolling()
    traffic = Traffic(fleet.front.port, scripted_pairs())
    async with traffic, Client(fleet.front.port) as client:
        began = loop.time()
        batches = [_Batches(client, traffic) for _ in range(batch_clients)]
        judging = [asyncio.ensure_future(each.judge(place)) for place, each in enumerate(batches)]
        try:
            while not found.restarts or loop.time() - began < seconds:
                await asyncio.to_thread(restart_each, fleet.replicas)
                found.restarts += len(fleet.replicas)
                traffic.check_tasks()
        finally:
            for each in batches:
                each.stopping = True
            await asyncio.gather(*judging)
        await traffic.stop()
        found.seconds = loop.time() - began
        for kind in ("judge", "calibrate", "readyz"):
            found.count(kind, [seen.answer for seen in traffic.seen if seen.kind == kind])
        found.count("judge/batch", [answer for each in batches for answer in each.answers])
        await traffic.audit()
    ledger = traffic.ledger
    found.judgments = traffic.verdicts + sum(each.judgments for each in batches)
    found.versions, found.examples = ledger.checked, ledger.acknowledged
    found.lost, found.doubled = ledger.lost, ledger.doubled
    wrong = [*traffic.wrong, *ledger.wrong, *(text for each in batches for text in each.wrong)]
    found.wrong = list(dict.fromkeys(wrong))[:20]
    return found


class _Batches:
    """A client that judges batches of the traffic's pairs, one request after the other."""

    def __init__(self, client: Client, traffic: Traffic) -> None:
        self._client = client
        self._ledger = traffic.ledger
        self._pairs = scripted_pairs()
        self.stopping = False
        self.answers: list[Answer] = []
        self.judgments = 0
        self.wrong: list[str] = []

    async def judge(self, first: int) -> None:
        """Sends batches until `stopping` is set."""
        for number in itertools.count(first):
            if self.stopping:
                return
            start = number * _BATCH % len(self._pairs)
            pairs = self._pairs[start : start + _BATCH]
            asked = {
                "alpha": ALPHA,
                "calibration": self._ledger.name,
                "comparisons": [pair.fields for pair in pairs],
            }
            answer = await self._client.ask("POST", "/judge/batch", json.dumps(asked).encode())
            self.answers.append(answer)
            if answer.status != 200:
                continue
            for pair, judgment in zip(pairs, answer.body["results"], strict=True):
                if "error" in judgment:
                    self.wrong.append(f"an item of a batch got {judgment['error']['code']}")
                    continue
                self.judgments += 1
                fault = fault_of(judgment, p_bar=pair.p_bar, tolerance=1e-9)
                if fault:
                    self.wrong.append(f"in a batch: {fault}")
                self._ledger.rests_on(ground_of(judgment))
            # The clients must leave the replicas some CPU.
            await asyncio.sleep(_PAUSE_S)
