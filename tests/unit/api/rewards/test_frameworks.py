"""OpenRLHF, slime and NeMo Gym get what their own code reads, to the letter."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.engines.scripted import ScriptedEngine
from tests.serving import client_of
from tests.unit.api.problems import problem
from tests.unit.api.rewards.doors import PROMPT, QUESTION, message, script

OPENRLHF, SLIME = "/rewards/openrlhf", "/rewards/slime"
VERIFY, COMPARE = "/rewards/nemo-gym/verify", "/rewards/nemo-gym/compare"
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
        "extra_logs": {"abstained": [0], "failed": [0], "tied": [0], "empty": [0]},
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
    theirs = {"prompt": turns, "response": "yes", "label": "no"}
    assert (await answer(client, SLIME, theirs, reward="soft"))["reward"] == plain["rewards"][0]


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
    body = {"prompt": "Q?", "response": "quality=1", "label": "quality=0", "metadata": {}}
    assert (await answer(client, SLIME, body))["reward"] == 1.0


async def test_a_setting_adds_end_markers() -> None:
    body = {"prompt": "Q?", "response": "quality=0<STOP></s>", "label": "quality=0"}
    async with client_of(reward_end_markers="<STOP> <END>") as client:
        assert (await answer(client, SLIME, body))["tied"] == 1
    async with client_of() as client:
        assert (await answer(client, SLIME, body))["tied"] == 0


async def test_slime_gets_an_object_for_its_reward_key(client: httpx.AsyncClient) -> None:
    body = {"prompt": "Q?", "response": "quality=0", "label": "quality=1"}
    expected = {"reward": -1.0, "abstained": 0, "failed": 0, "tied": 0, "empty": 0}
    assert await answer(client, SLIME, body) == expected
    for label in (None, "", " "):
        assert "--label-key" in await refusal(client, SLIME, {**body, "label": label})
    assert "prompt" in await refusal(client, SLIME, {**body, "prompt": None})
    assert "response" in await refusal(client, SLIME, {**body, "response": None})


def rollout(text: str = "quality=1", **fields: Any) -> dict[str, Any]:
    """NeMo Gym's body of /verify, changed by the given fields."""
    valid = {
        "responses_create_params": {"input": [{"role": "user", "content": QUESTION}]},
        "response": {"id": "r", **message(text)},
        "ground_truth": "quality=0",
    }
    return {**valid, **fields}


async def test_nemo_gym_gets_its_rollout_back_with_the_reward(client: httpx.AsyncClient) -> None:
    body = rollout(_ng_task_index=4, verifier_metadata={"a": [1, None, "\u00e9"]}, reward=7)
    assert await answer(client, VERIFY, body) == {
        **body,
        "reward": 1.0,
        "mask_sample": False,
        "failure_reason": None,
        **dict.fromkeys(("abstained", "failed", "tied", "empty"), 0),
    }
    found = await answer(client, VERIFY, rollout("quality=0"))
    assert (found["reward"], found["mask_sample"], found["tied"]) == (0.0, True, 1)
    assert found["failure_reason"] == "it equals the reference"
    found = await answer(client, VERIFY, rollout("quality=0.0"))
    assert found["failure_reason"] == "the judge abstained (no_preference)"
    found = await answer(client, VERIFY, rollout("ENDLESS"))
    assert "the limit is 8" in found["failure_reason"]
    # Silence after the reasoning is an empty response.
    thought = {"type": "reasoning", "summary": []}
    found = await answer(client, VERIFY, rollout(response={"output": [thought]}))
    assert (found["reward"], found["mask_sample"]) == (-1.0, False)


async def test_the_reference_of_a_rollout_may_have_any_name(client: httpx.AsyncClient) -> None:
    body = rollout(expected_answer="quality=2")
    found = await answer(client, VERIFY, body, reference_key="expected_answer")
    assert found["reward"] == -1.0
    assert "?reference_key=" in await refusal(client, VERIFY, rollout(ground_truth=None))


async def test_instructions_are_a_system_turn_of_the_question(client: httpx.AsyncClient) -> None:
    def asked(**params: Any) -> dict[str, Any]:
        return rollout("yes", responses_create_params=params, ground_truth="no")

    system = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    one = await answer(
        client, VERIFY, asked(input=QUESTION, instructions="Be brief."), reward="soft"
    )
    other = await answer(client, VERIFY, asked(input=system), reward="soft")
    assert one["reward"] == other["reward"] != 0.0
    assert "instructions" in await refusal(client, VERIFY, asked(input=QUESTION, instructions=3))
    assert "blank" in await refusal(client, VERIFY, asked(input=QUESTION, instructions=" "))


