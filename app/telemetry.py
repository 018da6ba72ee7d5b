"""Every Prometheus collector of the service, on a registry that is passed in."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Telemetry:
    """Counts what the service does; label values are closed sets, never texts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"scope_{name}", text, labels, registry=registry)

        self._judgments = counter(
            "judgments",
            "Judgments by verdict (A, B, abstain) and reason (empty where accepted).",
            *("verdict", "reason"),
        )
        self._judgment_errors = counter(
            "judgment_errors", "Comparisons that got no judgment, by error code.", "code"
        )
        self._order_disagreements = counter(
            "order_disagreements", "Judgments whose two orders prefer different responses."
        )
        self._stale_judgments = counter(
            "stale_judgments",
            "Judgments made with thresholds that the store could not confirm in time.",
        )
        self._prompts = counter("engine_prompts", "Prompts sent to the engine, two a comparison.")
        self._engine_errors = counter(
            "engine_errors", "Engine calls that answered no prompt at all, by error code.", "code"
        )
        self._store_errors = counter(
            "store_errors",
            "Reads of the calibration store that failed, also where judging went on.",
        )
        self._problems = counter("problems", "Error responses by code.", "code")
        self._engine_seconds = Histogram(
            "scope_engine_call_seconds",
            "Duration of one batched engine call.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._pending = Gauge(
            "scope_pending_comparisons",
            "Comparisons that were admitted and are not answered yet.",
            registry=registry,
        )

    def exposition(self) -> tuple[bytes, str]:
        """All metrics as Prometheus reads them, and their content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    @classmethod
    def on_own_registry(cls) -> "Telemetry":
        """On a registry of its own: the global one takes each name once in a process."""
        return cls(CollectorRegistry())

    def count_judgment(self, verdict: str, reason: str | None) -> None:
        """Counts a judgment."""
        self._judgments.labels(verdict, reason or "").inc()

    def count_order_disagreement(self) -> None:
        """Counts a judgment whose two orders prefer different responses."""
        self._order_disagreements.inc()

    def count_judgment_error(self, code: str) -> None:
        """Counts a comparison that got an error instead of a judgment."""
        self._judgment_errors.labels(code).inc()

    def count_engine_error(self, code: str) -> None:
        """Counts an engine call that answered nothing."""
        self._engine_errors.labels(code).inc()

    def show_pending(self, comparisons: int) -> None:
        """Shows how many comparisons are under way."""
        self._pending.set(comparisons)

    def count_store_error(self) -> None:
        """Counts a call that the store did not answer."""
        self._store_errors.inc()

    def count_stale_judgments(self, count: int) -> None:
        """Counts judgments that went on without the store."""
        self._stale_judgments.inc(count)

    def count_problem(self, code: str) -> None:
        """Counts an error response."""
        self._problems.labels(code).inc()

    @contextmanager
    def time_engine(self, prompts: int) -> Iterator[None]:
        """Measures one engine call over this many prompts."""
        self._prompts.inc(prompts)
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._engine_seconds.observe(time.perf_counter() - begun)
