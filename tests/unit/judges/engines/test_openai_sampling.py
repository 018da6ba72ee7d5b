"""Parameters of sampled answers that servers refuse or ignore, and how votes are asked then."""

from typing import Any

import pytest

from app.core.errors import StartupError
from app.ports import Generated, Sampling
from tests.unit.judges.engines.openai_fake import FakeServer
from tests.unit.judges.engines.openai_scene import identity_of, prompts_of, started

ASKED = Sampling(max_tokens=16, temperature=1.0, seeds=[5, 9], n=3)


def server_of(**given: Any) -> FakeServer:
    return FakeServer(vllm=False, no_logprobs=True, **given)


@pytest.mark.parametrize("name", ["n", "seed", "temperature"])
async def test_a_refused_parameter_is_left_out_and_named(name: str) -> None:
    server = server_of(refused=(name,))
    assert (await identity_of(server, scoring="votes")).left_out == (name,)
    async with started(server, scoring="votes") as engine:
        answers = await engine.generate(prompts_of(1), ASKED)
    assert [type(answer) for answer in answers] == [Generated] * 6
    assert all(name not in body for body in server.scored)
    assert len(server.scored) == (6 if name == "n" else 2)


async def test_a_server_that_takes_everything_has_one_request_a_prompt() -> None:
    server = server_of()
    assert (await identity_of(server, scoring="votes")).left_out == ()
    async with started(server, scoring="votes") as engine:
        answers = await engine.generate(prompts_of(1), ASKED)
        assert [(body["n"], body["seed"]) for body in server.scored] == [(3, 5), (3, 9)]
        assert await engine.generate(prompts_of(1), ASKED) == answers


@pytest.mark.parametrize("name", ["n", "seed"])
async def test_a_parameter_without_effect_counts_as_left_out(name: str) -> None:
    assert (await identity_of(server_of(ignored=(name,)), scoring="votes")).left_out == (name,)


async def test_single_requests_have_the_seeds_of_a_request_with_n() -> None:
    together, alone = server_of(), server_of(refused=("n",))
    async with started(together, scoring="votes") as engine:
        answers = await engine.generate(prompts_of(1), ASKED)
    async with started(alone, scoring="votes") as engine:
        assert await engine.generate(prompts_of(1), ASKED) == answers
    assert sorted(body["seed"] for body in alone.scored) == [5, 6, 7, 9, 10, 11]


async def test_a_server_without_log_probabilities_cannot_serve_label_logits() -> None:
    with pytest.raises(StartupError, match="without log-probabilities"):
        await identity_of(server_of())


async def test_a_server_that_takes_only_max_completion_tokens_is_asked_that_way() -> None:
    server = server_of(refused=("max_tokens",))
    async with started(server, scoring="votes") as engine:
        answers = await engine.generate(prompts_of(1), ASKED)
    assert [type(answer) for answer in answers] == [Generated] * 6
    assert {body["max_completion_tokens"] for body in server.scored} == {16}
    # A server that takes neither is refused with its own error.
    with pytest.raises(StartupError):
        await identity_of(server_of(refused=("messages",)), scoring="votes")


async def test_template_variables_go_to_every_server_that_somebody_sets_them_for() -> None:
    use = {"reasoning_effort": "low"}
    server = server_of()
    async with started(server, scoring="votes", chat_template_kwargs=use) as engine:
        await engine.generate(prompts_of(1), ASKED)
    assert all(
        body["chat_template_kwargs"] == {"reasoning_effort": "low"} for body in server.scored
    )
    plain, given = [
        await identity_of(server_of(), scoring="votes", chat_template_kwargs=each)
        for each in ({}, use)
    ]
    assert plain.unusual == {}
    assert given.unusual == {"chat_template_kwargs": {"reasoning_effort": "low"}}
