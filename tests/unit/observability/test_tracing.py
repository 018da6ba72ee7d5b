"""Tests of traces: one for each request, with spans of engine, Redis and servers, no texts."""

import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from app.core.errors import EngineUnavailableError
from app.engines.openai_remote import OpenAiEngine, OpenAiOptions
from app.engines.openai_servers import Endpoints
from app.engines.scripted import ScriptedEngine
from app.main import build
from app.observability.tracing import Tracing
from app.ports import CallTimes, Engine, LabelLogits, Prompt, PromptError, Store
from app.settings import Settings
from app.stores.redis import RedisStore
from app.wiring.engines import DEMO_FOLDER
from app.wiring.services import open_services
from tests.redis_server import RedisServer
from tests.serving import services_of
from tests.unit.api.problems import comparison, examples
from tests.unit.engines.openai_fake import FakeServer, serving

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
async def traced(engine: Engine | None = None, store: Store | None = None) -> AsyncIterator[Traced]:
    """Runs a traced application; all spans are complete only after its end."""
    exporter = InMemorySpanExporter()
    tracing = Tracing(exporter)
    app = build(
        Settings(),
        lambda: services_of(engine, store, tracing=tracing),
        keys=None,
        tracing=tracing,
    )
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")
    async with app.router.lifespan_context(app), client:
        yield Traced(client, exporter)


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


async def test_a_request_and_its_engine_call_are_one_trace_below_the_callers_span() -> None:
    async with traced() as service:
        await service.client.post(
            "/calibrate",
            json={"examples": examples(3)},
            headers={"traceparent": f"00-{TRACE}-{PARENT}-01"},
        )
    spans = {span.name: span for span in service.spans()}
    request, engine = spans["POST /calibrate"], spans["engine.label_logits"]
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == PARENT
    assert trace_of(engine) == TRACE
    assert engine.attributes is not None
    # Three examples in both orders.
    assert engine.attributes["scope.prompts"] == 6
    assert dict(request.attributes or {}) == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "http.route": "/calibrate",
    }


async def test_redis_commands_are_in_the_trace_without_keys_and_values(tmp_path: Path) -> None:
    redis = RedisServer(tmp_path)
    redis.start()
    store = RedisStore(redis.url)
    try:
        async with traced(store=store) as service:
            posted = {"calibration": SECRET, "examples": examples(3)}
            answer = await service.client.post("/calibrate", json=posted)
            assert answer.status_code == 200
    finally:
        await store.close()
        redis.stop()
    (request,) = (span for span in service.spans() if span.name == "POST /calibrate")
    commands = [
        span.name
        for span in service.spans()
        if (span.attributes or {}).get("db.system.name") == "redis"
        and trace_of(span) == trace_of(request)
    ]
    assert {"HMGET", "EVAL"} <= set(commands)
    assert SECRET not in "".join(span.to_json() for span in service.spans())


async def test_a_remote_judge_gets_the_trace() -> None:
    server = FakeServer()
    async with serving(server):
        engine = OpenAiEngine(
            OpenAiOptions(
                endpoints=Endpoints(urls=(server.url,)),
                model="the-judge",
                judge="judge",
                tokenizer=str(DEMO_FOLDER / "model"),
            )
        )
        async with traced(engine) as service:
            await service.client.post("/judge", json=comparison(question=SECRET, alpha=None))
    spans = service.spans()
    (request,) = (span for span in spans if span.name == "POST /judge")
    (call,) = (
        span for span in spans if span.name == "POST" and trace_of(span) == trace_of(request)
    )
    assert dict(call.attributes or {}) == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
    }
    assert server.headers["traceparent"].split("-")[1] == trace_of(request)
    assert SECRET not in "".join(span.to_json() for span in spans)


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


async def test_traces_reach_the_collector_before_the_service_has_stopped(
    collector: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, names = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    settings, tracing = Settings(engine="scripted", store_url="memory://"), Tracing()
    app = build(
        settings,
        lambda: open_services(settings, Quiet(), on_lost=lambda why: None, tracing=tracing),
        keys=None,
        tracing=tracing,
    )
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")
    async with app.router.lifespan_context(app), client:
        assert (await client.post("/judge", json=comparison(alpha=None))).status_code == 200
    assert {"POST /judge", "engine.label_logits"} <= set(names)
