"""No response gets a reward from a response that was never judged."""

from typing import Any

import httpx
import pytest

from app.judges.engines.scripted import ScriptedEngine
from tests.serving import client_of
from tests.unit.api.problems import calibrated, comparison, problem
from tests.unit.api.rewards.reward_routes import script

# The scripted judge prefers the higher quality; at alpha 0.001 it accepts nothing.
TEXTS = ["quality=3", "quality=2", "quality=1"]


async def rewards(client: httpx.AsyncClient, responses: list[str], **rule: Any) -> dict[str, Any]:
    body = {"question": "Which?", "responses": responses, **rule}
    answer = await client.post("/rewards/group", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("rule", [{}, {"reward": "soft"}, {"opponents": 1}])
@pytest.mark.parametrize("empty", ["", " \n"])
async def test_an_abstention_beside_an_empty_response_stays_without_a_reward(
    empty: str, rule: dict[str, Any]
) -> None:
    async with client_of(ScriptedEngine(script)) as client:
        await calibrated(client)
        found = await rewards(client, [*TEXTS, empty], alpha=0.001, **rule)
    assert found["rewards"] == [None, None, None, -1.0]


async def test_an_overlong_response_beside_an_empty_one_has_no_reward() -> None:
    async with client_of(ScriptedEngine(script)) as client:
        await calibrated(client)
        for responses in (["ENDLESS " * 3, ""], ["ENDLESS " * 3, "quality=1", " "]):
            found = await rewards(client, responses)
            assert found["rewards"] == [*[None] * (len(responses) - 1), -1.0]
            found = await rewards(client, responses, overlong="loses")
            lost = [-1.0] if "quality=1" in responses else [None]
            assert found["rewards"] == [*lost, *[None] * (len(responses) - 2), -1.0]


async def test_few_accepted_comparisons_may_give_no_reward() -> None:
    async with client_of(ScriptedEngine(script)) as client:
        await calibrated(client)
        found = await rewards(client, TEXTS, min_accepted=3)
        assert (found["rewards"], found["reasons"]) == ([None] * 3, ["few_accepted"] * 3)
        assert (await rewards(client, TEXTS, min_accepted=0.99))["rewards"] == [1.0, 0.0, -1.0]
        for wrong in (0, -1, 1.5, True, "x"):
            body = {"question": "Which?", "responses": TEXTS, "min_accepted": wrong}
            problem(await client.post("/rewards/group", json=body), "invalid_request")


async def test_nothing_is_won_from_an_empty_response_under_an_alarm() -> None:
    async with client_of(ScriptedEngine(script), audit_rate=1.0, on_alarm="abstain") as client:
        await calibrated(client)
        labels = []
        for number in range(80):
            asked = comparison(question=f"Asked {number}?", alpha=0.1)
            judged = (await client.post("/judge", json=asked)).json()
            labels.append({"id": judged["audit"]["id"], "label": "B"})
        (await client.post("/audits/labels", json={"labels": labels})).raise_for_status()
        assert (await client.get("/calibrations/default/monitor")).json()["alarm"]
        suspended = (await client.post("/judge", json=comparison(alpha=0.1))).json()
        assert suspended["reason"] == "suspended"
        found = await rewards(client, [*TEXTS, ""], alpha=0.1)
        assert found["rewards"] == [None, None, None, -1.0]
        assert found["reasons"] == ["suspended"] * 3 + [None]


async def test_rewards_beside_an_empty_response_are_those_without_it() -> None:
    async with client_of(ScriptedEngine(script)) as client:
        await calibrated(client)
        for rule in ({}, {"reward": "soft"}, {"empty": "null"}):
            alone = (await rewards(client, TEXTS, **rule))["rewards"]
            assert None not in alone
            beside = (await rewards(client, [*TEXTS, "", " "], **rule))["rewards"]
            assert beside == [*alone, *([None] * 2 if "empty" in rule else [-1.0] * 2)]
