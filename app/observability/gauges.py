"""The Prometheus gauges of calibration sets, computed when the metrics are read."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scope_judge.records import DriftStream, MonitoredCriterion

# Lost sets that are named; a store that was emptied has lost all.
_MOST_LOST = 100


class TrafficFigures(NamedTuple):
    """Recent judgments with one version of a calibration set, compared with the set itself.

    Args:
        judgments: Number of recent judgments in the comparison.
        abstentions: Share of abstentions among judgments with a feasible alpha; None if there are
            too few of these.
        expected_abstentions: Share of the set's examples that the same thresholds do not accept.
        uncertainty: Mean uncertainty of the judgments, in nats.
        expected_uncertainty: Mean uncertainty of the set's examples, in nats.
    """

    judgments: int
    abstentions: float | None
    expected_abstentions: float | None
    uncertainty: float
    expected_uncertainty: float


class CalibrationFigures(NamedTuple):
    """The numbers of one calibration set that the metrics show.

    Args:
        name: Name of the calibration set.
        version: Version that judgments use.
        n: Number of labeled examples.
        changed_at: Time when the version was made, in seconds since 1970; None if unknown.
        unconfirmed_s: Seconds since the store last confirmed the version; 0 while it answers.
        thresholds: (guarantee, alpha, lambda_hat in nats); lambda_hat is -inf if infeasible.
        traffic: Recent judgments with this version; None if there were too few.
        escalated: (alpha, share of the pairs for the large judge) of a cascade.
    """

    name: str
    version: int
    n: int
    changed_at: float | None
    unconfirmed_s: float
    thresholds: Sequence[tuple[str, float, float]]
    traffic: TrafficFigures | None
    escalated: Sequence[tuple[float, float]] = ()


class WaitingFigures(NamedTuple):
    """The open audits of a set that labels of later audits wait for.

    Args:
        calibration: Name of the calibration set.
        waiting: Number of labels that wait for an earlier open draw.
        oldest_key: Name of the key whose draw has been open for longest, empty if it is unknown;
            None without an open draw.
        oldest_age_s: Seconds since that draw.
    """

    calibration: str
    waiting: int
    oldest_key: str | None
    oldest_age_s: float


class WhenRead(Collector):
    """Makes metrics each time the metrics are read."""

    def __init__(self, metrics: Callable[[], Iterable[Metric]]) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        """Returns nothing, because the labels are only known when the metrics are read."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Makes the metrics."""
        return self._metrics()


def of_calibrations(
    shown: Iterable[CalibrationFigures], *, lost: Sequence[str]
) -> Iterator[GaugeMetricFamily]:
    """Yields the gauges of calibration sets.

    Args:
        shown: The sets that get gauges.
        lost: Names of sets that are gone from the store and were not deleted.
    """
    shown = list(shown)
    gone = _family(
        "calibration_lost",
        "1 if a set that this process used is gone from the store and was not deleted.",
        "calibration",
    )
    for name in lost[:_MOST_LOST]:
        gone.add_metric((name,), 1)
    yield gone
    yield from _of_versions(shown)
    yield from _of_thresholds(shown)
    yield from _of_traffic(shown)


def _family(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"scope_{name}", text, labels=labels)


def _of_versions(shown: Iterable[CalibrationFigures]) -> tuple[GaugeMetricFamily, ...]:
    n = _family("calibration_examples", "Labeled examples of a set.", "calibration")
    version = _family("calibration_version", "Version that judgments use.", "calibration")
    changed = _family(
        "calibration_changed_timestamp_seconds",
        "Time of the version.",
        "calibration",
    )
    unconfirmed = _family(
        "calibration_unconfirmed_seconds",
        "Time since the store confirmed the version; 0 while it answers.",
        "calibration",
    )
    for figures in shown:
        n.add_metric((figures.name,), figures.n)
        version.add_metric((figures.name,), figures.version)
        unconfirmed.add_metric((figures.name,), figures.unconfirmed_s)
        if figures.changed_at is not None:
            changed.add_metric((figures.name,), figures.changed_at)
    return n, version, changed, unconfirmed


