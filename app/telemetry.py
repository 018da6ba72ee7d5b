"""The Prometheus metrics of the service, on a registry that is passed in.

`/metrics` also shows prometheus_client's global registry: metrics of the process and of vLLM.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from app.gauges import (
    CalibrationFigures,
    CalibrationGauges,
    DriftFigures,
    DriftGauges,
    MonitorFigures,
    MonitorGauges,
)

Stage = Literal["queue", "render", "engine", "decide"]

_SECONDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0),
)
# Up to ln 2, the uncertainty of p_bar = 0.5.
_NATS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.68, 0.69, 0.6932)
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)


class JudgmentFigures(NamedTuple):
    """The numbers of one judgment that the metrics count.

    Args:
        verdict: "A", "B" or "abstain".
        reason: Reason of an abstention; None for a verdict.
        uncertainty: Uncertainty in nats.
        p_fwd: Probability that response_a is preferred if it is shown first.
        p_rev: Probability that response_a is preferred if it is shown second.
        label_mass: Probability on the two labels; the smaller one of the two orders.
    """

    verdict: str
    reason: str | None
    uncertainty: float
    p_fwd: float
    p_rev: float
    label_mass: float


M = TypeVar("M", Counter, Histogram)


class _ByLabels(dict[tuple[str, ...], M]):
    """The metrics of one name by their labels, because `labels` takes longer than counting.

    Args:
        labelled: Returns the metric of some labels.
    """

    def __init__(self, labelled: Callable[..., M]) -> None:
        super().__init__()
        self._labelled: Callable[..., M] = labelled

    def __missing__(self, labels: tuple[str, ...]) -> M:
        self[labels] = found = self._labelled(*labels)
        return found


class _Maker:
    """Makes collectors on one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"scope_{name}", text, labels, registry=self._registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"scope_{name}", text, labels, registry=self._registry)

    def histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"scope_{name}", text, labels, buckets=buckets, registry=self._registry)

    def counters(self, name: str, text: str, *labels: str) -> _ByLabels[Counter]:
        return _ByLabels(self.counter(name, text, *labels).labels)

    def histograms(
        self, name: str, text: str, buckets: Sequence[float], *labels: str
    ) -> _ByLabels[Histogram]:
        return _ByLabels(self.histogram(name, text, buckets, *labels).labels)


