"""Each outcome through every route: no verdict stays no verdict, and an error stays an error."""

import asyncio
import base64
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.keys import Keys
from app.core.errors import EngineUnavailableError, OverloadedError, StoreUnavailableError
from app.judges.engines.scripted import ScriptedEngine
from app.ports import Head, LabelLogits, Prompt
from app.stores.memory import MemoryStore
from tests.serving import client_of
from tests.unit.api.keyring import entry, key_of, write_keys
from tests.unit.api.middleware.test_client_leaving import WaitingEngine
from tests.unit.api.problems import calibrated, comparison, hard_examples, problem
from tests.unit.api.rewards.reward_routes import ROUTES, request, script
from tests.unit.clients.adapters.scenes import NONE, SCENES, SOFT, Found, Scene

# In the set "hard", the judge is wrong on half of the close pairs.
OUTCOMES: dict[str, Scene] = {
    **SCENES,
    "worse, soft": Scene("quality=0", "quality=2", {"reward": "soft"}, Found(-SOFT, None)),
    "no preference, soft": Scene(
        "quality=1", "quality=1.0", {"reward": "soft", "alpha": None}, NONE
    ),
    "blank, soft": Scene(" \n", "quality=1", {"reward": "soft"}, Found(-1.0, None)),
    "kept thought": Scene(
        "<think>quality=9</think>", "quality=3", {"thoughts": "keep"}, Found(1.0, None)
    ),
    "only a thought": Scene("<think>quality=9", "quality=1", {}, Found(-1.0, None)),
    "too long, always answered": Scene("ENDLESS", "x", {"alpha": None}, Found(None, "failed")),
}


@pytest.fixture(scope="module")
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """A client of a calibrated service; judging and rewarding do not change it."""
    async with client_of(ScriptedEngine(script)) as client:
        await calibrated(client)
        body = {"calibration": "hard", "examples": hard_examples()}
        assert (await client.post("/calibrate", json=body)).status_code == 200
        yield client


@pytest.mark.parametrize("name", OUTCOMES)
@pytest.mark.parametrize("route", ROUTES)
async def test_an_outcome_is_the_same_through_every_route(
    client: httpx.AsyncClient, route: str, name: str
) -> None:
    a, b, options, expected = OUTCOMES[name]
    response = await client.post(**request(ROUTES[route], a, b, **options))
    assert response.status_code == 200, response.text
    found = ROUTES[route].read(response.json())
    assert found.reason == expected.reason
    assert found.number == (None if expected.number is None else pytest.approx(expected.number))


def raises(error: Exception) -> Callable[[Prompt], LabelLogits]:
    def failing(prompt: Prompt) -> LabelLogits:
        raise error

    return failing


class GoneStore(MemoryStore):
    """A store that does not answer."""

    async def head(self, name: str) -> Head | None:
        raise StoreUnavailableError("gone")


PLAIN = {"alpha": None}
# Error -> engine, store, options and settings.
FAILURES: dict[str, tuple[ScriptedEngine, MemoryStore | None, dict[str, Any], dict[str, Any]]] = {
    "engine_unavailable": (
        ScriptedEngine(raises(EngineUnavailableError("down"))),
        None,
        PLAIN,
        {},
    ),
    "overloaded": (ScriptedEngine(raises(OverloadedError("full"))), None, PLAIN, {}),
    "deadline_exceeded": (ScriptedEngine(latency_s=3600.0), None, PLAIN, {"timeout_s": 0.05}),
    "judgment_failed": (
        ScriptedEngine(lambda prompt: LabelLogits(math.nan, math.nan)),
        None,
        PLAIN,
        {},
    ),
    "store_unavailable": (ScriptedEngine(), GoneStore(), {}, {}),
    "calibration_not_found": (ScriptedEngine(), None, {"calibration": "absent"}, {}),
    "internal": (ScriptedEngine(raises(ZeroDivisionError())), None, PLAIN, {}),
}


@pytest.mark.parametrize("code", FAILURES)
@pytest.mark.parametrize("route", ROUTES)
async def test_a_failure_of_the_service_is_a_status_and_no_reward(route: str, code: str) -> None:
    engine, store, options, settings = FAILURES[code]
    async with client_of(engine, store, **settings) as client:
        answer = await client.post(**request(ROUTES[route], "quality=1", "quality=0", **options))
        problem(answer, code)