def _of_thresholds(shown: Iterable[CalibrationFigures]) -> tuple[GaugeMetricFamily, ...]:
    labels = ("calibration", "guarantee", "alpha")
    threshold = _family(
        "calibration_threshold_nats",
        "Largest accepted uncertainty; absent if infeasible.",
        *labels,
    )
    feasible = _family("calibration_feasible", "Whether alpha is feasible.", *labels)
    escalated = _family(
        "calibration_escalated_share",
        "Share of a set's pairs that the large judge of a cascade is asked about.",
        "calibration",
        "alpha",
    )
    for figures in shown:
        for alpha, share in figures.escalated:
            escalated.add_metric((figures.name, f"{alpha:.2f}"), share)
        for guarantee, alpha, value in figures.thresholds:
            place = (figures.name, guarantee, f"{alpha:.2f}")
            feasible.add_metric(place, float(value > -math.inf))
            if value > -math.inf:
                threshold.add_metric(place, value)
    return threshold, feasible, escalated


def _of_traffic(shown: Iterable[CalibrationFigures]) -> tuple[GaugeMetricFamily, ...]:
    abstentions = _family(
        "traffic_abstention_share",
        "Share of abstentions in recent judgments, and in the labeled pairs.",
        "calibration",
        "of",
    )
    uncertainty = _family(
        "traffic_uncertainty_nats",
        "Mean uncertainty of recent judgments, and of the labeled pairs.",
        "calibration",
        "of",
    )
    for figures in shown:
        traffic = figures.traffic
        if traffic is None:
            continue
        uncertainty.add_metric((figures.name, "judgments"), traffic.uncertainty)
        uncertainty.add_metric((figures.name, "pairs"), traffic.expected_uncertainty)
        if traffic.abstentions is not None and traffic.expected_abstentions is not None:
            abstentions.add_metric((figures.name, "judgments"), traffic.abstentions)
            abstentions.add_metric((figures.name, "pairs"), traffic.expected_abstentions)
    return abstentions, uncertainty


def of_monitors(shown: Iterable[tuple[str, MonitoredCriterion]]) -> Iterator[GaugeMetricFamily]:
    """Yields the gauges of audits, given the names of sets and the audits of a criterion."""
    labels = ("calibration", "guarantee", "alpha", "delta")
    monitors = list(shown)
    for name, text in _MONITORED.items():
        family = _family(f"monitor_{name}", text, *labels)
        for calibration, monitored in monitors:
            delta = "" if monitored.delta is None else str(monitored.delta)
            place = (calibration, monitored.guarantee, str(monitored.alpha), delta)
            family.add_metric(place, float(getattr(monitored, name)))
        yield family


# Field of `MonitoredCriterion` -> the meaning of its gauge.
_MONITORED = {
    "evidence": "Evidence from audits that the error is above alpha.",
    "alarm_evidence": "Evidence at which the alarm starts.",
    "alarm": "Whether the alarm is active.",
    "certified": "Whether audits prove that the error is at most alpha.",
    "audited": "Labels that count as evidence.",
    "errors": "Errors among these labels.",
    "labelled": "Labels of audited verdicts that count, with ties.",
    "repeated": "Audited verdicts left out because their question counts already.",
    "questions": "Questions that the labels which count are of.",
    "ties": "Ties among the labels of audited verdicts.",
    "open": "Audited verdicts that wait for a label.",
    "expired": "Audited verdicts without a label in time.",
}


def of_waiting(shown: Iterable[WaitingFigures]) -> Iterator[GaugeMetricFamily]:
    """Yields the gauges of audits that block later ones; the keys are those of the key file."""
    waiting = _family(
        "audits_waiting",
        "Labels that do not count yet because an earlier audit is open.",
        "calibration",
    )
    oldest = _family(
        "audits_oldest_open_age_seconds",
        "Age of the oldest open audit of a verdict.",
        "calibration",
        "key",
    )
    for figures in shown:
        waiting.add_metric((figures.calibration,), figures.waiting)
        if figures.oldest_key is not None:
            place = (figures.calibration, figures.oldest_key)
            oldest.add_metric(place, figures.oldest_age_s)
    yield from (waiting, oldest)


def of_drift(shown: Iterable[tuple[str, str, DriftStream]]) -> Iterator[GaugeMetricFamily]:
    """Yields the gauges of drift, given the names of sets and streams, and their evidence."""
    evidence = _family(
        "drift_evidence",
        "Evidence of this process that judgments differ from the labeled pairs.",
        "calibration",
        "stream",
    )
    alarm = _family(
        "drift_alarm",
        "Whether the evidence of drift has ever reached 20.",
        "calibration",
        "stream",
    )
    for *place, stream in shown:
        evidence.add_metric(place, stream.evidence)
        alarm.add_metric(place, float(stream.alarm))
    yield from (evidence, alarm)
