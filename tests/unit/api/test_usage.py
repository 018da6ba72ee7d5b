"""Tests of the use of keys: what is counted, who sees it, and the limits of a key."""

from pathlib import Path

import httpx

from app.api.keys import Keys
from tests.serving import client_of
from tests.unit.api.keyring import entry, header_of, write_keys
from tests.unit.api.problems import comparison, examples, problem
from tests.unit.api.rewards.reward_routes import ROUTES

PLAIN = comparison(alpha=None)
NOTHING = {"comparisons": 0, "prompt_tokens": 0, "verdicts": 0, "abstentions": 0, "errors": 0}


async def rows(client: httpx.AsyncClient, name: str | None = None) -> dict[str, dict[str, int]]:
    answer = await client.get("/usage", headers=header_of(name) if name else None)
    return {row.pop("key"): row for row in answer.json()["keys"]}


async def test_each_key_sees_its_own_use_and_an_admin_sees_all(tmp_path: Path) -> None:
    entries = [
        entry("a", ["judge", "calibrate"]),
        entry("b", ["judge"]),
        entry("c", []),
        entry("boss", ["admin"]),
        entry("prometheus", ["metrics"]),
    ]
    async with client_of(keys=Keys(write_keys(tmp_path / "keys.json", *entries))) as client:
        body = {"examples": examples(30)}
        assert (await client.post("/calibrate", json=body, headers=header_of("a"))).is_success
        unsure = PLAIN | {"response_a": "quality=1", "response_b": "quality=1"}
        batch = {"comparisons": [PLAIN, unsure, comparison(calibration="unknown"), {}]}
        assert (await client.post("/judge/batch", json=batch, headers=header_of("b"))).is_success
        assert await rows(client, "b") == {
            # The last item was not valid, and the one before had no calibration.
            "b": {**NOTHING, "comparisons": 2, "verdicts": 1, "abstentions": 1, "errors": 2}
        }
        assert await rows(client, "c") == {"c": NOTHING}
        every = await rows(client, "boss")
        assert every["a"] == {**NOTHING, "comparisons": 30}
        assert every["b"]["verdicts"] == 1
        metrics = (await client.get("/metrics", headers=header_of("prometheus"))).text
        assert 'scope_key_comparisons_total{key="a"} 30.0' in metrics
        assert 'scope_key_errors_total{key="b"} 2.0' in metrics


async def test_health_checks_count_for_nobody() -> None:
    async with client_of() as client:
        assert (await client.get("/readyz")).is_success
        counted = await rows(client)
        assert counted["service"]["comparisons"] == 1
        assert counted.get("anonymous", NOTHING) == NOTHING


async def test_a_key_over_its_limit_gets_429(tmp_path: Path) -> None:
    limited = entry("limited") | {"comparisons_per_minute": 3}
    keys = Keys(write_keys(tmp_path / "keys.json", limited, entry("other")))
    async with client_of(keys=keys) as client:
        batch = {"comparisons": [PLAIN] * 4}
        sent = await client.post("/judge/batch", json=batch, headers=header_of("limited"))
        assert sent.is_success
        late = await client.post("/judge", json=PLAIN, headers=header_of("limited"))
        problem(late, "rate_limited")
        assert 35 <= int(late.headers["retry-after"]) <= 40
        for route in ROUTES.values():
            body = route.body("good", "bad")
            refused = await client.post(route.path, json=body, headers=header_of("limited"))
            problem(refused, "rate_limited")
        # Reading costs nothing, and other keys are not affected.
        assert (await client.get("/info", headers=header_of("limited"))).is_success
        assert (await client.post("/judge", json=PLAIN, headers=header_of("other"))).is_success
