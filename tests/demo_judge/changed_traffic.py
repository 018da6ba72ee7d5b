"""Measures what audits notice when the traffic of a service changes, and what they mend.

The pairs of all task families come first. Then sums and differences, which the demo judge never
learnt, become frequent. A labeler labels each audited judgment at once, and correctly. After the
alarm of the monitor the first audits become the calibration set: as many as the service named.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx

from app.demo.pairs import FAMILIES, Pair, demo_sets, pairs

ALPHA = DELTA = 0.10
RATE = 0.3
# Numbers of judgments before the change and after the recovery.
STEADY, RENEWED = 2000, 2000
# Most judgments between the change and the alarm, and between the alarm and its last audit.
MOST = 5000
_HARD = ("sum", "difference")
_BATCH = 50
_CRITERION = {"alpha": ALPHA, "guarantee": "pac", "delta": DELTA}


class Phase(NamedTuple):
    """Counts of one phase.

    Args:
        name: "steady", "changed, before the alarm", "changed, after the alarm" or "absorbed".
        judged: Number of judgments.
        accepted: Number of verdicts.
        wrong: Number of wrong verdicts.
        suspended: Number of abstentions because of the alarm.
        audited: Number of judgments with a labeled audit; a pair that comes again keeps its audit.
    """

    name: str
    judged: int
    accepted: int
    wrong: int
    suspended: int
    audited: int


class Point(NamedTuple):
    """The report of the service after a batch.

    Args:
        judged: Number of judgments so far.
        monitor: Evidence of the monitor against the promise.
        drift: Evidence of the drift, the largest of its streams.
    """

    judged: int
    monitor: float
    drift: float


@dataclass
class Story:
    """One run against one service.

    Args:
        on_alarm: SCOPE_ON_ALARM of the service.
        phases: Counts of each phase.
        points: Reports of the service after each batch of the first version of the set.
        drift_alarm: Judgments since the change of the traffic at the alarm of the drift.
        monitor_alarm: Judgments since the change of the traffic at the alarm of the monitor.
        labels_to_alarm: Labeled questions, from the first on, at the alarm of the monitor.
        labels_after_change: Those of them that were drawn after the change.
        audits: Number of audits to label after the alarm, which the service named at the alarm.
        absorbed: Number of examples in the new calibration set, which are these audits.
    """

    on_alarm: str
    phases: list[Phase] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    drift_alarm: int | None = None
    monitor_alarm: int | None = None
    labels_to_alarm: int | None = None
    labels_after_change: int | None = None
    audits: int = 0
    absorbed: int = 0


def measure(client: httpx.Client, on_alarm: str) -> Story:
    """Runs the story.

    Args:
        client: Client of a service with the demo judge and its default calibration set, which has
            no audits yet. Its SCOPE_AUDIT_RATE is `RATE`.
        on_alarm: SCOPE_ON_ALARM of the service.

    Raises:
        httpx.HTTPStatusError: The service refused a request.
    """
    traffic, story = _Traffic(client), Story(on_alarm)
    usual, hard = _distinct(tuple(FAMILIES), seed=1), _distinct(_HARD, seed=2)
    traffic.begin("steady")
    for batch in _batches(usual, STEADY):
        traffic.judge(batch)
        story.points.append(traffic.report().point)
    questions_before = traffic.report().questions
    traffic.begin("changed, before the alarm")
    mixed = (next(one) for one in itertools.cycle((usual, hard, hard)))
    for number, batch in enumerate(_batches(mixed, MOST), start=1):
        traffic.judge(batch)
        report = traffic.report()
        story.points.append(report.point)
        if report.drift_alarm and story.drift_alarm is None:
            story.drift_alarm = number * _BATCH
        if report.alarm_at is not None:
            story.monitor_alarm = number * _BATCH
            story.labels_to_alarm = report.alarm_at
            story.labels_after_change = report.alarm_at - questions_before
            break
    story.audits = traffic.recovery()["audits"]
    traffic.begin("changed, after the alarm")
    for batch in _batches(mixed, MOST):
        traffic.judge(batch)
        story.points.append(traffic.report().point)
        if traffic.recovery()["labelled"] >= story.audits:
            break
    traffic.begin("absorbed")
    story.absorbed = traffic.absorb(story.audits)
    for batch in _batches(mixed, RENEWED):
        traffic.judge(batch)
    story.phases = traffic.phases
    return story


class _Report(NamedTuple):
    """The monitor's answer."""

    point: Point
    questions: int
    alarm_at: int | None
    drift_alarm: bool


