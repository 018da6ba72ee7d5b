"""Pairs that are judged first and labeled later, through HTTP."""

import re
from typing import Any

import httpx
import numpy as np
import pytest

from app.core.errors import PromptTooLongError
from app.judges.engines.scripted import ScriptedEngine, by_quality
from app.ports import LabelLogits, Prompt
from tests.serving import client_of
from tests.unit.api.problems import comparison, examples, problem

POOL, NEXT, SET = (f"/calibrations/default{below}" for below in ("/pool", "/next", ""))
PAC = {"guarantee": "pac", "alpha": 0.1, "delta": 0.1}


def pairs(n: int, *, errors: int = 0) -> list[dict[str, Any]]:
    """n labeled pairs of different certainty; the judge is wrong on the least certain ones."""
    found = examples(n)
    for row in found[:errors]:
        row["label"] = "B"
    return found


def without_labels(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row if name != "label"} for row in rows]


async def pooled(client: httpx.AsyncClient, rows: list[dict[str, Any]]) -> Any:
    response = await client.post(POOL, json={"comparisons": without_labels(rows)})
    assert response.status_code == 200, response.text
    return response.json()


async def label_until_complete(
    client: httpx.AsyncClient, by_digest: dict[str, dict[str, Any]], **params: Any
) -> tuple[dict[str, Any], int]:
    """Labels what the service names; returns its last answer, and the number of labels."""
    labels = 0
    while True:
        response = await client.get(NEXT, params=params)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        if found["complete"]:
            assert (found["needed"], found["digests"]) == (0, [])
            return found, labels
        assert 0 < len(found["digests"]) <= found["needed"]
        rows = [by_digest[digest] for digest in found["digests"]]
        answer = (await client.post("/calibrate", json={"examples": rows})).json()
        assert (answer["added"], answer["failed"]) == (0, 0)
        labels += len(rows)


async def test_pairs_are_kept_as_scores_in_one_version_and_only_once() -> None:
    rows = pairs(20)
    async with client_of() as client:
        first = await pooled(client, [*rows, rows[0], {**rows[1], "id": "again"}])
        again = await pooled(client, rows)
        trail = (await client.get(f"{SET}/versions")).json()["versions"]
        listed = (await client.get(f"{SET}/examples")).json()["examples"]
    assert [first[name] for name in ("version", "n", "added", "known")] == [1, 20, 20, 2]
    assert [again[name] for name in ("version", "n", "added", "known")] == [1, 20, 0, 20]
    assert (first["labelled"], first["unlabelled"], first["failed"]) == (0, 20, 0)
    assert first["digests"] == [*again["digests"], *again["digests"][:2]]
    assert sorted(row["digest"] for row in listed) == sorted(again["digests"])
    assert {row["label"] for row in listed} == {None}
    assert len({row["question"] for row in listed}) == 20
    assert [(each["action"], each["added"], each["unlabelled"]) for each in trail] == [
        ("pool", 20, 20)
    ]


async def test_a_known_pair_is_not_judged_again_and_keeps_its_label() -> None:
    prompts = 0

    def counted(prompt: Prompt) -> LabelLogits:
        nonlocal prompts
        prompts += 1
        return by_quality(prompt)

    async with client_of(ScriptedEngine(counted)) as client:
        await client.post("/calibrate", json={"examples": pairs(5)})
        before, judged = (await client.get(SET)).json(), prompts
        found = await pooled(client, pairs(5))
        assert (found["known"], found["labelled"], found["unlabelled"]) == (5, 5, 0)
        assert (await client.get(SET)).json() == before
        assert prompts == judged
        body = {"comparisons": [comparison(question="new")], "even_if_infeasible": True}
        assert (await client.post(POOL, json=body)).json()["unlabelled"] == 1
        assert prompts == judged + 2


