"""The Prometheus gauges of calibration sets, which are read when the metrics are."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


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
        n: Number of labelled examples.
        changed_at: Time when the version was made, in seconds since 1970; None if unknown.
        unconfirmed_s: Seconds since the store last confirmed the version; 0 while it answers.
        thresholds: (guarantee, alpha, lambda_hat in nats); lambda_hat is -inf if infeasible.
        traffic: Recent judgments with this version; None if there were too few.
    """

    name: str
    version: int
    n: int
    changed_at: float | None
    unconfirmed_s: float
    thresholds: Sequence[tuple[str, float, float]]
    traffic: TrafficFigures | None


class MonitorFigures(NamedTuple):
    """The audits of one version and criterion.

    Args:
        calibration: Name of the calibration set.
        guarantee: "marginal" or "pac".
        alpha: Largest promised share of wrong verdicts.
        delta: Delta of "pac"; None for "marginal".
        evidence: Evidence that the error is above alpha.
        alarm: Whether the evidence has reached the level of an alarm.
        certified: Whether labels have shown that the error is at most alpha.
        audited: Number of labels of accepted judgments that count.
        errors: Number of errors that these labels show.
        open: Number of drawn accepted judgments that wait for a label.
        expired: Number of drawn accepted judgments that got no label in time.
    """

    calibration: str
    guarantee: str
    alpha: float
    delta: float | None
    evidence: float
    alarm: bool
    certified: bool
    audited: int
    errors: int
    open: int
    expired: int


class DriftFigures(NamedTuple):
    """The evidence that one value of the judgments by a set has drifted.

    Args:
        calibration: Name of the calibration set.
        stream: "uncertainty", "position_gap" or "label_mass".
        evidence: Evidence of all replicas together.
        alarm: Whether the evidence has reached the level of an alarm.
    """

    calibration: str
    stream: str
    evidence: float
    alarm: bool


class CalibrationGauges(Collector):
    """The gauges of calibration sets."""

    def __init__(
        self, shown: Callable[[], Iterable[CalibrationFigures]], count: Callable[[], int]
    ) -> None:
        self._shown = shown
        self._count = count

    def describe(self) -> list[GaugeMetricFamily]:
        """Returns nothing, because the sets are only known when the metrics are read."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yields the gauges of the shown sets."""
        shown = list(self._shown())
        count = _family("calibrations", "Calibration sets in memory.")
        count.add_metric((), self._count())
        yield count
        yield from _of_versions(shown)
        yield from _of_thresholds(shown)
        yield from _of_traffic(shown)


def _family(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"scope_{name}", text, labels=labels)


def _of_versions(shown: Iterable[CalibrationFigures]) -> tuple[GaugeMetricFamily, ...]:
    n = _family("calibration_examples", "Labelled examples of a set.", "calibration")
    version = _family("calibration_version", "Version that judgments use.", "calibration")
    changed = _family(
        "calibration_changed_timestamp_seconds",
        "Time when the version was made, in seconds since 1970.",
        "calibration",
    )
    unconfirmed = _family(
        "calibration_unconfirmed_seconds",
        "Seconds since the store last confirmed the version; 0 while it answers.",
        "calibration",
    )
    for each in shown:
        n.add_metric((each.name,), each.n)
        version.add_metric((each.name,), each.version)
        unconfirmed.add_metric((each.name,), each.unconfirmed_s)
        if each.changed_at is not None:
            changed.add_metric((each.name,), each.changed_at)
    return n, version, changed, unconfirmed


def _of_thresholds(shown: Iterable[CalibrationFigures]) -> tuple[GaugeMetricFamily, ...]:
    labels = ("calibration", "guarantee", "alpha")
    threshold = _family(
        "calibration_threshold_nats",
        "Largest uncertainty that is accepted at alpha; absent if alpha is infeasible.",
        *labels,
    )
    feasible = _family(
        "calibration_feasible", "Whether anything can be accepted at alpha.", *labels
    )
    for each in shown:
        for guarantee, alpha, value in each.thresholds:
            place = (each.name, guarantee, f"{alpha:.2f}")
            feasible.add_metric(place, float(value > -math.inf))
            if value > -math.inf:
                threshold.add_metric(place, value)
    return threshold, feasible


def _of_traffic(shown: Iterable[CalibrationFigures]) -> tuple[GaugeMetricFamily, ...]:
    abstentions = _family(
        "traffic_abstention_share",
        "Share of abstentions among recent judgments with a set, and among its labelled pairs with "
        "the same thresholds.",
        *("calibration", "of"),
    )
    uncertainty = _family(
        "traffic_uncertainty_nats",
        "Mean uncertainty of recent judgments with a set, and of its labelled pairs.",
        *("calibration", "of"),
    )
    for each in shown:
        traffic = each.traffic
        if traffic is None:
            continue
        uncertainty.add_metric((each.name, "judgments"), traffic.uncertainty)
        uncertainty.add_metric((each.name, "pairs"), traffic.expected_uncertainty)
        if traffic.abstentions is not None and traffic.expected_abstentions is not None:
            abstentions.add_metric((each.name, "judgments"), traffic.abstentions)
            abstentions.add_metric((each.name, "pairs"), traffic.expected_abstentions)
    return abstentions, uncertainty


class MonitorGauges(Collector):
    """The gauges of audits."""

    def __init__(self, shown: Callable[[], Iterable[MonitorFigures]]) -> None:
        self._shown = shown

    def describe(self) -> list[GaugeMetricFamily]:
        """Returns nothing, because the criteria are only known when the metrics are read."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yields the gauges of the shown criteria."""
        families = {
            field: _family(f"monitor_{field}", text, "calibration", "guarantee", "alpha", "delta")
            for field, text in _MONITORED.items()
        }
        for each in self._shown():
            delta = "" if each.delta is None else str(each.delta)
            labels = (each.calibration, each.guarantee, str(each.alpha), delta)
            for field, family in families.items():
                family.add_metric(labels, float(getattr(each, field)))
        yield from families.values()


# Field of `MonitorFigures` -> meaning of its gauge.
_MONITORED = {
    "evidence": "Evidence from audits that the error of accepted verdicts is above alpha.",
    "alarm": "Whether the evidence of an error above alpha has reached 20, once and for ever.",
    "certified": "Whether audits have shown that the error of accepted verdicts is at most alpha.",
    "audited": "Labels of accepted judgments that the evidence counts.",
    "errors": "Errors of accepted verdicts that these labels show.",
    "open": "Drawn accepted judgments that wait for a label.",
    "expired": "Drawn accepted judgments that got no label in time.",
}


class DriftGauges(Collector):
    """The gauges of drift."""

    def __init__(self, shown: Callable[[], Iterable[DriftFigures]]) -> None:
        self._shown = shown

    def describe(self) -> list[GaugeMetricFamily]:
        """Returns nothing, because the sets are only known when the metrics are read."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yields the gauges of the shown sets."""
        labels = ("calibration", "stream")
        evidence = _family(
            "drift_evidence",
            "Evidence of all replicas that judgments by a set are unlike its labelled pairs.",
            *labels,
        )
        alarm = _family(
            "drift_alarm",
            "Whether the evidence of drift has reached 20, once and for ever.",
            *labels,
        )
        for each in self._shown():
            place = (each.calibration, each.stream)
            evidence.add_metric(place, each.evidence)
            alarm.add_metric(place, float(each.alarm))
        yield from (evidence, alarm)
