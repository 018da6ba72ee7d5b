"""OpenRLHF gets what its own code reads, to the letter."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.judges.engines.scripted import ScriptedEngine
from tests.serving import client_of
from tests.unit.api.problems import problem
from tests.unit.api.rewards.reward_routes import FLAGS, PROMPT, script

OPENRLHF = "/rewards/openrlhf"
ALWAYS = {"alpha": "null"}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(ScriptedEngine(script)) as client:
        yield client


async def answer(client: httpx.AsyncClient, path: str, body: Any, **options: Any) -> Any:
    response = await client.post(path, json=body, params={**ALWAYS, **options})
    assert response.status_code == 200, response.text
    return response.json()


async def refusal(client: httpx.AsyncClient, path: str, body: Any) -> str:
    found = problem(await client.post(path, json=body, params=ALWAYS), "invalid_request")
    detail: str = found["detail"]
    return detail


def samples(**fields: Any) -> dict[str, Any]:
    """OpenRLHF's body with one sample, changed by the given fields."""
    valid = {"query": [f"{PROMPT}quality=1</s>"], "prompts": [PROMPT], "labels": ["quality=0"]}
    return {**valid, **fields}


async def test_openrlhf_gets_lists_of_numbers_with_the_same_logs_every_time(
    client: httpx.AsyncClient,
) -> None:
    assert await answer(client, OPENRLHF, samples()) == {
        "rewards": [1.0],
        "scores": [1.0],
        "extra_logs": {name: [0] for name in FLAGS},
    }
    # A response without text loses; one that equals the reference is a tie; both in one call.
    body = samples(
        query=[f"{PROMPT}<|im_end|>", f"{PROMPT}quality=0<|im_end|>", f"{PROMPT}ENDLESS"],
        prompts=[PROMPT] * 3,
        labels=["quality=0"] * 3,
    )
    assert await answer(client, OPENRLHF, body) == {
        "rewards": [-1.0, 0.0, 0.0],
        "scores": [0.0, 0.5, 0.5],
        "extra_logs": {
            "suspended": [0, 0, 0],
            "infeasible": [0, 0, 0],
            "abstained": [0, 0, 0],
            "failed": [0, 0, 1],
            "tied": [0, 1, 0],
            "empty": [0, 0, 0],
        },
    }
    empty = await answer(client, OPENRLHF, {"query": [], "prompts": [], "labels": []})
    assert empty["rewards"] == []


async def test_the_conversation_of_a_rendered_prompt_is_judged_as_by_messages(
    client: httpx.AsyncClient,
) -> None:
    """Texts without a stated quality get a gap from the whole prompt: equal only if it is equal."""
    rendered = (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhich?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    body = {"query": [f"{rendered}yes<|im_end|>"], "prompts": [rendered], "labels": ["no"]}
    ours = await answer(client, OPENRLHF, body, reward="soft")
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Which?"}]
    reference = {"question": turns, "responses": ["yes"], "reference": "no"}
    reference |= {"alpha": None, "reward": "soft"}
    plain = (await client.post("/rewards/reference", json=reference)).json()
    assert ours["rewards"] == plain["rewards"]


BAD_SAMPLES: dict[str, tuple[dict[str, Any], str]] = {
    "no label": (samples(labels=[None]), "labels.0: the sample has no reference response"),
    "empty label": (samples(labels=[""]), "--data.label_key"),
    "number as label": (samples(labels=[3]), "labels.0"),
    "lengths": (samples(labels=[]), "the same length"),
    "other prompt": (samples(prompts=["Another prompt"]), "does not begin with its prompt"),
    "no list": (samples(query="x"), "query"),
    "blank prompt": (samples(query=["x"], prompts=[" "]), "prompts.0"),
    "number as query": (samples(query=[1]), "query.0"),
    "missing": ({"query": [], "prompts": []}, "labels"),
}


@pytest.mark.parametrize("name", BAD_SAMPLES)
async def test_a_sample_that_cannot_be_read_is_an_error(
    client: httpx.AsyncClient, name: str
) -> None:
    body, reason = BAD_SAMPLES[name]
    assert reason in await refusal(client, OPENRLHF, body)


async def test_more_fields_of_a_newer_framework_are_ignored(client: httpx.AsyncClient) -> None:
    assert (await answer(client, OPENRLHF, samples(images=[None])))["rewards"] == [1.0]