class Telemetry:
    """Counts the work of the service; label values come from closed sets and are never texts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        make = _Maker(registry)
        self._make_of_judgments(make)
        self._make_of_the_service(make)

    def _make_of_judgments(self, make: "_Maker") -> None:
        self._judgments = make.counters(
            "judgments",
            "Judgments by verdict (A, B, abstain) and reason (empty where accepted).",
            *("verdict", "reason"),
        )
        self._judgment_errors = make.counter(
            "judgment_errors", "Comparisons that got no judgment, by error code.", "code"
        )
        self._order_disagreements = make.counter(
            "order_disagreements", "Judgments whose two orders prefer different responses."
        )
        self._stale_judgments = make.counter(
            "stale_judgments",
            "Judgments made with thresholds that the store could not confirm in time.",
        )
        self._uncertainty = make.histogram(
            "uncertainty_nats", "Uncertainty of judgments: entropy of the average.", _NATS
        )
        self._position_gap = make.histogram(
            "position_gap",
            "Effect of the order of the responses: |p_fwd - p_rev| of judgments.",
            _SHARES,
        )
        self._label_mass = make.histogram(
            "label_mass",
            "Probability on the two label tokens; the smaller one of the two orders.",
            _SHARES,
        )

        self._draws = make.counter("audit_draws", "Judgments that were drawn for an audit.")
        self._missed_draws = make.counter(
            "audit_draws_missed", "Draws of judgments that the store did not take."
        )

    def _make_of_the_service(self, make: "_Maker") -> None:
        self._prompts = make.counter(
            "engine_prompts", "Prompts sent to the engine; two for each comparison."
        )
        self._engine_errors = make.counter(
            "engine_errors",
            "Engine calls that failed for all their prompts, by error code.",
            "code",
        )
        self._store_errors = make.counter(
            "store_errors",
            "Failed reads of the calibration store, also if judging continued without it.",
        )
        self._problems = make.counter("problems", "Error responses by code.", "code")
        self._request_seconds = make.histograms(
            "request_duration_seconds",
            "Duration of whole requests, by route and class of status.",
            _SECONDS,
            *("route", "status"),
        )
        self._stage_seconds = make.histograms(
            "stage_duration_seconds",
            "Duration of the stages of judging: queue (waiting for the model), render (texts to "
            "tokens), engine (the model), decide (thresholds).",
            _SECONDS,
            "stage",
        )
        self._pending = make.gauge(
            "pending_comparisons", "Comparisons that were admitted and are not answered yet."
        )
        self._pending_limit = make.gauge(
            "pending_comparisons_limit", "Most comparisons that may be in progress at once."
        )
        self._judge = make.gauge(
            "judge_info",
            "The loaded judge in the labels; the value is always 1.",
            *("judge", "fingerprint", "version"),
        )

    def exposition(self) -> tuple[bytes, str]:
        """All metrics in Prometheus's text format, and their content type."""
        text = generate_latest(self._registry) + generate_latest(REGISTRY)
        return text, CONTENT_TYPE_LATEST

    @classmethod
    def on_own_registry(cls) -> "Telemetry":
        """Makes an instance on a new registry; the global one accepts each name only once."""
        return cls(CollectorRegistry())

    def expect_errors(self, *, engine: Iterable[str], problems: Iterable[str]) -> None:
        """Shows these codes as 0 from the start.

        Prometheus sees no increase when a series appears with its first value.
        """
        for code in engine:
            self._engine_errors.labels(code)
        for code in problems:
            self._problems.labels(code)

    def show_judge(self, judge: str, *, fingerprint: str, version: str) -> None:
        """Shows the judge, its fingerprint and the version of the service."""
        self._judge.labels(judge, fingerprint, version).set(1)

    def show_calibrations(
        self, shown: Callable[[], Iterable[CalibrationFigures]], *, count: Callable[[], int]
    ) -> None:
        """Shows the state of calibration sets at each reading of the metrics.

        Args:
            shown: Returns the sets that get gauges; a bounded number, because callers choose names.
            count: Returns the number of sets in memory.
        """
        self._registry.register(CalibrationGauges(shown, count))

    def show_monitors(self, shown: Callable[[], Iterable[MonitorFigures]]) -> None:
        """Shows the audits of criteria at each reading of the metrics; a bounded number."""
        self._registry.register(MonitorGauges(shown))

    def show_drift(self, shown: Callable[[], Iterable[DriftFigures]]) -> None:
        """Shows the evidence of drift at each reading of the metrics; of a bounded number."""
        self._registry.register(DriftGauges(shown))

    def show_dropped_lines(self, count: Callable[[], int]) -> None:
        """Shows the number of dropped log lines at each reading of the metrics."""
        self._registry.register(_DroppedLines(count))

    def count_judgment(self, figures: JudgmentFigures) -> None:
        """Counts a judgment."""
        self._judgments[figures.verdict, figures.reason or ""].inc()
        self._uncertainty.observe(figures.uncertainty)
        self._position_gap.observe(abs(figures.p_fwd - figures.p_rev))
        self._label_mass.observe(figures.label_mass)

    def count_order_disagreement(self) -> None:
        """Counts a judgment whose two orders prefer different responses."""
        self._order_disagreements.inc()

    def count_judgment_error(self, code: str) -> None:
        """Counts a comparison that got an error instead of a judgment."""
        self._judgment_errors.labels(code).inc()

    def count_engine_prompts(self, prompts: int) -> None:
        """Counts prompts that are sent to the engine."""
        self._prompts.inc(prompts)

    def count_engine_error(self, code: str) -> None:
        """Counts an engine call that failed for all its prompts."""
        self._engine_errors.labels(code).inc()

    def show_pending(self, comparisons: Callable[[], int], *, limit: int) -> None:
        """Shows how many comparisons are in progress, and how many may be.

        Args:
            comparisons: Returns the number in progress at each reading of the metrics.
            limit: Most comparisons in progress at once.
        """
        self._pending.set_function(comparisons)
        self._pending_limit.set(limit)

    def count_store_error(self) -> None:
        """Counts a failed read of the calibration store."""
        self._store_errors.inc()

    def count_stale_judgments(self, count: int) -> None:
        """Counts judgments with thresholds that the store did not confirm in time."""
        self._stale_judgments.inc(count)

    def count_audit_draws(self, *, taken: int = 0, missed: int = 0) -> None:
        """Counts draws that the store took, and those that it did not take."""
        self._draws.inc(taken)
        self._missed_draws.inc(missed)

    def count_problem(self, code: str) -> None:
        """Counts an error response."""
        self._problems.labels(code).inc()

    def observe_request(self, route: str, status: int, seconds: float) -> None:
        """Counts a request and its duration."""
        self._request_seconds[route, f"{status // 100}xx"].observe(seconds)

    def observe_stage(self, stage: Stage, seconds: float) -> None:
        """Counts the duration of one stage of judging."""
        self._stage_seconds[stage,].observe(seconds)


class _DroppedLines(Collector):
    """The counter of dropped log lines."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yields the counter."""
        text = "Log lines that were dropped because the output was not read in time."
        yield CounterMetricFamily("scope_log_lines_dropped", text, self._count())