BAD_OPTIONS: dict[str, dict[str, Any]] = {
    "alpha": {"alpha": 2},
    "guarantee": {"guarantee": "none"},
    "delta": {"delta": 0.1},
    "calibration": {"calibration": "a/b"},
    "reward": {"reward": "medium"},
    "empty": {"empty": "wins"},
    "thoughts": {"thoughts": "hide"},
    "opponent": {"opponent": 3},
}


@pytest.mark.parametrize("field", BAD_OPTIONS)
@pytest.mark.parametrize("route", ROUTES)
async def test_a_wrong_option_is_named(client: httpx.AsyncClient, route: str, field: str) -> None:
    answer = await client.post(**request(ROUTES[route], "a", "b", **BAD_OPTIONS[field]))
    body = problem(answer, "invalid_request")
    assert [fault["field"] for fault in body["errors"]] == [field]


def basic(credentials: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}"}


@pytest.mark.parametrize("route", ROUTES)
async def test_a_key_is_accepted_as_the_password_of_a_url(route: str, tmp_path: Path) -> None:
    keys = Keys(write_keys(tmp_path / "keys.json", entry("judge"), entry("reader", [])))
    async with client_of(keys=keys) as client:
        sent = request(ROUTES[route], "quality=1", "quality=0", **PLAIN)
        for user in ("x", "", "any name"):
            answer = await client.post(**sent, headers=basic(f"{user}:{key_of('judge')}"))
            assert answer.status_code == 200
        # As an HTTP client makes it of http://x:KEY@host.
        answer = await client.post(**sent, auth=("x", key_of("judge")))
        assert answer.status_code == 200
        forbidden = await client.post(**sent, headers=basic(f"x:{key_of('reader')}"))
        problem(forbidden, "forbidden")
        for credentials in ("x:wrong", f"{key_of('judge')}:x", f"x:{key_of('judge')}:y"):
            refused = await client.post(**sent, headers=basic(credentials))
            problem(refused, "unauthenticated")
            # A browser must not ask for a password.
            assert refused.headers["www-authenticate"].startswith('Bearer realm="scope-judge"')
            assert "Basic" not in refused.headers["www-authenticate"]
        for credentials in (f"x{key_of('judge')}", "x:", ":"):
            problem(await client.post(**sent, headers=basic(credentials)), "unauthenticated")
        for value in ("Basic", "Basic !", "Basic \xff", f"Basic {key_of('judge')}"):
            refused = await client.post(**sent, headers=[(b"authorization", value.encode())])
            problem(refused, "unauthenticated")
            assert key_of("judge") not in refused.text


@pytest.mark.parametrize("route", ROUTES)
async def test_a_reward_waits_for_its_place_and_a_judgment_is_refused(route: str) -> None:
    engine = WaitingEngine()
    async with client_of(engine, max_pending=1) as client:
        first = asyncio.create_task(client.post("/judge", json=comparison(alpha=None)))
        await engine.begun.wait()
        sent = request(ROUTES[route], "quality=1", "quality=0", **PLAIN)
        waiting = asyncio.create_task(client.post(**sent))
        problem(await client.post("/judge", json=comparison(alpha=None)), "overloaded")
        assert not waiting.done()
        engine.go_on.set()
        assert (await first).status_code == 200
        answer = await waiting
        assert answer.status_code == 200
        assert ROUTES[route].read(answer.json()) == (1.0, None)
        assert b"scope_pending_comparisons 0.0" in (await client.get("/metrics")).content


@pytest.mark.parametrize("route", ROUTES)
async def test_a_comparison_counts_as_a_judgment_and_a_rule_does_not(route: str) -> None:
    async with client_of(ScriptedEngine(script)) as client:
        for a in ("quality=1", "", "quality=0", "ENDLESS"):
            sent = request(ROUTES[route], a, "quality=0", **PLAIN)
            assert (await client.post(**sent)).status_code == 200
        metrics = (await client.get("/metrics")).text
        assert 'scope_judgments_total{reason="",verdict="A"} 1.0' in metrics
        assert 'scope_judgment_errors_total{code="prompt_too_long"} 1.0' in metrics
        assert "scope_engine_prompts_total 4.0" in metrics
        assert f'route="{ROUTES[route].path}",status="2xx"' in metrics.replace("le=", "")