CALLS = {"output": [{"type": "function_call", "name": "f", "arguments": "{}", "call_id": "1"}]}
BAD_ROLLOUTS: dict[str, tuple[dict[str, Any], str]] = {
    "tool call": (rollout(response=CALLS), "a judge reads only text"),
    "no output": (rollout(response={}), "no list `output`"),
    "output of texts": (rollout(response={"output": ["x"]}), "not a message"),
    "refusal": (
        rollout(
            response={
                "output": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]
            }
        ),
        "unknown type 'refusal'",
    ),
    "no input": (rollout(responses_create_params={}), "responses_create_params"),
    "tool in the input": (
        rollout(responses_create_params={"input": [{"type": "function_call_output"}]}),
        "no role",
    ),
    "deep": (rollout(deep=json.loads("[" * 150 + "]" * 150)), "levels of lists"),
}


@pytest.mark.parametrize("name", BAD_ROLLOUTS)
async def test_a_rollout_that_is_more_than_text_is_an_error(
    client: httpx.AsyncClient, name: str
) -> None:
    body, reason = BAD_ROLLOUTS[name]
    assert reason in await refusal(client, VERIFY, body)


async def test_numbers_that_cannot_be_repeated_are_refused(client: httpx.AsyncClient) -> None:
    written = json.dumps(rollout())[:-1]
    for value in ("NaN", "1e999", '"\\ud800"', '{"\\ud800": 1}'):
        response = await client.post(
            VERIFY,
            content=f'{written}, "extra": [{value}]}}',
            headers={"Content-Type": "application/json"},
            params=ALWAYS,
        )
        problem(response, "invalid_request")


def compared(*texts: str, **fields: Any) -> dict[str, Any]:
    """NeMo Gym's body of /compare, changed by the given fields."""
    history = [{"role": "user", "content": QUESTION}]
    objects = [message(text) for text in texts]
    return {"conversation_history": history, "response_objs": objects, **fields}


async def test_nemo_gym_gets_rewards_results_and_metrics_of_a_group(
    client: httpx.AsyncClient,
) -> None:
    body = compared("quality=2", "quality=1", "quality=1.0", "quality=2", "", principle=None)
    found = await answer(client, COMPARE, body)
    assert found["rewards"] == [1.0, 0.0, 0.0, 1.0, -1.0]
    keys = ("response_i", "response_j", "judge_idx", "verdict", "reason", "error")
    assert [tuple(each[key] for key in keys) for each in found["comparison_results"]] == [
        (0, 1, 0, "A", None, None),
        (0, 2, 0, "A", None, None),
        (1, 2, 0, "abstain", "no_preference", None),
    ]
    assert found["metrics"] == {
        "responses": 5.0,
        "comparisons": 3.0,
        "accepted": 2.0,
        **dict.fromkeys(("abstained", "failed", "tied", "empty", "unopposed"), 0.0),
    }
    found = await answer(client, COMPARE, compared("a", "a", ""), empty="null")
    assert found["rewards"] == [0.0, 0.0, 0.0]
    assert (found["metrics"]["tied"], found["metrics"]["empty"]) == (2.0, 1.0)
    found = await answer(client, COMPARE, compared("ENDLESS", "a"))
    assert found["metrics"]["failed"] == 2.0
    assert found["comparison_results"][0]["error"] == "prompt_too_long"
    assert found["comparison_results"][0]["verdict"] is None


async def test_a_group_of_nemo_gym_may_be_a_ring(client: httpx.AsyncClient) -> None:
    texts = [f"quality={i}" for i in range(6)]
    found = await answer(client, COMPARE, compared(*texts), opponents=2)
    assert found["metrics"]["comparisons"] == 6.0
    found = await answer(client, COMPARE, compared(*texts), opponents=10**40)
    assert found["metrics"]["comparisons"] == 15.0, "more opponents than there are: all"
    assert (await answer(client, COMPARE, compared()))["rewards"] == []
    alone = await answer(client, COMPARE, compared("x"))
    assert (alone["rewards"], alone["metrics"]["unopposed"]) == ([0.0], 1.0)
    assert "SCOPE_PROMPT_FILE" in await refusal(client, COMPARE, compared("x", "y", principle="p"))
    wrong = {**compared("x", "y"), "conversation_history": []}
    assert "conversation_history" in await refusal(client, COMPARE, wrong)
    for opponents in ("0", "-1", "two", "9" * 5000):
        response = await client.post(
            COMPARE, json=compared("x", "y"), params={"opponents": opponents}
        )
        assert problem(response, "invalid_request")["errors"][0]["field"] == "opponents"
