"""The Prometheus metrics of the service, on a registry that is passed in.

`/metrics` also shows prometheus_client's global registry: metrics of the process and of vLLM.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.core.comparison import Case
from app.core.errors import EngineUnavailableError, UnavailableError
from app.core.noise import Noise, Resolution
from app.flow import CURRENT_FLOW
from app.observability import logs
from app.ports import CallTimes

_SECONDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0),
)
# Up to ln 2, the uncertainty of p_bar = 0.5.
_NATS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.68, 0.69, 0.6932)
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)


# One value of a metric that is computed when it is read: its name below, the values of its labels,
# and the number.
Row = tuple[str, Sequence[str], float]
_SET = ("calibration",)
_THRESHOLD = ("calibration", "guarantee", "alpha")
_MONITORED = ("calibration", "guarantee", "alpha", "delta")
_STREAM = ("calibration", "stream")
# Name of a gauge -> its text, and the names of its labels.
_GAUGES: Mapping[str, tuple[str, Sequence[str]]] = {
    "calibration_lost": (
        "1 if a set that this process used is gone from the store and was not deleted.",
        _SET,
    ),
    "calibration_examples": ("Labeled examples of a set.", _SET),
    "calibration_version": ("Version that judgments use.", _SET),
    "calibration_changed_timestamp_seconds": ("Time of the version.", _SET),
    "calibration_unconfirmed_seconds": (
        "Time since the store confirmed the version; 0 while it answers.",
        _SET,
    ),
    "calibration_threshold_nats": (
        "Largest accepted uncertainty; absent if infeasible.",
        _THRESHOLD,
    ),
    "calibration_feasible": ("Whether alpha is feasible.", _THRESHOLD),
    "monitor_evidence": ("Evidence from audits that the error is above alpha.", _MONITORED),
    "monitor_alarm_evidence": ("Evidence at which the alarm starts.", _MONITORED),
    "monitor_alarm": ("Whether the alarm is active.", _MONITORED),
    "monitor_audited": ("Labels that count as evidence.", _MONITORED),
    "monitor_errors": ("Errors among these labels.", _MONITORED),
    "monitor_labelled": ("Labels of audited verdicts that count, with ties.", _MONITORED),
    "monitor_repeated": (
        "Audited verdicts left out because their question counts already.",
        _MONITORED,
    ),
    "monitor_questions": ("Questions that the labels which count are of.", _MONITORED),
    "monitor_open": ("Audited verdicts that wait for a label.", _MONITORED),
    "monitor_expired": ("Audited verdicts without a label in time.", _MONITORED),
    "audits_waiting": ("Labels that do not count yet because an earlier audit is open.", _SET),
    "audits_oldest_open_age_seconds": (
        "Age of the oldest open audit of a verdict.",
        ("calibration", "key"),
    ),
    "drift_evidence": (
        "Evidence of this process that judgments differ from the labeled pairs.",
        _STREAM,
    ),
    "drift_alarm": ("Whether the evidence of drift has ever reached 20.", _STREAM),
}
# The numbers of a criterion that `monitor_...` show, by the names of its fields.
MONITORED = tuple(name.removeprefix("monitor_") for name in _GAUGES if name.startswith("monitor_"))


class _WhenRead(Collector):
    """Collects the metrics of _GAUGES each time they are read."""

    def __init__(self) -> None:
        self.sources: list[Callable[[], Iterable[Row]]] = []

    def describe(self) -> Iterable[Metric]:
        """Returns nothing, so that the registry does not read the sources when it gets this."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Makes the metrics."""
        made = {
            name: GaugeMetricFamily(f"scope_{name}", text, labels=labels)
            for name, (text, labels) in _GAUGES.items()
        }
        for rows in self.sources:
            for name, place, value in rows():
                made[name].add_metric(place, value)
        dropped = "Log lines dropped because nobody read the output in time."
        lost = CounterMetricFamily("scope_log_lines_dropped", dropped, value=logs.dropped_lines())
        return [*made.values(), lost]


