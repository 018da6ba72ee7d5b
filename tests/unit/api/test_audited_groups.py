"""Best-of-8 traffic over HTTP, with audits of which people label every one; a group that goes bad.

28 pairs of a question are wrong together: the errors of each question have a rate of their own,
with an intra-question correlation of 0.3.
"""

import random
from typing import Any

import httpx
import pytest

from tests.serving import client_of
from tests.unit.api.problems import examples

PATH = "/calibrations/default/monitor"
ALPHA, ERROR, CORRELATION = 0.1, 0.08, 0.3
RESPONSES = [f"quality={3 * quality}" for quality in range(8)]
PAIRS = [(a, b) for i, a in enumerate(RESPONSES) for b in RESPONSES[:i]]


class People:
    """They label the verdicts about a question: wrong at a rate that the question has."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def labels(self, judged: list[dict[str, Any]], *, error: float) -> list[dict[str, str]]:
        """The labels of the audits of one question, whose error has this mean."""
        size = 1 / CORRELATION - 1
        rate = self._random.betavariate(error * size, (1 - error) * size)
        return [
            {"id": each["audit"]["id"], "label": self._label(each["verdict"], rate)}
            for each in judged
            if each["audit"] is not None
        ]

    def _label(self, verdict: str, rate: float) -> str:
        is_wrong = self._random.random() < rate
        return {"A": "B", "B": "A"}[verdict] if is_wrong else verdict


async def label(client: httpx.AsyncClient, labels: list[dict[str, str]]) -> None:
    if labels:
        (await client.post("/audits/labels", json={"labels": labels})).raise_for_status()


async def criterion(client: httpx.AsyncClient) -> dict[str, Any]:
    (found,) = (await client.get(PATH)).raise_for_status().json()["criteria"]
    shown: dict[str, Any] = found
    return shown


@pytest.mark.parametrize(
    ("runs", "judgments"), [(1, 1000), pytest.param(20, 5000, marks=pytest.mark.long)]
)
async def test_best_of_eight_raises_no_false_alarm(runs: int, judgments: int) -> None:
    for run in range(runs):
        people = People(run)
        async with client_of(audit_rate=0.3) as client:
            (await client.post("/calibrate", json={"examples": examples(100)})).raise_for_status()
            questions = judgments // len(PAIRS)
            for number in range(questions):
                body = {"question": f"Which, {number}?", "responses": RESPONSES, "alpha": ALPHA}
                answer = await client.post("/rewards/group", json={**body, "comparisons": True})
                comparisons = answer.raise_for_status().json()["comparisons"]
                judged = [each["judgment"] for each in comparisons]
                assert len(judged) == len(PAIRS)
                await label(client, people.labels(judged, error=ERROR))
                if number % 20 == 0:
                    assert not (await criterion(client))["alarm"]
            found = await criterion(client)
            assert not found["alarm"]
            assert (found["open"], found["repeated"]) == (0, 0)
            assert 0.9 * questions < found["questions"] <= questions
            assert found["audited"] > 5 * questions


async def test_a_group_of_best_of_eight_that_goes_bad_is_named_by_its_alarm() -> None:
    people = People(3)
    async with client_of(audit_rate=0.3, groups="math,code", on_alarm="abstain") as client:
        (await client.post("/calibrate", json={"examples": examples(100)})).raise_for_status()

        async def ask(number: int, group: str) -> list[dict[str, Any]]:
            pairs = [
                {"question": f"Which, {number}?", "response_a": a, "response_b": b, "group": group}
                for a, b in PAIRS
            ]
            body = {"comparisons": pairs, "alpha": ALPHA}
            answer = (await client.post("/judge/batch", json=body)).raise_for_status()
            judged: list[dict[str, Any]] = answer.json()["results"]
            return judged

        for number in range(80):
            group = "code" if number % 4 == 0 else "math"
            judged = await ask(number, group)
            if {each["reason"] for each in judged} == {"suspended"}:
                break
            is_bad = group == "code" and number >= 20
            await label(client, people.labels(judged, error=0.7 if is_bad else 0.03))
            await criterion(client)
        assert (number >= 20, group) == (True, "code")
        found = await criterion(client)
        code, math = found["groups"]
        assert (code["group"], code["alarm"], code["suspended"]) == ("code", True, True)
        assert (math["group"], math["alarm"], math["suspended"]) == ("math", False, False)
        assert code["alarm_evidence"] == 2 * found["alarm_evidence"] == 80.0
        assert not found["alarm"]
        told = (await client.get(PATH)).json()
        assert (told["alarm"], told["light"]) == (True, "red")
        assert "in the group code" in told["summary"]
        assert "verdicts in the group code are wrong" in told["note"]
        assert {each["verdict"] for each in await ask(1000, "math")} == {"A"}
        trail = (await client.get("/calibrations/default/audit-trail")).json()["entries"]
        assert [(each["event"], each["group"]) for each in trail] == [("alarm", "code")]
        # The end of its alarm gives the group its verdicts back.
        body = {"reason": "the labels were those of another project"}
        answer = await client.post("/calibrations/default/resume", json=body)
        (resumed,) = answer.raise_for_status().json()["resumed"]
        assert resumed["group"] == "code"
        assert {each["verdict"] for each in await ask(1001, "code")} == {"A"}
