"""OpenTelemetry traces: one span for each request, engine call and store call.

Spans contain names, counts, times and error codes, and never texts. The OTEL_* variables of
OpenTelemetry's specification set their destination and the sampling.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from app.core.errors import ScopeJudgeError, StartupError
from app.ports import (
    Announcing,
    CallTimes,
    Engine,
    EngineIdentity,
    LabelLogits,
    OnStage,
    Prompt,
    PromptError,
    Store,
    StoredCalibration,
    StoredChange,
    Version,
    no_stage,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

# A caller can send any text as the method; only these are recorded.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class _AnnouncingStore(Store, Announcing, Protocol):
    pass


class Tracing:
    """Makes spans and sends them.

    Args:
        exporter: Destination of the spans; None for the collector at OTEL_EXPORTER_OTLP_ENDPOINT,
            with OTLP over HTTP.

    Raises:
        StartupError: OpenTelemetry is not installed.
    """

    def __init__(self, exporter: "SpanExporter | None" = None) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as exc:
            raise StartupError(
                f"SCOPE_TRACES needs OpenTelemetry ({exc}): install scope-judge[tracing]"
            ) from exc
        os.environ.setdefault("OTEL_SERVICE_NAME", "scope-judge")
        # Seconds. Without a collector every stop would wait for the default of 10 s.
        os.environ.setdefault("OTEL_EXPORTER_OTLP_TIMEOUT", "3")
        # Do not log retries. Lost spans are logged as errors.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.ERROR)
        self._provider = TracerProvider()
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("scope-judge")

    async def stop(self) -> None:
        """Sends the remaining spans."""
        # Off the event loop, because this waits for a collector that does not answer.
        await asyncio.to_thread(self._provider.shutdown)

    @contextmanager
    def request(self, method: str, headers: Mapping[str, str]) -> Iterator["Span"]:
        """Opens the span of one HTTP request, as a child of the span in its `traceparent` header.

        Args:
            method: HTTP method of the request.
            headers: Headers of the request; their names are in lower case.
        """
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        with self._tracer.start_as_current_span(
            "request",
            context=extract(headers),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method if method in _METHODS else "_OTHER"},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield span

    @contextmanager
    def span(self, name: str) -> Iterator["Span"]:
        """Opens a child of the current span; a `ScopeJudgeError` marks it as failed."""
        from opentelemetry.trace import Status, StatusCode

        with self._tracer.start_as_current_span(
            name, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except ScopeJudgeError as exc:
                span.set_attribute("error.type", exc.code)
                span.set_status(Status(StatusCode.ERROR))
                raise


class TracedEngine:
    """Wraps an engine and makes a span of each call.

    Args:
        engine: The started engine.
        tracing: Makes the spans.
    """

    def __init__(self, engine: Engine, tracing: Tracing) -> None:
        self._engine = engine
        self._tracing = tracing

    async def start(self, prompt: Prompt, on_stage: OnStage = no_stage) -> EngineIdentity:
        """Starts the engine."""
        return await self._engine.start(prompt, on_stage)

    async def stop(self) -> None:
        """Stops the engine."""
        await self._engine.stop()

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        """Calls the engine, and records the times in the span."""
        times = times or CallTimes()
        with self._tracing.span("engine.label_logits") as span:
            span.set_attribute("scope.prompts", len(prompts))
            try:
                return await self._engine.label_logits(prompts, times)
            finally:
                span.set_attribute("scope.render_s", times.render_s)
                span.set_attribute("scope.queue_s", times.queue_s)


class TracedStore:
    """Wraps a store and makes a span of each call except `open` and `close`.

    Args:
        store: The wrapped store.
        tracing: Makes the spans.
    """

    def __init__(self, store: Store, tracing: Tracing) -> None:
        self._store = store
        self._tracing = tracing

    async def open(self) -> None:
        """Delegates to the store."""
        await self._store.open()

    async def close(self) -> None:
        """Delegates to the store."""
        await self._store.close()

    async def ping(self) -> None:
        """Delegates to the store."""
        with self._tracing.span("store.ping"):
            await self._store.ping()

    async def names(self) -> list[str]:
        """Delegates to the store."""
        with self._tracing.span("store.names"):
            return await self._store.names()

    async def version(self, name: str) -> Version | None:
        """Delegates to the store."""
        with self._tracing.span("store.version"):
            return await self._store.version(name)

    async def read(self, name: str) -> StoredCalibration | None:
        """Delegates to the store."""
        with self._tracing.span("store.read"):
            return await self._store.read(name)

    async def write(
        self,
        name: str,
        state: StoredCalibration,
        *,
        change: StoredChange,
        expected: Version | None,
        removed: Collection[str] = (),
    ) -> bool:
        """Delegates to the store."""
        with self._tracing.span("store.write"):
            return await self._store.write(
                name, state, change=change, expected=expected, removed=removed
            )

    async def delete(self, name: str, *, change: StoredChange) -> bool:
        """Delegates to the store."""
        with self._tracing.span("store.delete"):
            return await self._store.delete(name, change=change)

    async def last_number(self, name: str) -> int:
        """Delegates to the store."""
        with self._tracing.span("store.last_number"):
            return await self._store.last_number(name)

    async def records(self, name: str, *, before: int | None, limit: int) -> list[str]:
        """Delegates to the store."""
        with self._tracing.span("store.records"):
            return await self._store.records(name, before=before, limit=limit)

    async def undos(self, name: str, *, before: int | None, limit: int) -> dict[int, str]:
        """Delegates to the store."""
        with self._tracing.span("store.undos"):
            return await self._store.undos(name, before=before, limit=limit)

    async def secret(self) -> bytes:
        """Delegates to the store."""
        with self._tracing.span("store.secret"):
            return await self._store.secret()

    async def append_audits(self, entries: Sequence[str], *, synced: bool = True) -> int:
        """Delegates to the store."""
        with self._tracing.span("store.append_audits"):
            return await self._store.append_audits(entries, synced=synced)

    async def audits(self, *, after: int, limit: int) -> list[tuple[int, str]]:
        """Delegates to the store."""
        with self._tracing.span("store.audits"):
            return await self._store.audits(after=after, limit=limit)

    async def last_audit(self) -> int:
        """Delegates to the store."""
        with self._tracing.span("store.last_audit"):
            return await self._store.last_audit()

    async def put_evidence(self, name: str, replica: str, text: str) -> None:
        """Delegates to the store."""
        with self._tracing.span("store.put_evidence"):
            await self._store.put_evidence(name, replica, text)

    async def evidence(self, name: str) -> dict[str, str]:
        """Delegates to the store."""
        with self._tracing.span("store.evidence"):
            return await self._store.evidence(name)


class _TracedAnnouncingStore(TracedStore):
    """A traced store that announces changes; listening is one long wait, so it gets no span."""

    _store: _AnnouncingStore

    def changed_names(self) -> AsyncGenerator[str | None]:
        """Delegates to the store."""
        return self._store.changed_names()


def traced_store(store: Store, tracing: Tracing) -> Store:
    """Wraps a store with spans; the result announces changes if the store does."""
    kind = _TracedAnnouncingStore if isinstance(store, Announcing) else TracedStore
    return kind(store, tracing)


def note_answer(span: "Span", method: str, route: str, status: int) -> None:
    """Records route and status in a request's span; status 0 means that the client left."""
    from opentelemetry.trace import Status, StatusCode

    span.update_name(f"{method if method in _METHODS else 'HTTP'} {route}")
    span.set_attribute("http.route", route)
    if not status:
        span.set_attribute("error.type", "client_left")
        return
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(Status(StatusCode.ERROR))
