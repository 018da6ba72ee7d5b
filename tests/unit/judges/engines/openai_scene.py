"""The OpenAI engine on fake servers: prompts, started engines, and wrong answers."""

import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from app.judges.engines.openai_remote import OpenAiEngine
from app.judges.engines.openai_servers import Endpoints
from app.judges.engines.rendering import PromptRenderer, load_tokenizer
from app.judges.prompts import PromptTemplate
from app.ports import EngineIdentity, LabelLogits, Prompt, PromptError
from app.settings import DEMO_FOLDER, Settings
from tests.patience import PATIENCE_S
from tests.serving import pair
from tests.unit.judges.engines.openai_fake import FakeServer, scored, serving

FOLDER = str(DEMO_FOLDER / "model")
TEMPLATE = PromptTemplate(system="Judge.")
SECRET = "xyzzy-secret"
RENDERER = PromptRenderer(load_tokenizer(FOLDER), max_prompt_tokens=2047)


def prompts_of(n: int) -> list[Prompt]:
    """Both orders of n comparisons."""
    return [p for i in range(n) for p in TEMPLATE.both_orders(pair(i + 1, 0.0, question=f"{i}?"))]


def ids_of(prompts: Sequence[Prompt]) -> list[list[int]]:
    found = []
    for ids in RENDERER.token_ids(prompts):
        assert isinstance(ids, list)
        found.append(ids)
    return found


def expected(prompts: Sequence[Prompt]) -> list[LabelLogits]:
    """The label logits that fake servers return in token mode."""
    return [LabelLogits(*scored(ids)) for ids in ids_of(prompts)]


def set_timeout(engine: OpenAiEngine, server: FakeServer, timeout_s: float) -> None:
    """Sets the timeout of one server; the healthy servers of a slow machine need a long one."""
    (its,) = (each for each in engine._servers._servers if each.url == server.url)
    its._endpoints = dataclasses.replace(its._endpoints, timeout_s=timeout_s)


def engine_of(*servers: FakeServer, api_key: str = "", **changed: Any) -> OpenAiEngine:
    endpoints = Endpoints(
        urls=tuple(server.url for server in servers),
        api_key=api_key,
        timeout_s=PATIENCE_S,
        probe_every_s=0.02,
    )
    given = {"model": "the-judge", "tokenizer": FOLDER, **changed}
    return OpenAiEngine(endpoints, Settings(engine="openai", **given))


@asynccontextmanager
async def started(*servers: FakeServer, **given: Any) -> AsyncIterator[OpenAiEngine]:
    """Yields a started engine on fake servers; the requests of the start are not counted."""
    async with serving(*servers):
        engine = engine_of(*servers, **given)
        try:
            await engine.start(prompts_of(1)[0])
            for server in servers:
                server.asked.clear()
            yield engine
        finally:
            await engine.stop()


async def identity_of(
    *servers: FakeServer, prompt: Prompt | None = None, **given: Any
) -> EngineIdentity:
    async with serving(*servers):
        engine = engine_of(*servers, **given)
        try:
            return await engine.start(prompt or prompts_of(1)[0])
        finally:
            await engine.stop()


def details(found: Sequence[LabelLogits | PromptError], kind: type[PromptError]) -> list[str]:
    assert [type(one) for one in found] == [kind] * len(found)
    return [one.detail for one in found if isinstance(one, PromptError)]


def with_logprob(value: object) -> Callable[[dict[str, Any]], Any]:
    """Replaces the log-probability of A by a value."""

    def change(answer: dict[str, Any]) -> Any:
        logprobs = answer["choices"][0]["logprobs"]
        if "content" in logprobs:
            for entry in logprobs["content"][0]["top_logprobs"][:2]:
                entry["logprob"] = value
        else:
            by_id = logprobs["top_logprobs"][0]
            by_id[sorted(by_id)[0]] = value
        return answer

    return change


def with_choices(change: Callable[[list[Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda answer: {**answer, "choices": change(answer["choices"])}
