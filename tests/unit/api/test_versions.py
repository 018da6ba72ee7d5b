"""Tests of the trail of a calibration set and of rollback through HTTP."""

import dataclasses
from typing import Any

import httpx
import pytest

from app.judges.engines.scripted import ScriptedEngine
from app.release import RELEASE
from app.stores.memory import MemoryStore
from scope_judge import records
from tests.serving import client_of
from tests.unit.api.problems import calibrated, comparison, examples, problem
from tests.unit.api.test_api import check


async def versions(client: httpx.AsyncClient, query: str = "", **headers: str) -> Any:
    response = await client.get(f"/calibrations/default/versions{query}", headers=headers)
    assert response.status_code == 200, response.text
    body = response.json()
    assert set(body) == {"name", "versions"}
    assert body["name"] == "default"
    for each in body["versions"]:
        check(each, records.Version)
    return body["versions"]


async def roll_back(client: httpx.AsyncClient, version: Any, **headers: str) -> httpx.Response:
    path = "/calibrations/default/rollback"
    return await client.post(path, json={"version": version}, headers=headers)


async def test_a_poisoned_batch_is_found_and_rolled_back() -> None:
    async with client_of() as client:
        sound = await calibrated(client)
        # With the poisoned labels the judge seems right whenever it is certain.
        poison = [{**each, "question": f"Poison {i}"}
                  for i, each in enumerate(examples(60))]  # fmt: skip
        poison[0] = {"question": 3, "response_a": "x", "response_b": "y", "label": "A"}
        poisoned = (await client.post("/calibrate", json={"examples": poison})).json()
        assert poisoned["thresholds"] != sound["thresholds"]

        newest, oldest = await versions(client)
        assert (newest["version"], newest["added"], newest["failed"]) == (2, 59, 0)
        assert newest["thresholds_after"] != oldest["thresholds_after"]

        response = await roll_back(client, 1)
        assert response.status_code == 200
        back = response.json()
        described = {field.name for field in dataclasses.fields(records.Calibration)} - {"version"}
        assert {name: back[name] for name in described} == {name: sound[name] for name in described}
        counts = ("version", "added", "updated", "removed", "dry_run")
        assert [back[name] for name in counts] == [3, 0, 0, 59, False]
        shown = (await client.get("/calibrations/default")).json()
        assert (shown["version"], shown["n"]) == (3, 60)
        assert shown["thresholds"] == sound["thresholds"]
        newest, *_ = await versions(client, "?limit=1")
        assert (newest["action"], newest["rolled_back_to"]) == ("rollback", 1)
        assert newest["removed"] == 59


@pytest.mark.parametrize("wrote", ["0.1.9", RELEASE])
async def test_a_set_of_another_judge_is_refused_with_the_release_that_made_it(
    wrote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    async with client_of(store=store) as client:
        with monkeypatch.context() as patch:
            patch.setattr("app.sets.calibrator.RELEASE", wrote)
            await calibrated(client)
        # A version knows its release.
        await client.delete("/calibrations/default")
        await roll_back(client, 1)
        await client.delete("/calibrations/default")
        await client.post("/calibrate", json={"calibration": "mine", "examples": examples(3)})
    async with client_of(ScriptedEngine(judge="another"), store) as other:
        refused = problem(await roll_back(other, 1), "judge_mismatch")
        judged = await other.post("/judge", json=comparison(calibration="mine"))
    by_release = f"was made by scope-judge {wrote} with judge 'scripted' ("
    assert (by_release in refused["detail"]) == (wrote != RELEASE)
    assert (f"this is scope-judge {RELEASE}" in refused["detail"]) == (wrote != RELEASE)
    assert "was made with judge 'scripted' (" in problem(judged, "judge_mismatch")["detail"]


async def test_the_last_twenty_versions_can_be_restored_and_older_ones_are_refused() -> None:
    async with client_of() as client:
        for row in examples(22):
            await client.post("/calibrate", json={"examples": [row]})
        refused = problem(await roll_back(client, 2), "version_not_found")
        assert "keeps its last 20 versions" in refused["detail"]
        assert (await roll_back(client, 3)).json()["n"] == 3
        await client.delete("/calibrations/default")
        refused = problem(await roll_back(client, 24), "version_not_found")
        assert "a deletion is none" in refused["detail"]
