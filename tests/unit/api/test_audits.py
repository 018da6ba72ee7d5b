"""Tests of audits through HTTP: draws in judgments, their list, their labels, absorption."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from app.api.keys import Keys
from app.judges.engines.scripted import ScriptedEngine
from app.stores.memory import MemoryStore
from tests.serving import client_of
from tests.unit.api.keyring import entry, header_of, write_keys
from tests.unit.api.problems import calibrated, comparison, problem

UNKNOWN = "0" * 32
ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


async def drawn(
    client: httpx.AsyncClient, numbers: Sequence[int], headers: Any = None, **fields: Any
) -> list[str]:
    """Judges pairs of these numbers, and returns the ids of their audits."""
    pairs = [comparison(question=f"Traffic {number}?", **fields) for number in numbers]
    response = await client.post("/judge/batch", json={"comparisons": pairs}, headers=headers)
    return [each["audit"]["id"] for each in response.json()["results"]]


async def judge(client: httpx.AsyncClient, number: int) -> Any:
    pair = comparison(question=f"Traffic {number}?")
    return (await client.post("/judge", json=pair)).raise_for_status().json()


async def send(client: httpx.AsyncClient, labels: dict[str, str], headers: Any = None) -> Any:
    rows = [{"id": each, "label": label} for each, label in labels.items()]
    return await client.post("/audits/labels", json={"labels": rows}, headers=headers)


async def counts(client: httpx.AsyncClient, labels: dict[str, str]) -> tuple[Any, ...]:
    answer = (await send(client, labels)).json()
    names = ("labelled", "updated", "unchanged", "unknown", "expired", "unknown_ids", "expired_ids")
    assert tuple(answer) == (names[0], "closed", *names[1:], "earlier")
    assert (answer.pop("closed"), answer.pop("earlier")) == (0, [])
    return tuple(answer.values())


async def listed(client: httpx.AsyncClient, query: str = "", headers: Any = None) -> Any:
    response = await client.get(f"/audits{query}", headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


async def absorbed(client: httpx.AsyncClient, **body: Any) -> httpx.Response:
    """Absorbs the labeled audits of the set."""
    return await client.post("/calibrations/default/absorb", json=body)


async def test_a_drawn_judgment_names_its_audit_and_others_have_null() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)
        answer = await judge(client, 1)
        assert answer["audit"] == {"id": answer["audit"]["id"], "rate": 1.0}
        assert re.fullmatch("[0-9a-f]{32}", answer["audit"]["id"])
        free = (await client.post("/judge", json=comparison(question="T?", alpha=None))).json()
        assert free["audit"] is None
        assert (await client.get("/info")).json()["audit_rate"] == 1.0
    async with client_of() as client:
        await calibrated(client)
        answer = await judge(client, 1)
        assert answer["audit"] is None
        assert (await client.get("/info")).json()["audit_rate"] == 0.0


async def test_rewards_draw_and_name_the_audit_of_each_comparison() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)
        group = {"question": "G?", "responses": ["quality=3", "quality=2", "quality=1"]}
        answer = (await client.post("/rewards/group", json={**group, "comparisons": True})).json()
        ids = [each["judgment"]["audit"]["id"] for each in answer["comparisons"]]
        assert [each["id"] for each in (await listed(client))["audits"]] == ids
        assert len(set(ids)) == 3


async def test_audits_are_listed_by_status_without_texts_and_verdicts() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)
        one, two, three = await drawn(client, range(3))
        assert await counts(client, {two: "A", UNKNOWN: "B"}) == (1, 0, 0, 1, 0, [UNKNOWN], [])
        found = await listed(client)
        assert found["next_after"] is None
        assert [each["id"] for each in found["audits"]] == [one, two, three]
        first, second, _ = found["audits"]
        for name in ("drawn_at", "expires_at"):
            assert re.fullmatch(ISO, first[name])
        assert first == {
            **{"id": one, "calibration": "default", "status": "open", "rate": 1.0},
            **{"drawn_at": first["drawn_at"], "expires_at": first["expires_at"]},
            "drawn_by": "anonymous",
            **dict.fromkeys(("label", "labelled_at", "labelled_by", "texts")),
        }
        assert (second["status"], second["label"], second["labelled_by"]) == (
            "labelled",
            "A",
            "anonymous",
        )
        assert re.fullmatch(ISO, second["labelled_at"])
        assert [a["id"] for a in (await listed(client, "?status=open"))["audits"]] == [one, three]
        page = await listed(client, "?status=open&limit=1")
        assert [each["id"] for each in page["audits"]] == [one]
        rest = await listed(client, f"?status=open&limit=1&after={page['next_after']}")
        assert ([each["id"] for each in rest["audits"]], rest["next_after"]) == ([three], None)
        assert (await listed(client, "?calibration=other"))["audits"] == []


async def test_an_audit_names_the_key_that_was_first_to_ask(tmp_path: Path) -> None:
    keys = Keys(
        write_keys(
            tmp_path / "keys.json",
            entry("all", ["judge", "calibrate"]),
            entry("trainer", ["judge"]),
        )
    )
    admin, trainer = header_of("all"), header_of("trainer")
    async with client_of(keys=keys, audit_rate=1.0) as client:
        client.headers.update(admin)
        await calibrated(client)
        await drawn(client, [1], admin)
        await drawn(client, [1, 2], trainer)
        one = comparison(question="Traffic 3?")
        await client.post("/judge", json=one, headers=trainer)
        group = {"question": "G?", "responses": ["quality=3", "quality=2"]}
        await client.post("/rewards/group", json=group, headers=trainer)
        named = [each["drawn_by"] for each in (await listed(client))["audits"]]
    assert named == ["all", "trainer", "trainer", "trainer"]


async def test_an_absorbed_example_is_what_calibrate_would_have_made_of_the_pair() -> None:
    pair = comparison(question="Traffic 1?", response_a="quality=1.25")
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)
        (one,) = await drawn(client, [1], response_a="quality=1.25")
        await send(client, {one: "B"})
        before = (await client.get("/calibrations/default/examples")).json()["examples"]
        await absorbed(client)
        after = (await client.get("/calibrations/default/examples")).json()["examples"]
        absorbed_examples = [each for each in after if each not in before]
    async with client_of() as client:
        await client.post("/calibrate", json={"examples": [{**pair, "label": "B"}]})
        examples = (await client.get("/calibrations/default/examples")).json()["examples"]
    assert absorbed_examples == examples


async def test_a_set_that_is_absent_or_of_another_judge_absorbs_nothing() -> None:
    store = MemoryStore()
    async with client_of(store=store, audit_rate=1.0) as client:
        problem(await absorbed(client), "calibration_not_found")
        await calibrated(client)
        (one,) = await drawn(client, [1])
        await send(client, {one: "A"})
    async with client_of(ScriptedEngine(judge="another"), store) as client:
        problem(await absorbed(client), "judge_mismatch")
        await client.delete("/calibrations/default")
        await calibrated(client)
        assert (await absorbed(client)).json()["added"] == 0