async def test_a_pair_that_fails_is_no_score_and_its_neighbors_are_kept() -> None:
    def script(prompt: Prompt) -> LabelLogits | PromptTooLongError:
        if "too long" in prompt.user:
            return PromptTooLongError("9 tokens, 8 fit")
        return by_quality(prompt)

    rows = [comparison(question=f"Question {i}?") for i in range(5)]
    rows[1]["question"] = "too long"
    rows[1]["id"] = "long"
    rows[2] = {"question": 3, "id": 7}
    rows[4]["label"] = "A"
    async with client_of(ScriptedEngine(script)) as client:
        found = (await client.post(POOL, json={"comparisons": rows})).json()
        assert (await client.get(SET)).json()["n"] == 2
    assert (found["added"], found["failed"]) == (2, 3)
    assert [digest is None for digest in found["digests"]] == [False, True, True, False, True]
    assert [(each["index"], each["id"], each["error"]["code"]) for each in found["errors"]] == [
        (1, "long", "prompt_too_long"),
        (2, 7, "invalid_request"),
        (4, None, "invalid_request"),
    ]


async def test_what_the_labels_cannot_say_is_refused() -> None:
    rows = pairs(400, errors=100)
    async with client_of() as client:
        digests = (await pooled(client, rows))["digests"]
        by_digest = dict(zip(digests, rows, strict=True))
        await label_until_complete(client, by_digest, alpha=0.1, delta=0.1)
        shown = (await client.get(SET)).json()
        for criterion in (
            {"alpha": 0.1},
            {"alpha": 0.25, "guarantee": "marginal"},
            {"alpha": 0.3, "guarantee": "pac"},
        ):
            detail = problem(await client.post("/judge", json=comparison(**criterion)),
                             "labels_missing")["detail"]  # fmt: skip
            assert "GET /calibrations/default/next" in detail
        both = [comparison(**PAC), comparison(alpha=0.1), comparison(alpha=None)]
        batch = (await client.post("/judge/batch", json={"comparisons": both})).json()["results"]
    assert batch[0]["verdict"] == batch[2]["verdict"] == "A"
    assert batch[1]["error"]["code"] == "labels_missing"
    said = {
        (row["guarantee"], row["alpha"]) for row in shown["thresholds"] if not row["labels_missing"]
    }
    assert ("pac", 0.1) in said
    assert ("pac", 0.25) not in said
    assert not any(guarantee == "marginal" for guarantee, _ in said)
    assert {row["threshold"] for row in shown["thresholds"] if row["labels_missing"]} == {None}


async def test_a_pool_is_rolled_back_exported_and_imported() -> None:
    rows = pairs(40)
    async with client_of() as client, client_of() as other:
        await pooled(client, rows[:20])
        one = (await client.get(f"{SET}/examples")).json()
        await client.post("/calibrate", json={"examples": rows[:15]})
        tied = [{**row, "label": "tie"} for row in rows[15:18]]
        await client.post("/calibrate", json={"examples": tied})
        now = (await client.get(f"{SET}/examples")).json()
        shown = (await client.get(SET)).json()
        assert [shown[name] for name in ("labelled", "unlabelled", "pool_ties")] == [15, 2, 3]
        body = {name: now[name] for name in ("fingerprint", "examples")}
        copied = (await other.post(f"{SET}/examples", json=body)).json()
        assert copied["version"] == 1
        back = (await other.get(SET)).json()
        assert {**back, "version": 3} == shown
        assert (await other.get(f"{SET}/examples")).json()["examples"] == now["examples"]
        again = (await other.post(f"{SET}/examples", json=body)).json()
        assert again["version"] == 1
        await client.post(f"{SET}/rollback", json={"version": 1})
        first = (await client.get(f"{SET}/examples")).json()
        assert {**first, "version": 1} == one
        await client.post(f"{SET}/rollback", json={"version": 3})
        assert {**(await client.get(f"{SET}/examples")).json(), "version": 3} == now


async def test_an_import_without_labels_or_questions_takes_none_away() -> None:
    async with client_of() as client:
        await client.post("/calibrate", json={"examples": pairs(5)})
        now = (await client.get(f"{SET}/examples")).json()
        for lost in ({"label": None}, {"question": None}):
            body = {"fingerprint": now["fingerprint"],
                    "examples": [{**row, **lost} for row in now["examples"]]}  # fmt: skip
            answer = (await client.post(f"{SET}/examples", json=body)).json()
            assert answer["version"] == 1
        assert (await client.get(f"{SET}/examples")).json() == now


async def test_a_pool_too_small_for_its_first_test_is_refused_before_a_set_exists() -> None:
    async with client_of() as client:
        body = {"comparisons": without_labels(pairs(90)), "alpha": 0.1, "delta": 0.1}
        refused = problem(await client.post(POOL, json=body), "invalid_request")
        # The start rank of pac at 0.10 and 0.10.
        assert "needs 91 pairs, and there are 90" in refused["detail"]
        assert (await client.get(SET)).status_code == 404
        body["comparisons"] = without_labels(pairs(91))
        assert (await client.post(POOL, json=body)).status_code == 200


