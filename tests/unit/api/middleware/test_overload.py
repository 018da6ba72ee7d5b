"""Tests of overload, deadlines, draining and a failing store: never a wrong verdict."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.api.application import drain
from app.api.keys import Keys
from app.api.middleware import MOST_CONNECTIONS, Gate
from app.core.errors import StoreUnavailableError
from app.judges.engines.scripted import ScriptedEngine
from app.ports import CallTimes, Head, LabelLogits, Prompt, PromptError
from app.stores.memory import MemoryStore
from tests.patience import Clock, until
from tests.serving import application_of
from tests.unit.api.asgi import talk
from tests.unit.api.keyring import entry, write_keys
from tests.unit.api.middleware.test_client_leaving import WaitingEngine
from tests.unit.api.problems import calibrated, comparison, examples, problem

PLAIN = comparison(alpha=None)
# Path -> a function that makes a body with a given number of comparisons.
COUNTED = {
    "/judge/batch": lambda n: {"comparisons": [PLAIN] * n},
    "/calibrate": lambda n: {"examples": examples(n)},
    "/calibrate/scores": lambda n: {"examples": examples(n)},
}


def set_bodies_pending(app: FastAPI, number: int) -> None:
    gate: Any = next(each for each in app.user_middleware if getattr(each, "cls", None) is Gate)
    gate.kwargs["bodies_pending"] = number


@asynccontextmanager
async def opened(
    engine: ScriptedEngine, store: MemoryStore | None = None, **settings: Any
) -> AsyncIterator[tuple[FastAPI, httpx.AsyncClient]]:
    bodies_pending = settings.pop("bodies_pending", None)
    app = application_of(engine, store, **settings)
    if bodies_pending is not None:
        set_bodies_pending(app, bodies_pending)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as client,
    ):
        yield app, client


@pytest.mark.parametrize("path", COUNTED)
async def test_requests_over_the_limit_are_refused_and_admitted_ones_are_answered(
    path: str,
) -> None:
    engine = WaitingEngine()
    async with opened(engine, max_pending=100) as (app, client):
        waiting = [
            asyncio.create_task(client.post(path, json=COUNTED[path](size))) for size in (50, 30)
        ]
        await until(lambda: app.state.services.admission.pending >= 80)
        for refused in [each for each in COUNTED if ("batch" in each) == ("batch" in path)]:
            problem(await client.post(refused, json=COUNTED[refused](9)), "overloaded")
        engine.go_on.set()
        assert [(await each).status_code for each in waiting] == [200, 200]
        assert (await client.post(path, json=COUNTED[path](9))).status_code == 200


async def test_bodies_in_progress_share_a_limit_and_release_it() -> None:
    engine = WaitingEngine()
    body = json.dumps({**PLAIN, "id": "x" * 200, "question": "y" * 700})
    headers = {"Content-Type": "application/json"}

    async def in_chunks() -> AsyncIterator[bytes]:
        yield body.encode()

    async with opened(engine, bodies_pending=1, max_body_bytes=1500) as (_, client):
        waiting = asyncio.create_task(client.post("/judge", content=body, headers=headers))
        await engine.begun.wait()
        # With and without an announced length.
        problem(await client.post("/judge", content=body, headers=headers), "overloaded")
        problem(await client.post("/judge", content=in_chunks(), headers=headers), "overloaded")
        engine.go_on.set()
        assert (await waiting).status_code == 200
        for content in (body, in_chunks(), body):
            answer = await client.post("/judge", content=content, headers=headers)
            assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/judge", "/rewards/group", *COUNTED])
async def test_a_late_request_cancels_the_engine_call_and_writes_nothing(
    path: str,
) -> None:
    engine, store = WaitingEngine(), MemoryStore()
    single = {
        "/judge": PLAIN,
        "/rewards/group": {"alpha": None, "question": "Which?", "responses": ["x", "y"]},
    }
    body = single[path] if path in single else COUNTED[path](3)
    async with opened(engine, store, timeout_s=2.0) as (_, client):
        problem(await client.post(path, json=body), "deadline_exceeded")
        assert engine.cancelled
        assert await store.names() == []
        assert b"scope_pending_comparisons 0.0" in (await client.get("/metrics")).content
        engine.go_on.set()
        assert (await client.post(path, json=body)).status_code == 200


async def test_a_body_that_does_not_arrive_in_time_is_refused() -> None:
    app = application_of(timeout_s=0.05)
    async with app.router.lifespan_context(app):
        sent = await talk(app, "/judge", *[b" "] * 100, pause_s=0.02)
    assert sent[0]["status"] == 504


async def test_one_key_cannot_use_up_the_bytes_of_another(tmp_path: Path) -> None:
    keys = Keys(write_keys(tmp_path / "keys.json", entry("greedy"), entry("other")))
    app = application_of(keys=keys, max_body_bytes=2000)
    set_bodies_pending(app, 2)
    leave, refused = asyncio.Event(), list[int]()

    async def hold(key: str) -> None:
        part = b" " * 1100
        sent = await talk(app, "/judge", part, then=leave.wait, unfinished=True, key=key)
        refused.extend(message["status"] for message in sent if "status" in message)

    async with app.router.lifespan_context(app), asyncio.TaskGroup() as group:
        # Half of 4,000 bytes is enough for one such body, but not for two.
        for key in (*["greedy"] * 5, "other"):
            group.create_task(hold(key))
        await until(lambda: len(refused) >= 4)
        assert refused == [429] * 4
        leave.set()
    # Their bytes are released.
    async with app.router.lifespan_context(app):
        body = json.dumps(PLAIN).encode() + b" " * 1000
        sent = await talk(app, "/judge", body, key="greedy")
    assert sent[0]["status"] == 200


async def test_one_key_cannot_use_up_the_connections_of_another(tmp_path: Path) -> None:
    keys = Keys(write_keys(tmp_path / "keys.json", entry("greedy"), entry("other")))
    app, leave = application_of(keys=keys), asyncio.Event()

    async def half_a_body(key: str) -> list[Any]:
        state = {MOST_CONNECTIONS: 8}
        return await talk(
            app, "/judge", b"{", then=leave.wait, unfinished=True, key=key, state=state
        )

    async with app.router.lifespan_context(app), asyncio.TaskGroup() as group:
        waiting = [group.create_task(half_a_body("greedy")) for _ in range(7)]
        await asyncio.sleep(0)
        assert (await half_a_body("greedy"))[0]["status"] == 429
        waiting.append(group.create_task(half_a_body("other")))
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        leave.set()
    # Their places are released.
    async with app.router.lifespan_context(app):
        assert await half_a_body("greedy") == []


async def test_a_draining_service_is_not_ready_and_still_judges() -> None:
    async with opened(ScriptedEngine()) as (app, client):
        assert "connection" not in (await client.get("/readyz")).headers
        drain(app)
        refused = await client.get("/readyz")
        problem(refused, "draining")
        judged = await client.post("/judge", json=PLAIN)
        assert judged.status_code == 200
        # A proxy must not reuse these connections.
        assert refused.headers["connection"] == judged.headers["connection"] == "close"
        assert (await client.get("/healthz")).status_code == 200


async def test_a_request_still_in_progress_at_the_end_of_draining_gets_503() -> None:
    engine = WaitingEngine()
    app = application_of(engine)
    async with app.router.lifespan_context(app):
        asking = talk(app, "/judge", json.dumps(PLAIN).encode())
        request = asyncio.create_task(asking)
        await engine.begun.wait()
        drain(app)
        request.cancel()
        sent = await request
        assert engine.cancelled
    assert sent[0]["status"] == 503
    assert json.loads(sent[1]["body"])["code"] == "draining"


class FailingStore(MemoryStore):
    """A store that fails while a test wants it."""

    gone = False

    async def head(self, name: str) -> Head | None:
        self._check()
        return await super().head(name)

    async def ping(self) -> None:
        self._check()

    def _check(self) -> None:
        if self.gone:
            raise StoreUnavailableError("gone")


async def test_judging_without_the_store_sends_the_age_of_its_thresholds() -> None:
    store, clock = FailingStore(), Clock()
    async with opened(ScriptedEngine(), store, max_staleness_s=60.0) as (app, client):
        app.state.services.calibrations._clock = clock
        await calibrated(client)
        fresh = await client.post("/judge", json=comparison())
        assert "scope-calibration-age" not in fresh.headers
        assert (await client.get("/readyz")).json() == {"status": "ready"}
        store.gone = True
        clock.now += 41.5
        stale = await client.post("/judge", json=comparison())
        assert stale.headers["scope-calibration-age"] == "42"
        assert stale.json() == fresh.json()
        batch = await client.post("/judge/batch", json={"comparisons": [comparison()]})
        assert batch.headers["scope-calibration-age"] == "42"
        plain = await client.post("/judge", json=PLAIN)
        assert "scope-calibration-age" not in plain.headers
        ready = (await client.get("/readyz")).json()
        assert ready["status"] == "degraded"
        # /readyz needs no key, so its answer does not contain the store's address.
        assert "gone" not in ready["detail"]
        metrics = (await client.get("/metrics")).text
        assert "scope_stale_judgments_total 2.0" in metrics
        problem(
            await client.post("/calibrate", json={"examples": examples(3)}), "store_unavailable"
        )


class CountingEngine(ScriptedEngine):
    """Counts its calls; each call lets other tasks run."""

    calls = 0

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        self.calls += 1
        await asyncio.sleep(0.01)
        return await super().label_logits(prompts, times)


async def test_concurrent_readiness_requests_share_one_probe() -> None:
    engine = CountingEngine()
    async with opened(engine) as (_, client):
        answers = await asyncio.gather(*(client.get("/readyz") for _ in range(50)))
        assert {answer.status_code for answer in answers} == {200}
        assert engine.calls == 1


async def test_the_number_of_criteria_in_a_batch_is_limited() -> None:
    async with opened(ScriptedEngine()) as (_, client):
        await calibrated(client)
        items = [comparison(guarantee="pac", alpha=0.01 + i / 100) for i in range(33)]
        problem(await client.post("/judge/batch", json={"comparisons": items}), "too_many_criteria")
        fine = await client.post("/judge/batch", json={"comparisons": items[:32] * 2})
        assert fine.status_code == 200
