"""Reward models behind servers: routes, order, fail-over, and servers that cannot be used."""

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.core.comparison import Turn
from app.core.errors import JudgmentFailedError, PromptTooLongError, StartupError
from app.core.fingerprint import JudgeIdentity
from app.judges.engines.openai_reward import OpenAiRewardModel
from app.judges.engines.openai_servers import Endpoints
from app.judges.engines.rendering import ConversationRenderer, load_tokenizer
from app.ports import CallTimes, Conversation
from app.settings import Settings
from tests.patience import PATIENCE_S
from tests.unit.judges.engines.openai_fake import FakeServer, response, reward_of, serving
from tests.unit.judges.engines.openai_scene import FOLDER

RENDERER = ConversationRenderer(load_tokenizer(FOLDER), max_prompt_tokens=2048)


def served(**given: Any) -> FakeServer:
    return FakeServer(rewards=True, **given)


def conversations(count: int) -> list[Conversation]:
    return [(Turn("user", "Which?"), Turn("assistant", f"number {i}")) for i in range(count)]


def expected(asked: Sequence[Conversation]) -> list[float]:
    rewards = []
    for ids in RENDERER.token_ids(asked):
        assert isinstance(ids, list)
        rewards.append(reward_of(ids))
    return rewards


def model_of(*servers: FakeServer) -> OpenAiRewardModel:
    endpoints = Endpoints(
        urls=tuple(server.url for server in servers), timeout_s=PATIENCE_S, probe_every_s=0.02
    )
    settings = Settings(engine="openai", model="the-judge", tokenizer=FOLDER)
    return OpenAiRewardModel(endpoints, settings)


@asynccontextmanager
async def started(
    *servers: FakeServer,
) -> AsyncIterator[tuple[OpenAiRewardModel, JudgeIdentity]]:
    """A started model; the requests of the start are not counted."""
    async with serving(*servers):
        model = model_of(*servers)
        try:
            identity = await model.start()
            for server in servers:
                server.asked.clear()
            yield model, identity
        finally:
            await model.stop()


async def refusal(*servers: FakeServer) -> str:
    with pytest.raises(StartupError) as caught:
        async with started(*servers):
            pass
    return caught.value.detail


async def test_raw_rewards_come_in_order() -> None:
    server = served()
    async with started(server) as (model, identity):
        asked, times = conversations(70), CallTimes()
        assert await model.rewards(asked, times) == expected(asked)
        bodies = [body for path, body in server.asked if path == "/classify"]
        assert sum(len(body["input"]) for body in bodies) == 70
        assert {body["use_activation"] for body in bodies} == {False}
        assert times.prompt_tokens == sum(len(ids) for body in bodies for ids in body["input"])
        assert await model.rewards([]) == []
    assert identity.max_prompt_tokens == 2048
    assert identity.inputs["weights"] == "remote the-judge org/judge"


async def test_a_server_that_answers_through_a_sigmoid_is_refused_with_the_reason() -> None:
    def through_sigmoid(answer: dict[str, Any]) -> dict[str, Any]:
        return {"data": [{**entry, "probs": [1.0]} for entry in answer["data"]]}

    detail = await refusal(served(change=through_sigmoid))
    assert "two different responses the same reward (1.0)" in detail
    assert "sigmoid" in detail


async def test_a_server_without_a_route_for_rewards_is_refused() -> None:
    assert "it has no /classify" in await refusal(FakeServer())


def data(change: Callable[[list[dict[str, Any]]], Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda answer: {"data": change(answer["data"])}


@pytest.mark.parametrize(
    "change",
    [
        data(lambda entries: entries[1:]),
        data(lambda entries: [{**each, "index": 7} for each in entries]),
        data(lambda entries: [{**each, "probs": [0.1, 0.2, 0.7]} for each in entries]),
        data(lambda entries: [{**each, "probs": [math.nan]} for each in entries]),
        data(lambda entries: [{**each, "probs": [-math.inf]} for each in entries]),
        data(lambda entries: [{**each, "probs": []} for each in entries]),
        data(lambda entries: [{**each, "probs": ["1"]} for each in entries]),
        data(lambda entries: [{**each, "probs": [True]} for each in entries]),
        data(lambda entries: [{**each, "probs": [10**400]} for each in entries]),
        data(lambda entries: None),
        lambda answer: {},
    ],
)
async def test_a_wrong_answer_is_an_error_and_no_reward(
    change: Callable[[dict[str, Any]], Any],
) -> None:
    assert "cannot judge at all" in await refusal(served(change=change))
    server = served()
    async with started(server) as (model, _):
        server.change = change
        found = await model.rewards(conversations(3))
        assert [type(each) for each in found] == [JudgmentFailedError] * 3


async def test_a_conversation_that_the_server_refuses_fails_alone() -> None:
    asked = conversations(5)
    (bad,) = RENDERER.token_ids([asked[2]])

    def refuse(path: str, body: dict[str, Any]) -> bytes | None:
        return response(400, b"{}") if bad in body.get("input", []) else None

    server = served()
    async with started(server) as (model, _):
        server.trouble = refuse
        found = await model.rewards(asked)
    assert isinstance(found[2], JudgmentFailedError)
    assert [*found[:2], *found[3:]] == expected([*asked[:2], *asked[3:]])


async def test_a_conversation_that_is_too_long_is_not_sent() -> None:
    server = served(card={"max_model_len": 64})
    async with started(server) as (model, identity):
        long = (Turn("user", "Which?"), Turn("assistant", "one " * 100))
        found = await model.rewards([*conversations(1), long])
        assert isinstance(found[0], float)
        assert isinstance(found[1], PromptTooLongError)
        assert sum(len(body["input"]) for _, body in server.asked if "input" in body) == 1
    assert identity.max_prompt_tokens == 64
