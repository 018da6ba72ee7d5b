"""Tests of every route: fields, types, defaults and order of the answers."""

import math
from collections.abc import AsyncIterator
from dataclasses import fields
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from app import __version__
from app.release import COMMIT
from scope_judge import records
from tests.serving import client_of
from tests.unit.api.problems import calibrated, comparison, examples, hard_examples


def check(found: dict[str, Any], record: type[Any]) -> None:
    """Checks that an answer has the fields of a record, and values of their types."""
    assert list(found) == [field.name for field in fields(record)]
    # Not strict: JSON has lists for tuples.
    TypeAdapter(record).validate_python(found)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of() as client:
        yield client


async def test_a_judgment_has_every_field(client: httpx.AsyncClient) -> None:
    await calibrated(client)
    response = await client.post("/judge", json=comparison(id="x-1"))
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    found = response.json()
    check(found, records.SingleJudgment)
    assert found["usage"] == {"engine_prompts": 2, "prompt_tokens": 0, "large": None}
    assert (found["id"], found["verdict"], found["preferred"]) == ("x-1", "A", "A")
    assert (found["alpha"], found["guarantee"], found["delta"]) == (0.1, "marginal", None)
    assert found["calibration"] == {"name": "default", "version": 1, "n": 60}
    assert found["judge"] == "scripted"
    # Gap 3.9 in both orders; risk level (0 + 1) / 60 with no errors among 60 points.
    assert found["p_bar"] == pytest.approx(1 / (1 + math.exp(-3.9)), abs=1e-12)
    assert found["risk_level"] == pytest.approx(1 / 60, abs=1e-15)
    assert found["label_mass"] == pytest.approx(0.99, abs=1e-12)
    assert found["threshold"] == pytest.approx(math.log(2), abs=1e-15)


async def test_settings_give_the_defaults() -> None:
    async with client_of(default_alpha=0.2, default_guarantee="pac", default_delta=0.03) as client:
        await calibrated(client)
        found = (await client.post("/judge", json=comparison())).json()
        assert (found["alpha"], found["guarantee"], found["delta"]) == (0.2, "pac", 0.03)
        plain = (await client.post("/judge", json=comparison(guarantee="marginal"))).json()
        assert (plain["guarantee"], plain["delta"]) == ("marginal", None)


async def test_a_batch_keeps_order_and_ids_around_bad_items(client: httpx.AsyncClient) -> None:
    await calibrated(client)
    # Item, its id in the answer, and the code of its error.
    rows: list[tuple[Any, Any, str | None]] = [
        (comparison(id="first"), "first", None),
        (comparison(id="blank", question=" "), "blank", "invalid_comparison"),
        (comparison(id=7), 7, None),
        ({"id": "incomplete", "question": "q"}, "incomplete", "invalid_request"),
        ("no object", None, "invalid_request"),
        (comparison(id="unknown", aplha=0.1), "unknown", "invalid_request"),
        (comparison(id="absent", calibration="absent"), "absent", "calibration_not_found"),
        (comparison(id="delta", delta=0.1), "delta", "invalid_request"),
        (comparison(id="turns", response_a=["a", "b"]), "turns", "invalid_comparison"),
        (comparison(id=True), None, "invalid_request"),
        (comparison(id="last"), "last", None),
    ]
    response = await client.post("/judge/batch", json={"comparisons": [row[0] for row in rows]})
    assert response.status_code == 200
    results = response.json()["results"]
    codes = [result["error"]["code"] if "error" in result else None for result in results]
    assert [result["id"] for result in results] == [row[1] for row in rows]
    assert codes == [row[2] for row in rows]
    for result in results:
        if "error" not in result:
            check(result, records.Judgment)
            assert result["verdict"] == "A"
        else:
            assert set(result) == {"id", "error"}


