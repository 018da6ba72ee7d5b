"""The metrics that are computed when they are read: a name, the values of its labels, a number."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

# One value of a metric: its name below, the values of its labels, and the number.
Row = tuple[str, Sequence[str], float]


class _Shown(NamedTuple):
    text: str
    labels: Sequence[str] = ()
    kind: Literal["gauge", "counter"] = "gauge"


_SET = ("calibration",)
_THRESHOLD = ("calibration", "guarantee", "alpha")
_TRAFFIC = ("calibration", "of")
_MONITORED = ("calibration", "guarantee", "alpha", "delta")
_STREAM = ("calibration", "stream")
_METRICS: Mapping[str, _Shown] = {
    "calibration_lost": _Shown(
        "1 if a set that this process used is gone from the store and was not deleted.", _SET
    ),
    "calibration_examples": _Shown("Labeled examples of a set.", _SET),
    "calibration_version": _Shown("Version that judgments use.", _SET),
    "calibration_changed_timestamp_seconds": _Shown("Time of the version.", _SET),
    "calibration_unconfirmed_seconds": _Shown(
        "Time since the store confirmed the version; 0 while it answers.", _SET
    ),
    "calibration_threshold_nats": _Shown(
        "Largest accepted uncertainty; absent if infeasible.", _THRESHOLD
    ),
    "calibration_feasible": _Shown("Whether alpha is feasible.", _THRESHOLD),
    "traffic_abstention_share": _Shown(
        "Share of abstentions in recent judgments, and in the labeled pairs.", _TRAFFIC
    ),
    "traffic_uncertainty_nats": _Shown(
        "Mean uncertainty of recent judgments, and of the labeled pairs.", _TRAFFIC
    ),
    "monitor_evidence": _Shown("Evidence from audits that the error is above alpha.", _MONITORED),
    "monitor_alarm_evidence": _Shown("Evidence at which the alarm starts.", _MONITORED),
    "monitor_alarm": _Shown("Whether the alarm is active.", _MONITORED),
    "monitor_audited": _Shown("Labels that count as evidence.", _MONITORED),
    "monitor_errors": _Shown("Errors among these labels.", _MONITORED),
    "monitor_labelled": _Shown("Labels of audited verdicts that count, with ties.", _MONITORED),
    "monitor_repeated": _Shown(
        "Audited verdicts left out because their question counts already.", _MONITORED
    ),
    "monitor_questions": _Shown("Questions that the labels which count are of.", _MONITORED),
    "monitor_open": _Shown("Audited verdicts that wait for a label.", _MONITORED),
    "monitor_expired": _Shown("Audited verdicts without a label in time.", _MONITORED),
    "audits_waiting": _Shown(
        "Labels that do not count yet because an earlier audit is open.", _SET
    ),
    "audits_oldest_open_age_seconds": _Shown(
        "Age of the oldest open audit of a verdict.", ("calibration", "key")
    ),
    "drift_evidence": _Shown(
        "Evidence of this process that judgments differ from the labeled pairs.", _STREAM
    ),
    "drift_alarm": _Shown("Whether the evidence of drift has ever reached 20.", _STREAM),
    "key_comparisons": _Shown(
        "Comparisons sent to the judge, for judging or calibration.", ("key",), "counter"
    ),
    "key_prompt_tokens": _Shown("Tokens of prompts, in both orders.", ("key",), "counter"),
    "key_verdicts": _Shown("Judgments with a verdict.", ("key",), "counter"),
    "key_abstentions": _Shown("Judgments without a verdict.", ("key",), "counter"),
    "key_errors": _Shown("Comparisons that failed.", ("key",), "counter"),
    "log_lines_dropped": _Shown(
        "Log lines dropped because nobody read the output in time.", (), "counter"
    ),
}
# The numbers of a criterion that `monitor_...` show, by the names of its fields.
MONITORED = tuple(name.removeprefix("monitor_") for name in _METRICS if name.startswith("monitor_"))


class WhenRead(Collector):
    """Collects rows each time the metrics are read."""

    def __init__(self) -> None:
        self.sources: list[Callable[[], Iterable[Row]]] = []

    def describe(self) -> Iterable[Metric]:
        """Returns nothing, so that the registry does not read the sources when it gets this."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Makes the metrics."""
        made: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for name, (text, labels, kind) in _METRICS.items():
            family = GaugeMetricFamily if kind == "gauge" else CounterMetricFamily
            made[name] = family(f"scope_{name}", text, labels=labels)
        for rows in self.sources:
            for name, place, value in rows():
                made[name].add_metric(place, value)
        return made.values()