class _Traffic:
    """Sends comparisons, labels the audited ones, and counts."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self.judged = 0
        self.phases: list[Phase] = []

    def begin(self, name: str) -> None:
        self.phases.append(Phase(name, 0, 0, 0, 0, 0))

    def judge(self, batch: Sequence[Pair]) -> None:
        comparisons = [
            {"question": p.question, "response_a": p.response_a, "response_b": p.response_b}
            for p in batch
        ]
        results = self._post("/judge/batch", {**_CRITERION, "comparisons": comparisons})["results"]
        both = list(zip(results, batch, strict=True))
        labels = [
            {"id": result["audit"]["id"], "label": pair.label}
            for result, pair in both
            if result["audit"] is not None
        ]
        if labels:
            self._post("/audits/labels", {"labels": labels})
        self.judged += len(batch)
        phase, accepted = self.phases[-1], [b for b in both if b[0]["verdict"] != "abstain"]
        self.phases[-1] = Phase(
            phase.name,
            phase.judged + len(batch),
            phase.accepted + len(accepted),
            phase.wrong + sum(result["verdict"] != pair.label for result, pair in accepted),
            phase.suspended + sum(result["reason"] == "suspended" for result in results),
            phase.audited + len(labels),
        )

    def report(self) -> _Report:
        monitor = self._monitor()
        criterion = monitor["criteria"][0] if monitor["criteria"] else {}
        streams = [stream for stream in monitor["drift"].values() if stream]
        drift = max((stream["evidence"] for stream in streams), default=0.0)
        return _Report(
            Point(self.judged, criterion.get("evidence", 0.0), drift),
            criterion.get("questions", 0),
            criterion.get("alarm_at"),
            any(stream["alarm"] for stream in streams),
        )

    def recovery(self) -> dict[str, Any]:
        """The number of audits to label after the alarm, and how many of them have a label.

        Raises:
            RuntimeError: The monitor has no alarm.
        """
        recovery: dict[str, Any] | None = self._monitor()["recovery"]
        if recovery is None:
            raise RuntimeError("the monitor has no alarm")
        return recovery

    def absorb(self, audits: int) -> int:
        """Makes the first audits since the alarm the calibration set; returns their number."""
        added: int = self._post("/calibrations/default/absorb", {})["added"]
        return added

    def _monitor(self) -> dict[str, Any]:
        path = "/calibrations/default/monitor"
        answer: dict[str, Any] = self._client.get(path).raise_for_status().json()
        return answer

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._client.post(path, json=body).raise_for_status().json()
        return answer


def _distinct(families: tuple[str, ...], *, seed: int) -> Iterator[Pair]:
    """Pairs that are neither trained on nor calibration examples, each of them once."""
    seen = {_key(pair) for pair in demo_sets().calibrate}
    for pair in pairs(seed, held_out=True, families=families):
        if _key(pair) not in seen:
            seen.add(_key(pair))
            yield pair


def _key(pair: Pair) -> tuple[str, ...]:
    return (pair.question, *sorted((pair.response_a, pair.response_b)))


def _batches(stream: Iterator[Pair], count: int) -> Iterator[list[Pair]]:
    for _ in range(count // _BATCH):
        yield list(itertools.islice(stream, _BATCH))
