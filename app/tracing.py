"""OpenTelemetry traces: a span for each request, call of the engine and call of the store.

Spans hold names, counts and times, never texts, and of errors only their kind. Where they are sent,
and how many of them, the OTEL_* variables of OpenTelemetry's specification say.
"""

import asyncio
import functools
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from app.core.errors import ScopeJudgeError, StartupError
from app.ports import CalibrationStore, Engine, Prompt, call_times

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

_STORE_CALLS = (
    *("ping", "names", "version", "read", "write", "delete"),
    *("last_number", "revisions", "undos"),
)


# What a caller sends instead may be any text.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Tracing:
    """Makes spans and sends them.

    Args:
        exporter: Where they go; None for the collector that OTEL_EXPORTER_OTLP_ENDPOINT names,
            by OTLP over HTTP.

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
        # In seconds; the default of 10 would be waited for at every stop without a collector.
        os.environ.setdefault("OTEL_EXPORTER_OTLP_TIMEOUT", "3")
        # Retries are no news; that spans were lost is told as an error.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.ERROR)
        self._provider = TracerProvider()
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("scope-judge")

    async def stop(self) -> None:
        """Sends what is left."""
        # Off the event loop: a collector that does not answer is waited for.
        await asyncio.to_thread(self._provider.shutdown)

    @contextmanager
    def request(self, method: str, headers: Mapping[str, str]) -> Iterator["Span"]:
        """The span of one HTTP request, below the caller's where `traceparent` names it.

        Args:
            method: Of the request.
            headers: With names in small letters.
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

    def watch_engine(self, engine: Engine) -> None:
        """Makes a span of each call of an engine."""

        @contextmanager
        def span(prompts: Sequence[Prompt]) -> Iterator[None]:
            with self._span("engine.label_logits") as span:
                span.set_attribute("scope.prompts", len(prompts))
                try:
                    yield
                finally:
                    span.set_attribute("scope.render_s", call_times().render_s)
                    span.set_attribute("scope.queue_s", call_times().queue_s)

        _surround(engine, "label_logits", span)

    def watch_store(self, store: CalibrationStore) -> None:
        """Makes a span of each call of a store."""

        def span_of(call: str) -> Callable[..., AbstractContextManager[object]]:
            return lambda *args, **kwargs: self._span(f"store.{call}")

        for call in _STORE_CALLS:
            _surround(store, call, span_of(call))

    @contextmanager
    def _span(self, name: str) -> Iterator["Span"]:
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


def _surround(
    target: object, call: str, block: Callable[..., AbstractContextManager[object]]
) -> None:
    """Has a coroutine method run in a block that is made of its arguments.

    On the instance, so that whatever else it can do stays as it is.
    """
    method = getattr(target, call)

    @functools.wraps(method)
    async def surrounded(*args: Any, **kwargs: Any) -> Any:
        with block(*args, **kwargs):
            return await method(*args, **kwargs)

    setattr(target, call, surrounded)


def note_answer(span: "Span", method: str, route: str, status: int) -> None:
    """Says in a request's span what became of it."""
    from opentelemetry.trace import Status, StatusCode

    span.update_name(f"{method if method in _METHODS else 'HTTP'} {route}")
    span.set_attribute("http.route", route)
    if not status:
        span.set_attribute("error.type", "client_left")
        return
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(Status(StatusCode.ERROR))
