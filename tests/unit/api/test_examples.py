"""Tests of the judged examples of a set through HTTP: staging, export and import."""

import json
from typing import Any

import httpx
import pytest

from tests.serving import client_of
from tests.unit.api.problems import calibrated, problem

PATH = "/calibrations/default/examples"
FINGERPRINT = "f" * 64


def digest(number: int) -> str:
    return f"{number:064x}"


def scored(number: int, **fields: Any) -> dict[str, Any]:
    valid = {"gap_fwd": number / 7, "gap_rev": -0.3, "label_mass": 0.9, "label": "A"}
    return {"digest": digest(number), **valid, **fields}


async def exported(client: httpx.AsyncClient, *, limit: int, path: str = PATH) -> dict[str, Any]:
    """The whole set, read in pages."""
    page: dict[str, Any] = (await client.get(path, params={"limit": limit})).json()
    whole = page
    while len(page["examples"]) == limit:
        last = page["examples"][-1]["digest"]
        page = (await client.get(path, params={"limit": limit, "after": last})).json()
        assert {**page, "examples": []} == {**whole, "examples": []}
        whole["examples"] += page["examples"]
    return whole


async def imported(client: httpx.AsyncClient, rows: list[Any], **fields: Any) -> httpx.Response:
    """Posts rows under the fingerprint of the service."""
    fingerprint = (await client.get("/info")).json()["fingerprint"]
    return await client.post(PATH, json={"fingerprint": fingerprint, "examples": rows, **fields})


@pytest.mark.parametrize("limit", [7, 60])
async def test_pages_hold_every_example_once_sorted_by_digest(limit: int) -> None:
    async with client_of() as client:
        made = await calibrated(client)
        found = await exported(client, limit=limit)
    digests = [row["digest"] for row in found["examples"]]
    assert digests == sorted(set(digests))
    assert len(digests) == found["n"] == 60
    described = ("name", "version", "judge", "fingerprint")
    assert {key: found[key] for key in described} == {key: made[key] for key in described}
    assert "Question" not in json.dumps(found)


async def test_every_kind_of_number_survives_the_way_through_json() -> None:
    numbers = [5e-324, 1.7976931348623157e308, 0.1 + 0.2, 1 / 3, -0.0, 2**53 + 1.0, 1e22]
    rows = [scored(i, gap_fwd=number, gap_rev=-number) for i, number in enumerate(numbers)]
    rows += [scored(50, label_mass=0), scored(51, label_mass=1, gap_fwd=3)]
    # A judge that sees no order, and one that says no label mass.
    rows += [scored(52, gap_rev=None), scored(53, label_mass=None)]
    async with client_of() as client:
        assert (await imported(client, rows)).status_code == 200
        found = (await exported(client, limit=1000))["examples"]
    for row, back in zip(rows, found, strict=True):
        assert back == {**row, "question": None, "is_reversed": False, "small": None}
        shown = [key for key in ("gap_fwd", "gap_rev") if row[key] is not None]
        assert [repr(float(row[key])) for key in shown] == [repr(back[key]) for key in shown]


async def test_importing_twice_makes_one_version_and_one_entry_of_the_trail() -> None:
    rows = [scored(i) for i in range(5)] + [scored(3, label="B")]
    async with client_of() as client:
        problem(await imported(client, rows, change_labels=False), "labels_differ")
        first = (await imported(client, rows, judge="scripted")).json()
        again = (await imported(client, rows)).json()
        trail = (await client.get("/calibrations/default/versions")).json()["versions"]
        (fourth,) = (await client.get(PATH, params={"after": digest(2), "limit": 1})).json()[
            "examples"
        ]
    assert (first["version"], first["n"], first["added"], first["updated"]) == (1, 5, 5, 1)
    assert (again["version"], again["n"], again["added"], again["updated"]) == (1, 5, 0, 6)
    assert [(each["action"], each["by"], each["added"]) for each in trail] == [
        ("import", "anonymous", 5)
    ]
    # The last label of a digest counts.
    assert fourth["label"] == "B"


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (scored(7, gap_fwd=float("nan")), "examples.2.gap_fwd"),
        (scored(7, gap_rev=float("inf")), "examples.2.gap_rev"),
        (scored(7, gap_fwd="1.0"), "examples.2.gap_fwd"),
        (scored(7, label_mass=1.0000001), "examples.2.label_mass"),
        (scored(7, label_mass=-0.1), "examples.2.label_mass"),
        (scored(7, gap_fwd=None), "examples.2.gap_rev"),
        (scored(7, label="C"), "examples.2.label"),
        (scored(7, digest="F" * 64), "examples.2.digest"),
        (scored(7, digest="f" * 63), "examples.2.digest"),
        (scored(7, question="Which?"), "examples.2.question"),
        (scored(7, label="tie", gap_fwd=None), "examples.2.gap_rev"),
        (scored(7, label=None, gap_fwd=None), "examples.2.gap_rev"),
        ({"digest": digest(7), "label": "A"}, "examples.2.gap_fwd"),
        ("text", "examples.2"),
        (None, "examples.2"),
    ],
)
async def test_one_bad_example_keeps_all_others_out(row: Any, field: str) -> None:
    async with client_of() as client:
        fingerprint = (await client.get("/info")).json()["fingerprint"]
        body = {"fingerprint": fingerprint, "examples": [scored(1), scored(2), row, scored(3)]}
        # httpx refuses to write NaN.
        kind = {"Content-Type": "application/json"}
        response = await client.post(PATH, content=json.dumps(body), headers=kind)
        refused = problem(response, "invalid_request")
        problem(await client.get("/calibrations/default"), "calibration_not_found")
    assert refused["errors"][0]["field"] == field


async def test_scores_of_another_judge_are_refused() -> None:
    async with client_of() as client:
        body = {"fingerprint": FINGERPRINT, "examples": [scored(1)]}
        refused = problem(await client.post(PATH, json=body), "judge_mismatch")
        assert "scored by the judge ffffffffffff" in refused["detail"]
        problem(await client.get("/calibrations/default"), "calibration_not_found")


async def test_more_examples_than_a_batch_may_have_are_imported_at_once() -> None:
    rows = [scored(i, gap_fwd=1.2345678901234567 + i) for i in range(12_000)]
    async with client_of() as client:
        answer = (await imported(client, rows)).json()
        assert (answer["version"], answer["n"]) == (1, 12_000)
        page = (await client.get(PATH, params={"limit": 10_000})).json()
        assert len(page["examples"]) == 10_000
        problem(await client.get(PATH, params={"limit": 10_001}), "invalid_request")
