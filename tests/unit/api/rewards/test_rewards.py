"""Rewards of groups and against references: numbers, cost, equal texts, errors and bad input."""

import math
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx
import pytest

from app.judges.engines.scripted import ScriptedEngine
from app.ports import CallTimes, LabelLogits, Prompt, PromptError
from scope_judge import records
from tests.serving import client_of
from tests.unit.api.problems import calibrated, problem
from tests.unit.api.rewards.reward_routes import PROMPT, script
from tests.unit.api.test_api import check


class CountingEngine(ScriptedEngine):
    """Notes the number of prompts of each call."""

    def __init__(self) -> None:
        super().__init__(script)
        self.sizes = list[int]()

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        self.sizes.append(len(prompts))
        return await super().label_logits(prompts, times)


@pytest.fixture
def engine() -> CountingEngine:
    return CountingEngine()


@pytest.fixture
async def client(engine: CountingEngine) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(engine) as client:
        yield client


def qualities(*numbers: float) -> list[str]:
    return [f"quality={number}" for number in numbers]


def group(responses: Sequence[Any], **fields: Any) -> dict[str, Any]:
    return {"question": "Which?", "responses": list(responses), "alpha": None, **fields}


async def rewarded(
    client: httpx.AsyncClient, body: dict[str, Any], path: str = "/rewards/group"
) -> dict[str, Any]:
    response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def test_a_group_is_rewarded_by_its_accepted_comparisons(client: httpx.AsyncClient) -> None:
    await calibrated(client)
    found = await rewarded(client, group(qualities(2, 0, 1), alpha=0.2))
    assert found.pop("basis") == {
        "judge": "scripted",
        "alpha": 0.2,
        "guarantee": "marginal",
        "delta": None,
        "calibration": {"name": "default", "version": 1, "n": 60},
    }
    assert found == {
        "rewards": [1.0, -1.0, 0.0],
        "reasons": [None] * 3,
        "accepted": [2] * 3,
        "compared": [2] * 3,
        "ties": [0] * 3,
        "errors": [],
        "comparisons": None,
        "usage": {"engine_prompts": 6, "prompt_tokens": 0, "large": None},
    }
    soft = await rewarded(client, group(qualities(2, 0, 1), alpha=0.2, reward="soft"))
    one, two = (2 / (1 + math.exp(-gap)) - 1 for gap in (1.0, 2.0))
    mean = (one + two) / 2
    assert soft["rewards"] == [pytest.approx(mean), pytest.approx(-mean), pytest.approx(0)]


async def test_the_comparisons_come_on_demand(client: httpx.AsyncClient) -> None:
    found = await rewarded(client, group(["", *qualities(2, 0)], comparisons=True))
    ((pair),) = found["comparisons"]
    assert (pair["a"], pair["b"]) == (1, 2)
    check(pair["judgment"], records.Judgment)
    assert pair["judgment"]["verdict"] == "A"
    body = group(qualities(0, 2), reference="quality=1", comparisons=True)
    found = await rewarded(client, body, "/rewards/reference")
    assert found["rewards"] == [-1.0, 1.0]
    assert [(each["a"], each["b"]) for each in found["comparisons"]] == [(0, None), (1, None)]


async def test_several_groups_are_one_engine_call(
    client: httpx.AsyncClient, engine: CountingEngine
) -> None:
    draw = random.Random(5)
    groups = [
        {"question": f"Question {i}?", "responses": qualities(*draw.sample(range(9), 4))}
        for i in range(5)
    ]
    options = {"alpha": None, "opponents": 2, "reward": "soft"}
    both = await rewarded(client, {"groups": groups, **options}, "/rewards/groups")
    assert engine.sizes == [5 * 4 * 2]
    assert both["usage"]["engine_prompts"] == 5 * 4 * 2
    alone = [await rewarded(client, {**each, **options}) for each in groups]
    assert {row.pop("usage")["engine_prompts"] for row in alone} == {4 * 2}
    assert both["groups"] == alone
    nothing = await rewarded(client, {"groups": []}, "/rewards/groups")
    usage = {"engine_prompts": 0, "prompt_tokens": 0, "large": None}
    assert nothing == {"groups": [], "usage": usage}


