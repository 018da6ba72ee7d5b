"""Best-of-8 rewards by real vLLM: the alarm is of the set whose traffic goes bad."""

import asyncio
import random
from collections.abc import Callable, Iterator
from itertools import islice
from string import ascii_lowercase, digits
from typing import Any, NamedTuple

import httpx
import pytest

from app.demo.pairs import demo_sets, pairs
from app.judges.engines.openai_remote import OpenAiEngine, OpenAiOptions
from app.judges.engines.openai_servers import Endpoints
from tests.integration.engines.vllm_server import FOLDER, KEY, MODEL
from tests.serving import client_of

pytestmark = pytest.mark.vllm

# Calibrated with these examples, the demo judge accepts nearly all verdicts at this alpha.
ALPHA, EXAMPLES = 0.2, 100
RATE, RESPONSES = 0.3, 8
# The alarm of the bad traffic must be raised within this many rounds.
ROUNDS = 10


class BestOf(NamedTuple):
    """A question of the traffic, whose responses are all wrong but one."""

    calibration: str
    question: str
    responses: list[str]
    right: int

    def preferred(self, compared: dict[str, Any]) -> str:
        """The true label of a comparison; two wrong responses are a tie."""
        return {compared["a"]: "A", compared["b"]: "B"}.get(self.right, "tie")

    def disliked(self, compared: dict[str, Any]) -> str:
        """The opposite label."""
        return {"A": "B", "B": "A", "tie": "tie"}[self.preferred(compared)]


def tasks(calibration: str, family: str, answers: list[str]) -> Iterator[BestOf]:
    """Different tasks of a family of the demo judge that it was never trained on."""
    rng, asked = random.Random(8), set[str]()
    for pair in pairs(8, held_out=True, families=(family,)):
        if pair.question not in asked:
            asked.add(pair.question)
            right = pair.response_a if pair.label == "A" else pair.response_b
            wrong = [answer for answer in answers if answer != right]
            responses = rng.sample([right, *rng.sample(wrong, RESPONSES - 1)], RESPONSES)
            yield BestOf(calibration, pair.question, responses, responses.index(right))


async def audited(
    client: httpx.AsyncClient, task: BestOf, people: Callable[[dict[str, Any]], str]
) -> None:
    """Rewards the responses of a task, and labels those comparisons that are drawn."""
    asked = {
        "question": task.question,
        "responses": task.responses,
        "calibration": task.calibration,
    }
    body = {**asked, "alpha": ALPHA, "opponents": 4, "comparisons": True}
    rewarded = (await client.post("/rewards/group", json=body)).raise_for_status().json()
    labels = [
        {"id": compared["judgment"]["audit"]["id"], "label": people(compared)}
        for compared in rewarded["comparisons"]
        if compared["judgment"]["audit"] is not None
    ]
    if labels:
        answer = await client.post("/audits/labels", json={"labels": labels})
        assert answer.raise_for_status().json()["labelled"] == len(labels)


async def monitored(client: httpx.AsyncClient) -> dict[str, dict[str, Any]]:
    """The audited criterion of each set."""
    found = {}
    for name in ("numbers", "words"):
        answer = await client.get(f"/calibrations/{name}/monitor")
        (found[name],) = answer.raise_for_status().json()["criteria"]
        assert found[name]["open"] == 0
    return found


async def test_the_alarm_of_audited_rewards_is_of_the_set_that_goes_bad(server_url: str) -> None:
    endpoints = Endpoints(urls=(server_url,), api_key=KEY)
    options = OpenAiOptions(endpoints=endpoints, model=MODEL, judge="demo", tokenizer=FOLDER)
    async with client_of(OpenAiEngine(options), audit_rate=RATE) as client:
        shipped = (pair._asdict() for pair in demo_sets().calibrate[:EXAMPLES])
        examples = [{k: v for k, v in pair.items() if k != "family"} for pair in shipped]
        for name in ("numbers", "words"):
            body = {"calibration": name, "examples": examples}
            calibrated = (await client.post("/calibrate", json=body)).json()
            assert calibrated["added"] == EXAMPLES
        words = tasks("words", "letter", list(ascii_lowercase))
        numbers = tasks("numbers", "count", list(digits))

        good = [*islice(words, 16), *islice(numbers, 16)]
        await asyncio.gather(*(audited(client, task, task.preferred) for task in good))
        sets = await monitored(client)
        assert not any(each["alarm"] for each in sets.values()), sets
        # The labels count: a question has 4 comparisons with a side, so a draw in 3 of 4 cases.
        assert all(each["questions"] >= 4 for each in sets.values())

        # People begin to prefer the wrong numbers.
        for _ in range(ROUNDS):
            more = [audited(client, task, task.preferred) for task in islice(words, 3)]
            more += [audited(client, task, task.disliked) for task in islice(numbers, 3)]
            await asyncio.gather(*more)
            sets = await monitored(client)
            if sets["numbers"]["alarm"]:
                break
        assert {name: each["alarm"] for name, each in sets.items()} == {
            "numbers": True,
            "words": False,
        }
