"""The Prometheus metrics of the service, on a registry that is passed in.

`/metrics` also shows prometheus_client's global registry: metrics of the process and of vLLM.
"""

import math
import time
from collections.abc import Callable, Iterable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from app.core.comparison import Judgment
from app.core.noise import Noise, Resolution
from app.observability.gauges import Row, WhenRead
from app.observability.usage import UsageByKey

_SECONDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0),
)
# Up to ln 2, the uncertainty of p_bar = 0.5.
_NATS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.68, 0.69, 0.6932)
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)


class Telemetry:
    """Counts the work of the service; label values come from closed sets and are never texts.

    Whoever does the work counts it, with the metrics that are attributes.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._make_metrics_of_judgments()
        self._make_metrics_of_the_service()
        self._make_metrics_of_the_judge()
        self._when_read = WhenRead()
        registry.register(self._when_read)
        self.answers = 0
        self._answered_at = -math.inf
        self.usage = UsageByKey()
        self.show(self.usage.metrics)

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