async def test_an_error_of_one_comparison_leaves_the_others(client: httpx.AsyncClient) -> None:
    found = await rewarded(client, group([*qualities(1, 0), "ENDLESS"], comparisons=True))
    assert found["rewards"] == [1.0, -1.0, None]
    assert found["reasons"] == [None, None, "failed"]
    assert found["accepted"] == [1, 1, 0]
    assert found["compared"] == [2, 2, 2]
    assert [(each["a"], each["b"]) for each in found["errors"]] == [(0, 2), (1, 2)]
    assert {each["error"]["code"] for each in found["errors"]} == {"prompt_too_long"}
    assert len(found["comparisons"]) == 1
    # A failed judgment next to others is an error of its pair, too.
    found = await rewarded(client, group([*qualities(1, 0), "BROKEN"]))
    assert found["reasons"] == [None, None, "failed"]
    assert {each["error"]["code"] for each in found["errors"]} == {"judgment_failed"}
    # Without any judgment, an error that no text has caused is the request's.
    problem(await client.post("/rewards/group", json=group(["BROKEN", "x"])), "judgment_failed")
    found = await rewarded(client, group(["ENDLESS", "x", "y"]))
    assert found["reasons"] == ["failed", None, None]


CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]}
BAD_GROUPS: dict[str, tuple[dict[str, Any], str, str]] = {
    "empty group": (group([]), "responses", "at least 1 item"),
    "no list": ({**group([]), "responses": "x"}, "responses", "valid array"),
    "number": (group(["x", 3]), "responses.1", "nor a list of messages"),
    "several texts": (group(["x", ["y", "z"]]), "responses.1", "one text"),
    "tool call": (group(["x", [CALL]]), "responses.1", "calls a tool"),
    "null content": (
        group(["x", [{"role": "assistant", "content": None}]]),
        "responses.1",
        "no content",
    ),
    "the user's message": (
        group(["x", [{"role": "user", "content": "y"}]]),
        "responses.1",
        "one message of the assistant",
    ),
    "blank question": (group(["x", "y"], question=" "), "question", "blank"),
    "question of the assistant": (
        group(["x", "y"], question=[{"role": "assistant", "content": "y"}]),
        "question",
        "at least one user turn",
    ),
    "no question": (
        {"responses": ["x", "y"]},
        "question",
        "required",
    ),
    "no opponents": (group(["x", "y"], opponents=0), "opponents", "greater than or equal to 1"),
    "opponents in words": (group(["x", "y"], opponents="two"), "opponents", "'all'"),
    "true": (group(["x", "y"], opponents=True), "opponents", "valid integer"),
    "no accepted comparison": (group(["x", "y"], min_accepted=0), "min_accepted", "above 0"),
    "comparisons": (group(["x", "y"], comparisons="yes"), "comparisons", "boolean"),
    "unknown field": (group(["x", "y"], oponents=2), "oponents", "no such field"),
}


@pytest.mark.parametrize("name", BAD_GROUPS)
async def test_a_bad_group_gets_a_message_that_names_the_field(
    client: httpx.AsyncClient, name: str
) -> None:
    body, field, message = BAD_GROUPS[name]
    found = problem(await client.post("/rewards/group", json=body), "invalid_request")
    (fault,) = found["errors"]
    assert fault["field"] == field
    assert message in fault["message"]
    # As one of several groups it gets the same error, and its neighbors get their rewards.
    if field.split(".")[0] in ("responses", "question"):
        bad = {key: body[key] for key in ("question", "responses") if key in body}
        good = {"question": "Q?", "responses": qualities(1, 0)}
        several = {"groups": [good, bad, good], "alpha": None}
        before, error, after = (await rewarded(client, several, "/rewards/groups"))["groups"]
        assert before["rewards"] == after["rewards"] == [1.0, -1.0]
        assert error["error"]["code"] == "invalid_request"
        assert [each["field"] for each in error["error"]["errors"]] == [field]


async def test_options_decide_on_responses_with_few_or_no_accepted_comparisons(
    client: httpx.AsyncClient,
) -> None:
    texts = qualities(3, 2, 1)
    few = await rewarded(client, group(texts, min_accepted=3))
    assert (few["rewards"], few["reasons"]) == ([None] * 3, ["few_accepted"] * 3)
    enough = await rewarded(client, group(texts, min_accepted=0.99))
    assert enough["rewards"] == [1.0, 0.0, -1.0]
    for overlong, reward in (("null", None), ("loses", -1.0)):
        found = await rewarded(client, group(["ENDLESS " * 3, "quality=1", " "], overlong=overlong))
        assert found["rewards"] == [reward, None, -1.0]


async def test_groups_with_a_reference_are_rewarded_beside_the_others(
    client: httpx.AsyncClient, engine: CountingEngine
) -> None:
    question, responses = "Which?", qualities(0, 2)
    of_reference = {"question": question, "responses": responses, "reference": "quality=1"}
    groups = [{"question": question, "responses": responses}, of_reference, {**of_reference}]
    groups[2]["reference"] = " "
    found = await rewarded(client, {"groups": groups, "alpha": None}, "/rewards/groups")
    assert engine.sizes == [2 * 3]
    alone = await rewarded(client, {**of_reference, "alpha": None}, "/rewards/reference")
    del alone["usage"]
    assert [each.get("rewards") for each in found["groups"]] == [[-1.0, 1.0]] * 2 + [None]
    assert found["groups"][1] == alone
    assert "the reference is blank" in found["groups"][2]["error"]["detail"]


