"""The Prometheus metrics of the service, on a registry that is passed in.

`/metrics` also shows prometheus_client's global registry: metrics of the process and of vLLM.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal

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

from app.core.comparison import Judgment
from app.core.noise import Noise, Resolution
from app.observability import gauges
from app.observability.gauges import CalibrationFigures, WaitingFigures
from app.observability.usage import UsageByKey
from scope_judge.records import DriftStream, MonitoredCriterion

Stage = Literal["queue", "render", "engine", "decide"]

_SECONDS = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
)
# Up to ln 2, the uncertainty of p_bar = 0.5.
_NATS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.68, 0.69, 0.6932)
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)


class Telemetry:
    """Counts the work of the service; label values come from closed sets and are never texts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._make_metrics_of_judgments()
        self._make_metrics_of_the_service()
        self._make_metrics_of_the_judge()
        self.answers = 0
        self._answered_at = -math.inf
        self.usage = UsageByKey()
        registry.register(gauges.WhenRead(self.usage.metrics))

    def _make_metrics_of_judgments(self) -> None:
        counter = partial(Counter, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        self._judgments = counter(
            "scope_judgments",
            "Judgments, by verdict and reason of an abstention.",
            ["verdict", "reason"],
        )
        self._judgment_errors = counter(
            "scope_judgment_errors",
            "Comparisons that failed, by error code.",
            ["code"],
        )
        self._order_disagreements = counter(
            "scope_order_disagreements",
            "Judgments whose two orders disagree.",
        )
        self.voted_pairs = self.unanimous_pairs = 0
        self._voted_pairs = counter("scope_voted_pairs", "Pairs judged by votes.")
        self._unanimous_pairs = counter(
            "scope_unanimous_pairs",
            "Pairs whose votes are all for one response.",
        )
        self._thoughts = counter(
            "scope_thoughts", "Thoughts of the judge: ended, or unfinished.", ["outcome"]
        )
        self._thought_tokens = counter("scope_thought_tokens", "Tokens of the judge's thoughts.")

        self._escalations = counter(
            "scope_escalations",
            "Comparisons for the large judge of a cascade: answered, unavailable (it did not "
            "answer) or over_share (SCOPE_ESCALATE_MAX_SHARE).",
            ["outcome"],
        )
        self._stale_judgments = counter(
            "scope_stale_judgments",
            "Judgments whose thresholds the store could not confirm.",
        )
        self._uncertainty = histogram(
            "scope_uncertainty_nats",
            "Uncertainty (entropy of p_bar).",
            buckets=_NATS,
        )
        self._position_gap = histogram(
            "scope_position_gap",
            "Effect of the order of the responses, |p_fwd - p_rev|.",
            buckets=_SHARES,
        )
        self._label_mass = histogram(
            "scope_label_mass",
            "Probability of the two label tokens, in the worse order.",
            buckets=_SHARES,
        )

        self._draws = counter(
            "scope_audit_draws",
            "Judgments drawn for an audit.",
        )
        self._missed_draws = counter(
            "scope_audit_draws_missed",
            "Draws that the store did not take.",
        )
        self._refused_draws = counter(
            "scope_audit_draws_refused",
            "Draws not made: 10,000 of the set are open, or the version has 64 other criteria.",
        )

    def _make_metrics_of_the_service(self) -> None:
        counter = partial(Counter, registry=self._registry)
        gauge = partial(Gauge, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        self._prompts = counter(
            "scope_engine_prompts",
            "Prompts that the judge read: two per comparison, or one per response for reward "
            "models.",
        )
        self._large_prompts = counter(
            "scope_large_prompts",
            "Prompts that the large judge of a cascade read.",
        )
        self._engine_errors = counter(
            "scope_engine_errors",
            "Engine calls that failed completely, by error code.",
            ["code"],
        )
        self._store_errors = counter(
            "scope_store_errors",
            "Failed reads of the store, even if judging continued.",
        )
        self._problems = counter(
            "scope_problems",
            "Error responses, by code.",
            ["code"],
        )
        self._request_seconds = histogram(
            "scope_request_duration_seconds",
            "Duration of requests, by route and class of status.",
            ["route", "status"],
            buckets=_SECONDS,
        )
        self._stage_seconds = histogram(
            "scope_stage_duration_seconds",
            "Duration of stages: queue (waiting), render (texts to tokens), engine (model), decide "
            "(thresholds).",
            ["stage"],
            buckets=_SECONDS,
        )
        self._pending = gauge(
            "scope_pending_comparisons",
            "Comparisons in progress.",
        )
        self._pending_limit = gauge(
            "scope_pending_comparisons_limit",
            "Most comparisons in progress at once.",
        )

    def _make_metrics_of_the_judge(self) -> None:
        gauge = partial(Gauge, registry=self._registry)
        self._distinct_gaps = gauge(
            "scope_distinct_gaps",
            "Share of 100 bundled prompts with a unique score.",
        )
        self._noise = gauge(
            "scope_noise_gap",
            "Change of a logit gap with the batch: largest and 95th percentile.",
            ["statistic"],
        )
        self._noise_flips = gauge(
            "scope_noise_flips",
            "Share of 32 bundled pairs whose verdict changes with the batch.",
        )
        # 0 would be a result.
        for unmeasured in (
            self._distinct_gaps,
            self._noise.labels("largest"),
            self._noise.labels("p95"),
            self._noise_flips,
        ):
            unmeasured.set(math.nan)
        self._judge = gauge(
            "scope_judge_info",
            "The judge, in the labels; always 1.",
            ["judge", "fingerprint", "version", "commit"],
        )

    def note_answer(self) -> None:
        """Notes a sign of life of the judge: an answer to one prompt or more."""
        self.answers += 1
        self._answered_at = time.monotonic()

    def forget_answer(self) -> None:
        """Forgets the last sign of life, because the judge has refused since."""
        self._answered_at = -math.inf

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

    def expect_errors(self, *, engine: Iterable[str], problems: Iterable[str]) -> None:
        """Shows these codes as 0 from the start.

        Prometheus sees no increase when a series appears with its first value.
        """
        for code in engine:
            self._engine_errors.labels(code)
        for code in problems:
            self._problems.labels(code)

    def show_judge(self, judge: str, *, fingerprint: str, version: str, commit: str | None) -> None:
        """Shows the judge, its fingerprint, and the version and commit of the service."""
        self._judge.labels(judge, fingerprint, version, commit or "").set(1)

    def show_check(self, resolution: Resolution, noise: Noise) -> None:
        """Shows the outcome of the check of the judge."""
        self._distinct_gaps.set(resolution.share)
        self._noise.labels("largest").set(noise.largest)
        self._noise.labels("p95").set(noise.p95)
        self._noise_flips.set(noise.flip_share)

    def show_calibrations(
        self,
        shown: Callable[[], Iterable[CalibrationFigures]],
        *,
        lost: Callable[[], Sequence[str]],
    ) -> None:
        """Shows the state of calibration sets at each reading of the metrics.

        Args:
            shown: Returns the sets that get gauges; a bounded number, because callers choose names.
            lost: Returns the names of sets that are gone from the store and were not deleted.
        """
        self._registry.register(
            gauges.WhenRead(lambda: gauges.of_calibrations(shown(), lost=lost()))
        )

    def show_monitors(self, shown: Callable[[], Iterable[tuple[str, MonitoredCriterion]]]) -> None:
        """Shows the audits of criteria at each reading of the metrics; a bounded number."""
        self._registry.register(gauges.WhenRead(lambda: gauges.of_monitors(shown())))

    def show_waiting(self, shown: Callable[[], Iterable[WaitingFigures]]) -> None:
        """Shows the audits that hold others up, whenever the metrics are read."""
        self._registry.register(gauges.WhenRead(lambda: gauges.of_waiting(shown())))

    def show_drift(self, shown: Callable[[], Iterable[tuple[str, str, DriftStream]]]) -> None:
        """Shows the evidence of drift at each reading of the metrics; of a bounded number."""
        self._registry.register(gauges.WhenRead(lambda: gauges.of_drift(shown())))

    def show_dropped_lines(self, count: Callable[[], int]) -> None:
        """Shows the number of dropped log lines at each reading of the metrics."""
        text = "Log lines dropped because nobody read the output in time."

        def dropped() -> Iterator[CounterMetricFamily]:
            yield CounterMetricFamily("scope_log_lines_dropped", text, count())

        self._registry.register(gauges.WhenRead(dropped))

    def count_judgment(self, judgment: Judgment) -> None:
        """Counts a judgment."""
        preference = judgment.preference
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

    def count_judgment_error(self, code: str) -> None:
        """Counts a comparison that got an error instead of a judgment."""
        self._judgment_errors.labels(code).inc()

    def count_votes(self, pairs: int, *, unanimous: int) -> None:
        """Counts pairs judged by votes, and those whose votes are all for one response."""
        self.voted_pairs += pairs
        self.unanimous_pairs += unanimous
        self._voted_pairs.inc(pairs)
        self._unanimous_pairs.inc(unanimous)

    def count_thoughts(self, ended: int, unfinished: int, *, tokens: int) -> None:
        """Counts thoughts of a judge, by whether they ended, and their tokens."""
        self._thoughts.labels("ended").inc(ended)
        self._thoughts.labels("unfinished").inc(unfinished)
        self._thought_tokens.inc(tokens)

    def count_escalations(self, *, answered: int, unavailable: int, over_share: int) -> None:
        """Counts comparisons for the large judge of a cascade, by what became of them."""
        self._escalations.labels("answered").inc(answered)
        self._escalations.labels("unavailable").inc(unavailable)
        self._escalations.labels("over_share").inc(over_share)

    def count_large_prompts(self, prompts: int) -> None:
        """Counts prompts that the large judge of a cascade read."""
        self._large_prompts.inc(prompts)

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

    def count_audit_draws(self, *, taken: int = 0, missed: int = 0, refused: int = 0) -> None:
        """Counts draws that the store took, that it did not take, and above the limits."""
        self._draws.inc(taken)
        self._missed_draws.inc(missed)
        self._refused_draws.inc(refused)

    def count_problem(self, code: str) -> None:
        """Counts an error response."""
        self._problems.labels(code).inc()

    def observe_request(self, route: str, status: int, seconds: float) -> None:
        """Counts a request and its duration."""
        self._request_seconds.labels(route, f"{status // 100}xx").observe(seconds)

    def observe_stage(self, stage: Stage, seconds: float) -> None:
        """Counts the duration of one stage of judging."""
        self._stage_seconds.labels(stage).observe(seconds)
