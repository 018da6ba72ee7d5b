"""Tests of traces: one for each request, with engine and store spans, without texts."""

import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from app.core.errors import EngineUnavailableError
from app.engines.scripted import ScriptedEngine
from app.main import build
from app.ports import CallTimes, LabelLogits, Prompt, PromptError
from app.service.services import Services
from app.settings import Settings
from app.stores.memory import MemoryStore
from app.tracing import Tracing
from app.wiring.services import open_services
from tests.serving import services_of
from tests.unit.api.problems import comparison, examples

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SECRET = "xyzzy-secret"


class Traced:
    """A client of a traced application, and its spans."""

    def __init__(self, client: httpx.AsyncClient, exporter: InMemorySpanExporter) -> None:
        self.client = client
        self._exporter = exporter

    def spans(self) -> list[ReadableSpan]:
        """The spans in the order in which they ended."""
        return list(self._exporter.get_finished_spans())


@asynccontextmanager
async def traced(engine: ScriptedEngine | None = None) -> AsyncIterator[Traced]:
    """Runs a traced application; all spans are complete only after its end."""
    exporter, engine, store = InMemorySpanExporter(), engine or ScriptedEngine(), MemoryStore()
    tracing = Tracing(exporter)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Services]:
        async with services_of(engine, store, tracing=tracing) as services:
            yield services
        await tracing.stop()

    app = build(Settings(), opened, keys=None)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")
    async with app.router.lifespan_context(app), client:
        yield Traced(client, exporter)


@pytest.mark.anyio
async def test_a_request_engine_and_store_are_one_trace_below_the_callers_span() -> None:
    async with traced() as service:
        await service.client.post(
            "/calibrate",
            json={"examples": examples(3)},
            headers={"traceparent": f"00-{TRACE}-{PARENT}-01"},
        )
    spans = {span.name: span for span in service.spans()}
    request = spans["POST /calibrate"]
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == PARENT
    for name in ("engine.label_logits", "store.version", "store.write"):
        context = spans[name].context
        assert context is not None
        assert f"{context.trace_id:032x}" == TRACE
    engine = spans["engine.label_logits"]
    assert engine.attributes is not None
    # Three examples in both orders.
    assert engine.attributes["scope.prompts"] == 6
    assert request.attributes is not None
    assert request.attributes["http.response.status_code"] == 200


@pytest.mark.anyio
async def test_a_trace_contains_no_text_and_no_unknown_path() -> None:
    async with traced() as service:
        await service.client.post("/judge", json=comparison(question=SECRET, alpha=None))
        await service.client.get(f"/{SECRET}", params={"text": SECRET})
        await service.client.get(f"/calibrations/{SECRET}")
        await service.client.request(SECRET, "/judge")
    assert len(service.spans()) >= 4
    assert SECRET not in "".join(span.to_json() for span in service.spans())


class DeadEngine(ScriptedEngine):
    """An engine that has lost its model."""

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        raise EngineUnavailableError(SECRET)


@pytest.mark.anyio
async def test_an_error_is_recorded_by_its_code_in_its_span() -> None:
    async with traced(DeadEngine()) as service:
        answer = await service.client.post("/judge", json=comparison(alpha=None))
        assert answer.status_code == 503
    spans = {span.name: span for span in service.spans()}
    for name in ("engine.label_logits", "POST /judge"):
        assert spans[name].status.status_code is StatusCode.ERROR
    attributes = spans["engine.label_logits"].attributes
    assert attributes is not None
    assert attributes["error.type"] == "engine_unavailable"
    assert SECRET not in "".join(span.to_json() for span in service.spans())


@pytest.fixture
def collector() -> Iterator[tuple[str, list[str]]]:
    """A collector for OTLP over HTTP: yields its address and the names of received spans."""
    names: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = ExportTraceServiceRequest.FromString(body)
            names.extend(
                span.name
                for resource in request.resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
            )
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", names
        finally:
            server.shutdown()
            thread.join()


class Quiet:
    """Ignores the progress of a start."""

    def stage(self, text: str) -> None: ...

    def warning(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...
    def calibrated(self, done: int, total: int) -> None: ...


@pytest.mark.anyio
async def test_traces_reach_the_collector_before_the_service_has_stopped(
    collector: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, names = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    settings = Settings(engine="scripted", store_url="memory://", traces=True)
    app = build(
        settings,
        lambda: open_services(settings, Quiet(), on_engine_lost=lambda why: None),
        keys=None,
    )
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")
    async with app.router.lifespan_context(app), client:
        assert (await client.post("/judge", json=comparison(alpha=None))).status_code == 200
    assert {"POST /judge", "engine.label_logits"} <= set(names)