async def test_an_item_takes_missing_fields_from_the_batch(client: httpx.AsyncClient) -> None:
    await calibrated(client)
    items = [
        comparison(),
        comparison(alpha=0.3),
        comparison(alpha=None),
        comparison(guarantee="marginal"),
        comparison(guarantee="pac", delta=0.2),
    ]
    body = {"alpha": 0.2, "guarantee": "pac", "delta": 0.05, "comparisons": items}
    results = (await client.post("/judge/batch", json=body)).json()["results"]
    assert [(r["alpha"], r["guarantee"], r["delta"]) for r in results] == [
        (0.2, "pac", 0.05),
        (0.3, "pac", 0.05),
        (None, None, None),
        (0.2, "marginal", None),
        (0.2, "pac", 0.2),
    ]


async def test_calibrate_answers_with_the_set_and_the_counts(
    client: httpx.AsyncClient,
) -> None:
    batch = examples(20)
    batch[3]["label"] = "tie"
    batch[5]["label"] = "C"
    batch[6]["question"] = ""
    found = (await client.post("/calibrate", json={"examples": batch})).json()
    check(found, records.CalibrationReport)
    assert (found["name"], found["version"], found["n"]) == ("default", 1, 18)
    assert [found[name] for name in ("added", "updated", "ties", "failed")] == [17, 0, 1, 2]
    assert [(each["index"], each["error"]["code"]) for each in found["errors"]] == [
        (5, "invalid_request"),
        (6, "invalid_comparison"),
    ]
    assert (found["accuracy"], found["judge"]) == (1.0, "scripted")
    assert [(row["guarantee"], row["alpha"]) for row in found["thresholds"]] == [
        (guarantee, alpha)
        for guarantee in ("marginal", "pac")
        for alpha in (0.05, 0.1, 0.15, 0.2, 0.25)
    ]
    for row in found["thresholds"]:
        assert row["feasible"] == (row["threshold"] is not None)
        assert row["delta"] == (0.1 if row["guarantee"] == "pac" else None)


async def test_a_judgment_says_in_words_why_it_is_a_verdict_or_none(
    client: httpx.AsyncClient,
) -> None:
    await calibrated(client)
    hard = {"calibration": "hard", "examples": hard_examples()}
    assert (await client.post("/calibrate", json=hard)).is_success
    unsure = {"calibration": "hard", "alpha": 0.2, "response_a": "quality=0.01"}
    for asked, words in (
        (unsure, ", the threshold of alpha 0.2 (marginal)"),
        ({}, "not above 0.6931, the threshold of alpha 0.1 (marginal)"),
        ({"alpha": None}, "Response A is better. No alpha was given, so nothing is promised."),
        ({"alpha": 0.0001, "guarantee": "pac"}, "not enough for alpha 0.0001 (pac, delta 0.1)"),
        ({"response_b": "quality=3.90"}, "equally good"),
    ):
        answer = await client.post("/judge", json=comparison(**asked))
        assert words in answer.json()["words"]


async def test_sets_are_listed_in_pages(client: httpx.AsyncClient) -> None:
    names = sorted(f"set-{i}" for i in range(7))
    for name in reversed(names):
        await client.post("/calibrate", json={"calibration": name, "examples": examples(1)})
    pages = list[list[str]]()
    after: str | None = ""
    while after is not None:
        page = (await client.get(f"/calibrations?limit=3&after={after}")).json()
        pages.append([each["name"] for each in page["calibrations"]])
        after = page["next_after"]
    assert pages == [names[:3], names[3:6], names[6:]]


async def test_operations_routes_answer(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    assert (await client.get("/readyz")).json() == {"status": "ready"}
    found = (await client.get("/info")).json()
    check(found, records.Info)
    assert (found["version"], found["commit"]) == (__version__, COMMIT)
    assert len(found["fingerprint"]) == len(found["template"]) == 64
    assert found["limits"] == {
        "max_batch": 2048,
        "max_body_bytes": 2 * 2**20,
        "max_prompt_tokens": 2**31,
    }
