"""Pairs that two people label: each is blind to the other, and a third person decides."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.auth.keys import Keys
from app.stores.memory import MemoryStore
from tests.unit.api.keyring import entry, header_of, write_keys
from tests.unit.api.problems import problem
from tests.unit.api.test_audits import drawn, listed, send
from tests.unit.api.test_label_queue import QUEUE, AgeingStore, drawing

DISAGREEMENTS = "/calibrations/default/disagreements"


async def take(client: httpx.AsyncClient, reviewer: str, count: int = 5, people: int = 2) -> Any:
    body = {"take": count, "reviewer": reviewer, "reviewers": people}
    return (await client.post(QUEUE, json=body)).raise_for_status().json()


async def taken(
    client: httpx.AsyncClient, reviewer: str, count: int = 5, people: int = 2
) -> list[str]:
    """The questions of the pairs that a person gets."""
    found = await take(client, reviewer, count, people)
    return [pair["question"] for pair in found["pairs"]]


async def give(client: httpx.AsyncClient, reviewer: str, **choices: str) -> Any:
    """Answers pairs, which the person takes now, by the numbers of their questions.

    Args:
        client: The client.
        reviewer: The person.
        **choices: `q1="A"` for the response that the judge was asked about first.
    """
    pairs = {pair["question"]: pair for pair in (await take(client, reviewer))["pairs"]}
    rows = []
    for name, choice in choices.items():
        pair = pairs[f"Traffic {name[1:]}?"]
        if choice in ("A", "B"):
            choice = "left" if (pair["left"] != "quality=0") == (choice == "A") else "right"
        reason = {"reason": "too long"} if choice == "none" else {}
        rows.append({"ticket": pair["ticket"], "choice": choice, **reason})
    return await answer(client, reviewer, rows)


async def answer(client: httpx.AsyncClient, reviewer: str, rows: list[Any]) -> Any:
    body = {"reviewer": reviewer, "reviewers": 2, "answers": rows}
    found = (await client.post(f"{QUEUE}/answers", json=body)).raise_for_status().json()
    codes = [each["error"]["code"] for each in found["errors"]]
    return found["labelled"], found["corrected"], found["again"], codes


async def disagreements(client: httpx.AsyncClient) -> Any:
    return (await client.get(DISAGREEMENTS)).raise_for_status().json()


async def labels(client: httpx.AsyncClient) -> list[str | None]:
    return [audit["label"] for audit in (await listed(client))["audits"]]


async def test_two_people_get_the_same_pair_and_a_third_one_does_not() -> None:
    async with drawing() as client:
        await drawn(client, range(3))
        every = [f"Traffic {number}?" for number in range(3)]
        assert await taken(client, "anna") == every
        assert await taken(client, "anna") == every
        assert await taken(client, "ben") == every
        assert await taken(client, "cem") == []
        # Somebody who labels alone gets none of them either.
        assert await taken(client, "cem", people=1) == []


async def test_equal_opinions_are_the_label_and_different_ones_wait() -> None:
    async with drawing() as client:
        await drawn(client, range(4))
        assert await give(client, "anna", q0="A", q1="A", q2="tie", q3="none") == (4, 0, 0, [])
        assert await labels(client) == [None] * 4
        assert await give(client, "ben", q0="A", q1="B", q2="tie", q3="none") == (4, 0, 0, [])
        assert await labels(client) == ["A", None, "tie", "none"]
        statuses = [audit["status"] for audit in (await listed(client))["audits"]]
        assert statuses == ["labelled", "open", "labelled", "closed"]
        for person in ("anna", "ben", "cem"):
            for people in (1, 2):
                found = await take(client, person, people=people)
                assert (found["pairs"], found["open"], found["disagreements"]) == ([], 0, 1)
        trail = (await client.get("/calibrations/default/audit-trail")).json()["entries"]
        assert [(each["event"], each["reason"]) for each in trail] == [("closed", "too long")]


async def test_a_person_has_one_opinion_and_sees_the_pair_once() -> None:
    store = AgeingStore()
    async with drawing(store) as client:
        await drawn(client, [0])
        (pair,) = (await take(client, "anna"))["pairs"]
        left, right = ({"ticket": pair["ticket"], "choice": side} for side in ("left", "right"))
        assert await answer(client, "anna", [left]) == (1, 0, 0, [])
        assert await answer(client, "anna", [left]) == (0, 0, 1, [])
        assert await answer(client, "anna", [right]) == (0, 0, 0, ["already_labelled"])
        assert await taken(client, "anna") == []
        store.pass_time(601)
        assert await taken(client, "anna") == []
        assert await answer(client, "ben", [right]) == (1, 0, 0, [])
        assert await answer(client, "anna", [left]) == (0, 0, 1, [])
        assert await answer(client, "cem", [left]) == (0, 0, 0, ["already_labelled"])
        assert await labels(client) == [None]


async def test_two_people_who_answer_at_once_decide_the_pair_together() -> None:
    store = MemoryStore()
    async with drawing(store) as one, drawing(store) as other:
        await drawn(one, range(5))
        choices = {f"q{number}": "A" for number in range(5)}
        both = await asyncio.gather(give(one, "anna", **choices), give(other, "ben", **choices))
        assert all(found == (5, 0, 0, []) for found in both)
        assert await labels(one) == await labels(other) == ["A"] * 5


async def test_a_lease_that_has_ended_lets_a_third_person_in_and_two_labels_count() -> None:
    store = AgeingStore()
    async with drawing(store) as client:
        await drawn(client, [0])
        rows = [
            {"ticket": pair["ticket"], "choice": "left"}
            for pair in (await take(client, "anna"))["pairs"]
        ]
        await give(client, "ben", q0="A")
        assert await taken(client, "cem") == []
        store.pass_time(601)
        assert await taken(client, "cem") == ["Traffic 0?"]
        await give(client, "cem", q0="B")
        assert await answer(client, "anna", rows) == (0, 0, 0, ["already_labelled"])


async def test_disagreements_are_shown_blind_and_decided_with_a_label() -> None:
    async with drawing() as client:
        ids = await drawn(client, range(3))
        await give(client, "anna", q0="A", q1="tie", q2="A")
        await give(client, "ben", q0="B", q1="B", q2="A")
        found = await disagreements(client)
        assert found["open"] == 2
        assert [pair["question"] for pair in found["pairs"]] == ["Traffic 0?", "Traffic 1?"]
        first, second = found["pairs"]
        assert set(first) == {"id", "question", "left", "right", "left_label", "choices"}
        assert first["choices"] == ["left", "right"]
        sides = {first["left_label"]: first["left"], "other": first["right"]}
        assert sides["A" if first["left_label"] == "A" else "other"] == "quality=3.9"
        of_b = "left" if second["left_label"] == "B" else "right"
        assert second["choices"] == sorted([of_b, "tie"])
        assert "anna" not in json.dumps(found)
        await send(client, {first["id"]: "A"})
        found = await disagreements(client)
        assert (found["open"], len(found["pairs"])) == (1, 1)
        assert await labels(client) == ["A", None, "A"]
        assert ids[0] == first["id"]


async def test_a_pair_that_was_drawn_swapped_keeps_its_sides() -> None:
    store = MemoryStore()
    async with drawing(store, audit_texts=False) as client:
        await client.post("/judge", json=_pair("quality=3", "quality=0"))
    async with drawing(store) as client:
        await client.post("/judge", json={**_pair("quality=0", "quality=3"), "alpha": 0.2})
        for person, better in (("anna", "quality=3"), ("ben", "quality=0")):
            (pair,) = (await take(client, person))["pairs"]
            side = "left" if pair["left"] == better else "right"
            await answer(client, person, [{"ticket": pair["ticket"], "choice": side}])
        (found,) = (await disagreements(client))["pairs"]
        assert found["choices"] == ["left", "right"]
        best = "left" if found["left"] == "quality=3" else "right"
        label = found["left_label"] if best == "left" else "AB"["BA".index(found["left_label"])]
        await send(client, {found["id"]: label})
        # The audit is listed in the order of its first judgment, in which quality=3 is A.
        assert await labels(client) == ["A"]


def _pair(a: str, b: str) -> dict[str, str]:
    return {"question": "Swapped?", "response_a": a, "response_b": b}


async def test_the_agreement_has_kappa_and_the_noise_in_words() -> None:
    async with drawing() as client:
        assert (await disagreements(client))["words"] == "No pair has the labels of two people."
        await drawn(client, range(20))
        for start in range(0, 20, 5):
            numbers = range(start, start + 5)
            said = {f"q{number}": "AB"[number % 2] for number in numbers}
            await give(client, "anna", **said)
            await give(client, "ben", **(said | ({"q0": "B"} if start == 0 else {})))
        found = await disagreements(client)
        agreement = found["agreement"]
        assert (agreement["pairs"], agreement["disagreements"]) == (20, 1)
        # By hand: 1 of 20 differ, and 0.5 by chance.
        assert agreement["kappa"] == pytest.approx(0.9)
        low, high = agreement["kappa_interval"]
        noise = agreement["label_noise"]
        assert low < 0.9 < high <= 1
        assert 0 < noise["low"] < noise["high"] < 0.5
        assert found["words"] == (
            f"People disagreed on 1 of 20 pairs (kappa 0.90, {low:.2f} to {high:.2f}). Label noise "
            f"is at most {noise['high']:.2f}; {noise['low']:.2f} is safe to calibrate with."
        )


async def test_a_person_who_labels_alone_finishes_what_two_began() -> None:
    async with drawing() as client:
        await drawn(client, range(2))
        await give(client, "anna", q0="A", q1="A")
        (one, two) = (await take(client, "ben", people=1))["pairs"]
        rows = [{"ticket": pair["ticket"], "choice": "tie"} for pair in (one, two)]
        body = {"reviewer": "ben", "answers": rows}
        assert (await client.post(f"{QUEUE}/answers", json=body)).json()["labelled"] == 2
        assert await labels(client) == ["tie", "tie"]
        assert (await disagreements(client))["agreement"]["pairs"] == 0


async def test_only_one_or_two_people_and_a_set_that_exists() -> None:
    async with drawing() as client:
        for people in (0, 3, True, "2"):
            body = {"take": 1, "reviewers": people}
            problem(await client.post(QUEUE, json=body), "invalid_request")
        problem(await client.get("/calibrations/absent/disagreements"), "calibration_not_found")


async def test_a_reviewer_sees_no_disagreements(tmp_path: Path) -> None:
    entries = (
        entry("all", ["judge", "calibrate"]),
        entry("lab", ["label"]),
        entry("other", ["calibrate"], ["other"]),
    )
    keys = Keys(write_keys(tmp_path / "keys.json", *entries))
    async with drawing(keys=keys) as client:
        assert (await client.get(DISAGREEMENTS)).status_code == 200
        for name in ("lab", "other"):
            problem(await client.get(DISAGREEMENTS, headers=header_of(name)), "forbidden")