@pytest.mark.parametrize(
    ("labels", "asked", "named"),
    [(60, None, "alpha 0.05 (marginal)"), (3, 0.4, "alpha 0.4 (marginal)")],
)
async def test_pairs_without_labels_end_no_verdicts_unless_they_are_asked_to(
    labels: int, asked: float | None, named: str
) -> None:
    rows, judged = pairs(labels), list[str]()

    def script(prompt: Prompt) -> LabelLogits:
        judged.append(prompt.user)
        return by_quality(prompt)

    async with client_of(ScriptedEngine(script)) as client:
        await client.post("/calibrate", json={"examples": rows})
        if asked is not None:
            # It gives no verdicts at a standard alpha, but somebody gets some at another one.
            await client.post("/judge", json=comparison(alpha=asked))
        # Known pairs change nothing.
        assert (await pooled(client, rows))["known"] == labels
        body: dict[str, Any] = {"comparisons": [comparison(question="new")]}
        before = len(judged)
        refused = problem(await client.post(POOL, json=body), "becomes_infeasible")
        assert f"under {named}" in refused["detail"]
        assert "use a new set" in refused["detail"]
        assert len(judged) == before
        body["even_if_infeasible"] = True
        assert (await client.post(POOL, json=body)).json()["unlabelled"] == 1


def several(questions: int, size: int) -> list[dict[str, Any]]:
    """Labeled pairs of which `size` share a question and a label."""
    rng = np.random.default_rng(8)
    return [
        {
            "question": f"Question {q}?",
            "response_a": f"quality={rng.uniform(0.1, 4):.6f}",
            "response_b": f"quality=0 {i}",
            "label": "B" if q % 12 == 0 else "A",
        }
        for q in range(questions)
        for i in range(size)
    ]


async def test_a_pool_asks_only_for_the_pair_that_it_counts_of_each_question() -> None:
    rows = several(150, 3)
    async with client_of() as client:
        digests = (await pooled(client, rows))["digests"]
        by_digest = dict(zip(digests, rows, strict=True))
        begun = (await client.get(NEXT, params={"limit": 1000})).json()
        assert (begun["n"], begun["labelled"]) == (150, 0)
        found, labels = await label_until_complete(client, by_digest, alpha=0.25, limit=1000)
        assert labels <= 150
        asked = [row for row in (await client.get(f"{SET}/examples")).json()["examples"]
                 if row["label"] is not None]  # fmt: skip
        assert len({row["question"] for row in asked}) == len(asked) == labels
        whole = (await client.post("/calibrate", json={"examples": rows})).json()
    row = next(r for r in whole["thresholds"] if r["alpha"] == 0.25 and r["guarantee"] == "pac")
    assert row["feasible"]
    assert row["threshold"] == found["threshold"]


async def test_the_error_of_a_partly_labeled_set_names_a_criterion_that_works() -> None:
    # The judge is sure of the first 150 pairs, which are labeled, and unsure of the others.
    def pair(number: int, quality: float) -> dict[str, Any]:
        return comparison(question=f"{number}?", response_a=f"quality={quality:.6f}")

    sure = [pair(i, 2 + i / 100) for i in range(150)]
    unsure = [pair(i, 0.1 + i / 10_000) for i in range(150, 300)]
    async with client_of() as client:
        await pooled(client, sure + unsure)
        wrong = [{**row, "label": "B"} for row in unsure[-100:]]
        labeled = [{**row, "label": "A"} for row in sure]
        await client.post("/calibrate", json={"examples": labeled + wrong})
        refused = problem(await client.post("/judge", json=sure[0]), "labels_missing")
        criterion = re.search(
            r'"guarantee": "(pac)", "alpha": ([\d.]+), "delta": ([\d.]+)', refused["detail"]
        )
        assert criterion is not None, refused["detail"]
        guarantee, alpha, delta = criterion.groups()
        asked = {"guarantee": guarantee, "alpha": float(alpha), "delta": float(delta)}
        answer = await client.post("/judge", json={**sure[0], **asked})
        assert answer.json()["verdict"] == "A"