async def test_an_error_of_the_rule_is_that_of_the_request(client: httpx.AsyncClient) -> None:
    body = {"groups": [{"question": " ", "responses": ["x"]}], "alpha": 10}
    problem(await client.post("/rewards/groups", json=body), "invalid_request")
    body = {"groups": [{"question": " ", "responses": ["x"]}], "alpha": None, "delta": 0.1}
    problem(await client.post("/rewards/groups", json=body), "invalid_request")


async def test_a_blank_reference_is_refused_instead_of_losing(client: httpx.AsyncClient) -> None:
    body = {"question": "Which?", "reference": " ", "responses": ["x"]}
    found = problem(await client.post("/rewards/reference", json=body), "invalid_request")
    assert "the reference is blank" in found["detail"]


async def test_too_many_comparisons_are_refused_with_their_number_and_the_remedy() -> None:
    async with client_of(max_pending=200) as client:
        body = group(qualities(*range(15)))
        found = problem(await client.post("/rewards/group", json=body), "batch_too_large")
        assert "make 105 comparisons and the limit is 100" in found["detail"]
        assert '"opponents": k makes n k / 2 comparisons' in found["detail"]
        fewer = await rewarded(client, {**body, "opponents": 13})
        assert fewer["compared"].count(13) == 14
        both = {
            "alpha": None,
            "groups": [{"question": "Q?", "responses": qualities(*range(11))}] * 2,
        }
        found = problem(await client.post("/rewards/groups", json=both), "batch_too_large")
        assert "110 comparisons" in found["detail"]
        body = {"question": "Q?", "reference": "x", "responses": qualities(*range(101))}
        found = problem(await client.post("/rewards/reference", json=body), "batch_too_large")
        assert "101 comparisons" in found["detail"]
        # The pairs of a huge group are counted without being made.
        texts = [str(i) for i in range(200)]
        found = problem(await client.post("/rewards/group", json=group(texts)), "batch_too_large")
        assert "19900 comparisons" in found["detail"]


# Path -> number of responses -> body of a request without a comparison.
SILENT: dict[str, Callable[[int], dict[str, Any]]] = {
    "/rewards/group": lambda count: group([""] * count, alpha=None),
    "/rewards/groups": lambda count: {
        "alpha": None,
        "groups": [{"question": "Q?", "responses": ["", ""]}] * (count // 2 - 1)
        + [{"question": "Q?", "responses": [""] * (2 + count % 2)}],
    },
    "/rewards/reference": lambda count: {
        "alpha": None,
        "question": "Q?",
        "reference": "x",
        "responses": ["x"] * count,
    },
    "/rewards/openrlhf?alpha=null": lambda count: {
        "query": [PROMPT] * count,
        "prompts": [PROMPT] * count,
        "labels": ["x"] * count,
    },
}


@pytest.mark.parametrize("path", SILENT)
async def test_equal_and_blank_responses_are_limited_although_they_make_no_comparison(
    path: str,
) -> None:
    async with client_of(max_pending=20) as client:
        answer = await client.post(path, json=SILENT[path](20))
        assert answer.status_code == 200, answer.text
        found = problem(await client.post(path, json=SILENT[path](21)), "batch_too_large")
        assert "the request has 21 responses and the limit is 20" in found["detail"]


async def test_a_long_question_is_refused_if_it_would_be_repeated_too_often() -> None:
    async with client_of(max_body_bytes=5_000) as client:
        # 28 comparisons of 1,064 + 2 * 100 characters are fewer than 80,000, and 3,064 are not.
        texts = [f"quality={i} ".ljust(100, "x") for i in range(8)]
        small = group(texts, question="Q" * 1000)
        assert (await rewarded(client, small))["accepted"] == [7] * 8
        body = group(texts, question="Q" * 3000)
        found = problem(await client.post("/rewards/group", json=body), "batch_too_large")
        assert "28 comparisons have 91392 characters together" in found["detail"]
        assert "the limit is 80000" in found["detail"]
        assert (await rewarded(client, {**body, "opponents": 2}))["accepted"] == [2] * 8
        # Each short turn costs something, too.
        turns = [{"role": "user", "content": "Q"}] * 100
        body = group(texts, question=turns)
        problem(await client.post("/rewards/group", json=body), "batch_too_large")
        short = [f"{i:02}" for i in range(40)]
        body = {"question": "Q" * 1000, "responses": short, "reference": "x" * 2000}
        found = problem(await client.post("/rewards/reference", json=body), "batch_too_large")
        assert "40 comparisons have 122640 characters" in found["detail"]
