"""Planned looks of a pool, through HTTP."""

from typing import Any

import httpx
import pytest

from tests.serving import client_of
from tests.unit.api.problems import examples, problem
from tests.unit.api.test_pools import NEXT, POOL, SET, pairs, without_labels

SIZES = [80, 120, 200]
PLAN = {"looks": SIZES, "until_coverage": 0.95, "alpha": 0.16, "delta": 0.3}
ROWS = pairs(200, errors=60)


async def planned(
    client: httpx.AsyncClient, rows: list[dict[str, Any]] = ROWS, **plan: Any
) -> dict[str, dict[str, Any]]:
    """Fills the pool under a plan; returns digest -> labelled row."""
    body = {"comparisons": without_labels(rows), **PLAN, **plan}
    response = await client.post(POOL, json=body)
    assert response.status_code == 200, response.text
    return dict(zip(response.json()["digests"], rows, strict=True))


async def following(client: httpx.AsyncClient, **params: Any) -> dict[str, Any]:
    response = await client.get(NEXT, params=params)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def labelled(
    client: httpx.AsyncClient, by_digest: dict[str, dict[str, Any]], until: int | None = None
) -> dict[str, Any]:
    """Labels what is asked, until the looks end or the next look is at `until` pairs."""
    while not (found := await following(client))["complete"]:
        if found["looks"]["next"] == until:
            break
        body = {"examples": [by_digest[digest] for digest in found["digests"]]}
        response = await client.post("/calibrate", json=body)
        assert response.status_code == 200, response.text
    return found


async def test_labelling_stops_at_the_first_look_that_suffices() -> None:
    async with client_of() as client:
        by_digest = await planned(client, until_coverage=0.05)
        begun = await following(client)
        assert (begun["alpha"], begun["delta"], begun["n"]) == (0.16, 0.3, 80)
        assert begun["looks"] == {
            "sizes": SIZES, "until_coverage": 0.05, "alpha": 0.16, "delta": 0.3,
            "taken": [], "next": 80, "suffices": False,
        }  # fmt: skip
        assert "The next look is at 80 pairs." in begun["words"]
        ended = await labelled(client, by_digest)
        shown = (await client.get(SET)).json()
        trail = (await client.get(f"{SET}/versions")).json()["versions"]
    (look,) = ended["looks"]["taken"]
    assert look["size"] == 80
    assert look["coverage"] >= 0.05
    assert look["threshold"] == ended["threshold"]
    assert (ended["looks"]["suffices"], ended["looks"]["next"]) == (True, None)
    assert "stop here" in ended["words"]
    assert ended["labelled"] <= 80
    assert shown["labelled"] <= 80
    # The set says the same, and the trail keeps the plan with the results.
    assert shown["looks"] == trail[0]["looks"] == ended["looks"]
    assert trail[-1]["looks"] == begun["looks"]


async def test_a_threshold_is_taken_at_a_look_only() -> None:
    asked = {**examples(1)[0], "alpha": 0.16, "guarantee": "pac", "delta": 0.3}
    del asked["label"]
    async with client_of() as client:
        by_digest = await planned(client)
        problem(await client.post("/judge", json=asked), "labels_missing")
        before = await labelled(client, by_digest, until=120)
        served = (await client.post("/judge", json=asked)).json()["threshold"]
        assert [look["size"] for look in before["looks"]["taken"]] == [80]
        assert served == before["looks"]["taken"][0]["threshold"] == before["threshold"]
        # A label of the next look changes nothing until that look is taken.
        first = [by_digest[before["digests"][0]]]
        await client.post("/calibrate", json={"examples": first})
        assert (await client.post("/judge", json=asked)).json()["threshold"] == served
        ended = await labelled(client, by_digest)
        last = ended["looks"]["taken"][-1]
        assert [look["size"] for look in ended["looks"]["taken"]] == SIZES
        assert "It was the last look." in ended["words"]
        assert (await client.post("/judge", json=asked)).json()["threshold"] == last["threshold"]


