"""Traces of requests, Redis commands, calls of remote judges and calls of the engine.

OpenTelemetry's own instrumentation makes the spans, except those of the engine. Spans contain
names, counts, times and error codes, and never texts. The OTEL_* variables of OpenTelemetry's
specification set their destination and the sampling.
"""

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from app.core.errors import ScopeJudgeError, StartupError
from app.ports import CallTimes

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

# The attributes that leave the process. Instrumentation also records paths, queries, hosts and
# headers, into which a caller can put anything.
_ATTRIBUTES = frozenset(
    {
        "db.operation.name",
        "db.redis.pipeline_length",
        "db.system.name",
        "error.type",
        "http.request.method",
        "http.response.status_code",
        "http.route",
        "scope.prompts",
        "scope.queue_s",
        "scope.render_s",
    }
)


class Tracing:
    """Makes spans and sends them.

    Args:
        exporter: Destination of the spans; None for the collector at OTEL_EXPORTER_OTLP_ENDPOINT,
            with OTLP over HTTP.

    Raises:
        StartupError: OpenTelemetry is not installed.
    """

    def __init__(self, exporter: "SpanExporter | None" = None) -> None:
        os.environ.setdefault("OTEL_SERVICE_NAME", "scope-judge")
        # Names of attributes: today's conventions instead of the first ones.
        os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http,database")
        # Seconds. Without a collector every stop would wait for the default of 10 s.
        os.environ.setdefault("OTEL_EXPORTER_OTLP_TIMEOUT", "3")
        # Do not log retries. Lost spans are logged as errors.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.ERROR)
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
            from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
            from opentelemetry.instrumentation.redis import RedisInstrumentor
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as exc:
            raise StartupError(
                f"SCOPE_TRACES needs OpenTelemetry ({exc}): install scope-judge[tracing]"
            ) from exc

        class Processor(BatchSpanProcessor):
            def on_end(self, span: "ReadableSpan") -> None:
                super().on_end(_without_texts(span))

        self._provider = TracerProvider()
        self._provider.add_span_processor(Processor(exporter or OTLPSpanExporter()))
        self._of_requests = FastAPIInstrumentor()
        self._of_clients = (RedisInstrumentor(), HTTPXClientInstrumentor())

    def instrument(self, application: Any) -> None:
        """Makes spans of a FastAPI application's requests, and of this process's clients.

        Call it before the application's start, and for one application of a process at a time.
        """
        self._of_requests.instrument_app(
            application, tracer_provider=self._provider, exclude_spans=["receive", "send"]
        )
        for clients in self._of_clients:
            clients.instrument(tracer_provider=self._provider)

    @contextmanager
    def engine_call(self, prompts: int, times: CallTimes) -> Iterator[None]:
        """Opens the span of an engine call, and records its times when it ends."""
        tracer = self._provider.get_tracer("scope-judge")
        with tracer.start_as_current_span("engine.label_logits") as span:
            span.set_attribute("scope.prompts", prompts)
            try:
                yield
            except ScopeJudgeError as exc:
                span.set_attribute("error.type", exc.code)
                raise
            finally:
                span.set_attribute("scope.render_s", times.render_s)
                span.set_attribute("scope.queue_s", times.queue_s)

    async def stop(self) -> None:
        """Sends the remaining spans."""
        for clients in self._of_clients:
            clients.uninstrument()
        # Off the event loop, because this waits for a collector that does not answer.
        await asyncio.to_thread(self._provider.shutdown)


def _without_texts(span: "ReadableSpan") -> "ReadableSpan":
    """The span without events and messages of exceptions, and with the known attributes only."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Status

    attributes = span.attributes or {}
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes={key: attributes[key] for key in _ATTRIBUTES & attributes.keys()},
        links=span.links,
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