class Telemetry:
    """Counts the work of the service; label values come from closed sets and are never texts.

    Whoever does the work counts it, with the metrics that are attributes.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._make_metrics_of_judgments()
        self._make_metrics_of_the_service()
        self._make_metrics_of_the_judge()
        self._when_read = _WhenRead()
        registry.register(self._when_read)
        self.answers = 0
        self._answered_at = -math.inf
        self.since = datetime.now(UTC).replace(microsecond=0)
        # Pairs judged by votes, and those whose votes are all for one response.
        self.voted_pairs = self.unanimous_pairs = 0

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"scope_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"scope_{name}", text, labels, registry=self._registry)

    def _histogram(
        self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = _SECONDS
    ) -> Histogram:
        return Histogram(f"scope_{name}", text, labels, buckets=buckets, registry=self._registry)

    def _make_metrics_of_judgments(self) -> None:
        self._judgments = self._counter(
            "judgments",
            "Judgments, by verdict and reason of an abstention.",
            "verdict",
            "reason",
        )
        self.judgment_errors = self._counter(
            "judgment_errors", "Comparisons that failed, by error code.", "code"
        )
        self._order_disagreements = self._counter(
            "order_disagreements", "Judgments whose two orders disagree."
        )
        self.escalations = self._counter(
            "escalations",
            "Comparisons for the large judge of a cascade: answered, unavailable (it did not "
            "answer) or over_share (SCOPE_ESCALATE_MAX_SHARE).",
            "outcome",
        )
        self.stale_judgments = self._counter(
            "stale_judgments", "Judgments whose thresholds the store could not confirm."
        )
        self._uncertainty = self._histogram(
            "uncertainty_nats", "Uncertainty (entropy of p_bar).", buckets=_NATS
        )
        self._position_gap = self._histogram(
            "position_gap",
            "Effect of the order of the responses, |p_fwd - p_rev|.",
            buckets=_SHARES,
        )
        self._label_mass = self._histogram(
            "label_mass",
            "Probability of the two label tokens, in the worse order.",
            buckets=_SHARES,
        )
        self.audit_draws = self._counter("audit_draws", "Judgments drawn for an audit.")
        self.missed_draws = self._counter(
            "audit_draws_missed", "Draws that the store did not take."
        )
        self.refused_draws = self._counter(
            "audit_draws_refused",
            "Draws not made: 10,000 of the set are open, or the version has 64 other criteria.",
        )

    def _make_metrics_of_the_service(self) -> None:
        self.engine_prompts = self._counter(
            "engine_prompts",
            "Prompts that the judge read: two per comparison, or one per response for reward "
            "models.",
        )
        self.engine_errors = self._counter(
            "engine_errors", "Engine calls that failed completely, by error code.", "code"
        )
        self.store_errors = self._counter(
            "store_errors", "Failed reads of the store, even if judging continued."
        )
        self.problems = self._counter("problems", "Error responses, by code.", "code")
        self.request_seconds = self._histogram(
            "request_duration_seconds",
            "Duration of requests, by route and class of status.",
            "route",
            "status",
        )
        self.stage_seconds = self._histogram(
            "stage_duration_seconds",
            "Duration of stages: queue (waiting), render (texts to tokens), engine (model), decide "
            "(thresholds).",
            "stage",
        )
        self._uses = {
            kind: self._counter(f"key_{kind}", text, "key")
            for kind, text in {
                "comparisons": "Comparisons sent to the judge, for judging or calibration.",
                "prompt_tokens": "Tokens of prompts, in both orders.",
                "verdicts": "Judgments with a verdict.",
                "abstentions": "Judgments without a verdict.",
                "errors": "Comparisons that failed.",
            }.items()
        }
        self._of_key: dict[str, dict[str, Counter]] = {}
        self.pending = self._gauge("pending_comparisons", "Comparisons in progress.")
        self.pending_limit = self._gauge(
            "pending_comparisons_limit", "Most comparisons in progress at once."
        )

    def _make_metrics_of_the_judge(self) -> None:
        self._distinct_gaps = self._gauge(
            "distinct_gaps", "Share of 100 bundled prompts with a unique score."
        )
        self._noise = self._gauge(
            "noise_gap",
            "Change of a logit gap with the batch: largest and 95th percentile.",
            "statistic",
        )
        self._noise_flips = self._gauge(
            "noise_flips", "Share of 32 bundled pairs whose verdict changes with the batch."
        )
        # 0 would be a result.
        for unmeasured in (
            self._distinct_gaps,
            self._noise.labels("largest"),
            self._noise.labels("p95"),
            self._noise_flips,
        ):
            unmeasured.set(math.nan)
        self._judge = self._gauge(
            "judge_info",
            "The judge, in the labels; always 1.",
            *("judge", "fingerprint", "version", "commit"),
        )

    @contextmanager
    def calling(self, times: CallTimes, *, comparisons: int, prompts: int) -> Iterator[None]:
        """Observes the call of a judge's model that the block makes, for the current flow.

        The engine writes into `times` how long its parts take.
        """
        flow = CURRENT_FLOW.get()
        times.on_answer = self.note_answer
        self.engine_prompts.inc(prompts)
        self.count_use(flow.key, comparisons=comparisons)
        rendered_s, begun = times.render_s, time.perf_counter()
        try:
            yield
            times.note_answer()
        except UnavailableError as exc:
            if isinstance(exc, EngineUnavailableError):
                # The judge has refused since its last answer.
                self._answered_at = -math.inf
            self.engine_errors.labels(exc.code).inc()
            raise
        finally:
            self.count_use(flow.key, prompt_tokens=times.prompt_tokens)
            flow.usage.update(engine_prompts=prompts, prompt_tokens=times.prompt_tokens)
            call_s = time.perf_counter() - begun
            # The engine adds its tokenizing to `render_s`; subtract only that part.
            model_s = call_s - (times.render_s - rendered_s) - times.queue_s
            self.stage_seconds.labels("render").observe(times.render_s)
            self.stage_seconds.labels("queue").observe(times.queue_s)
            self.stage_seconds.labels("engine").observe(max(0.0, model_s))

    def note_answer(self) -> None:
        """Notes a sign of life of the judge: an answer to one prompt or more."""
        self.answers += 1
        self._answered_at = time.monotonic()

    @property
    def silent_s(self) -> float:
        """Seconds since the judge's last sign of life, or since the start."""
        return time.monotonic() - self._answered_at

    def exposition(self) -> tuple[bytes, str]:
        """All metrics in Prometheus's text format, and their content type."""
        text = generate_latest(self._registry) + generate_latest(REGISTRY)
        return text, CONTENT_TYPE_LATEST

    @classmethod
    def on_own_registry(cls) -> "Telemetry":
        """Makes an instance on a new registry; the global one accepts each name only once."""
        return cls(CollectorRegistry())

    def show(self, rows: Callable[[], Iterable[Row]]) -> None:
        """Shows these rows at each reading; a bounded number, because callers choose names."""
        self._when_read.sources.append(rows)

    def show_judge(self, judge: str, *, fingerprint: str, version: str, commit: str | None) -> None:
        """Shows the judge, its fingerprint, and the version and commit of the service."""
        self._judge.labels(judge, fingerprint, version, commit or "").set(1)

    def show_check(self, resolution: Resolution, noise: Noise) -> None:
        """Shows the outcome of the check of the judge."""
        self._distinct_gaps.set(resolution.share)
        self._noise.labels("largest").set(noise.largest)
        self._noise.labels("p95").set(noise.p95)
        self._noise_flips.set(noise.flip_share)

    def count_judgment(self, case: Case) -> None:
        """Counts the judgment of a case."""
        judgment, preference = case.judgment, case.preference
        self._judgments.labels(judgment.verdict, judgment.reason or "").inc()
        if preference is None:
            return
        self._uncertainty.observe(preference.uncertainty)
        if judgment.orders == 2:
            self._position_gap.observe(preference.position_gap)
        if judgment.label_mass is not None:
            self._label_mass.observe(judgment.label_mass)
        if preference.orders_disagree:
            self._order_disagreements.inc()

    def count_use(self, key: str, **counts: int) -> None:
        """Counts comparisons, prompt_tokens, verdicts, abstentions or errors for a key.

        Keys come from the key file, so there are few.
        """
        if key not in self._of_key:
            self._of_key[key] = {kind: each.labels(key) for kind, each in self._uses.items()}
        for kind, count in counts.items():
            self._of_key[key][kind].inc(count)

    def uses(self) -> dict[str, dict[str, int]]:
        """The counts of each key since the start of this replica, by the name of the key."""
        found: defaultdict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(self._uses, 0))
        for kind, counter in self._uses.items():
            for sample in next(iter(counter.collect())).samples:
                if sample.name.endswith("_total"):
                    found[sample.labels["key"]][kind] = int(sample.value)
        return found