async def test_the_first_label_fixes_the_looks_and_the_pairs() -> None:
    async with client_of() as client:
        by_digest = await planned(client, looks=[50, 60])
        # Without a label, another plan replaces it; without a plan, it stays.
        await planned(client)
        await client.post(POOL, json={"comparisons": without_labels(ROWS[:1])})
        assert (await following(client))["looks"]["sizes"] == SIZES
        digest = (await following(client))["digests"][0]
        await client.post("/calibrate", json={"examples": [by_digest[digest]]})
        other = {"comparisons": without_labels(ROWS), **PLAN, "looks": [80, 200]}
        refused = problem(await client.post(POOL, json=other), "invalid_request")
        assert "fixed with the first one: plan looks for a new set" in refused["detail"]
        # The same plan and the same pairs again are no change.
        await planned(client)
        more = pairs(201)[-1:]
        more[0]["question"] = "Another one?"
        for response in (
            await client.post(POOL, json={"comparisons": without_labels(more)}),
            await client.post("/calibrate", json={"examples": more}),
        ):
            told = problem(response, "invalid_request")["detail"]
            assert "takes pairs before its first label only" in told
        grouped = {"examples": [by_digest[digest]], "by_group": True}
        problem(await client.post("/calibrate", json=grouped), "invalid_request")
        assert (await client.get(SET)).json()["version"] == 3
        # A replacement is a set of its own, without the plan.
        body = {"examples": more, "replace": True, "even_if_infeasible": True}
        assert (await client.post("/calibrate", json=body)).json()["looks"] is None


async def test_labels_wait_until_the_pool_has_the_pairs_of_the_last_look() -> None:
    async with client_of() as client:
        await planned(client, ROWS[:150])
        found = await following(client)
        assert (found["complete"], found["digests"]) == (False, [])
        assert "the pool has 150: add the rest before the first label" in found["words"]
        answer = await client.post("/calibrate", json={"examples": ROWS[:1]})
        told = problem(answer, "invalid_request")["detail"]
        assert "add 50 more before the first label" in told
        await planned(client)
        assert len((await following(client))["digests"]) > 0


async def test_looks_are_rolled_back_exported_and_imported() -> None:
    async with client_of() as client, client_of() as other:
        by_digest = await planned(client)
        await labelled(client, by_digest, until=120)
        now = (await client.get(f"{SET}/examples")).json()
        assert now["looks"] == {"sizes": SIZES, **{k: v for k, v in PLAN.items() if k != "looks"}}
        shown = (await client.get(SET)).json()
        body = {name: now[name] for name in ("fingerprint", "looks", "examples")}
        for _ in range(2):
            copied = await other.post(f"{SET}/examples", json=body)
            assert copied.json()["version"] == 1, copied.text
        assert {**(await other.get(SET)).json(), "version": shown["version"]} == shown
        await client.post("/calibrate", json={"examples": ROWS[:9], "replace": True,
                                              "even_if_infeasible": True})  # fmt: skip
        assert (await client.get(SET)).json()["looks"] is None
        await client.post(f"{SET}/rollback", json={"version": shown["version"]})
        assert (await client.get(SET)).json()["looks"] == shown["looks"]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"looks": [20, 10], "until_coverage": 0.3}, "rising numbers"),
        ({"looks": [], "until_coverage": 0.3}, "looks"),
        ({"looks": list(range(1, 18)), "until_coverage": 0.3}, "looks"),
        ({"looks": [0], "until_coverage": 0.3}, "looks"),
        ({"looks": [10.5], "until_coverage": 0.3}, "looks"),
        ({"looks": [10]}, "required with looks"),
        ({"looks": [10], "until_coverage": 1.0}, "until_coverage"),
        ({"until_coverage": 0.3}, "only allowed with looks"),
        ({"alpha": 0.3}, "only allowed with looks"),
    ],
)
async def test_a_plan_that_is_none_is_refused(plan: dict[str, Any], words: str) -> None:
    async with client_of() as client:
        body = {"comparisons": without_labels(ROWS[:2]), **plan}
        answer = problem(await client.post(POOL, json=body), "invalid_request")
        assert words in answer["detail"]
        assert (await client.get("/calibrations")).json()["calibrations"] == []
