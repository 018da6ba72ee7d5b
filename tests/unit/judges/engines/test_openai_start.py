"""The start of the OpenAI engine: its identity, and what it refuses."""

import json
from typing import Any

import pytest

from app.core.errors import StartupError
from app.judges.engines.openai_servers import Endpoints
from app.settings import Settings
from app.wiring.engines import make_engine
from tests.unit.judges.engines.openai_fake import FakeServer, response, serving
from tests.unit.judges.engines.openai_scene import (
    RENDERER,
    SECRET,
    engine_of,
    identity_of,
    prompts_of,
    with_logprob,
)


async def test_a_restart_changes_nothing_of_the_identity() -> None:
    found = [await identity_of(FakeServer(card={"created": time})) for time in (1, 2)]
    assert found[0] == found[1]
    identity = found[0]
    assert (identity.weights, identity.dtype) == ("remote the-judge org/judge", "remote")
    assert identity.chat_frame == RENDERER.chat_frame("Judge.")
    labels = RENDERER.label_tokens(prompts_of(1)[0])
    assert identity.label_tokens == (labels.a, labels.b)
    assert identity.max_prompt_tokens == 2047
    assert (await identity_of(FakeServer(), max_model_len=1000)).max_prompt_tokens == 999
    assert await identity_of(FakeServer(card={"root": "org/another"})) != identity
    chat = await identity_of(FakeServer(), openai_scoring="top")
    assert (chat.chat_frame, chat.label_tokens) == ("chat", (-1, -1))


def bad_gateway_on_completions(path: str, body: dict[str, Any]) -> bytes | None:
    return response(502, b"") if path.endswith("/completions") else None


@pytest.mark.parametrize(
    ("servers", "given", "says"),
    [
        ([FakeServer(name="other")], {}, "serves no model the-judge"),
        ([FakeServer(key=SECRET)], {"api_key": "wrong"}, "refuses SCOPE_OPENAI_API_KEY"),
        ([FakeServer(trouble=lambda p, b: response(500, b""))], {}, "status 500"),
        ([FakeServer(trouble=lambda p, b: response(200, b"[]"))], {}, "does not say which models"),
        ([FakeServer(), FakeServer(card={"root": "org/x"})], {}, "serves another the-judge"),
        ([FakeServer(), FakeServer(card={"max_model_len": 9})], {}, "serves another the-judge"),
        ([FakeServer(change=with_logprob(3.0))], {}, "cannot judge at all"),
        ([FakeServer(vllm=False)], {"openai_scoring": "tokens"}, "status 404"),
        # A transient fault of a proxy does not decide the dialect.
        ([FakeServer(trouble=bad_gateway_on_completions)], {}, "status 502"),
        ([FakeServer()], {"tokenizer": "/nowhere/at/all"}, "set SCOPE_TOKENIZER"),
        ([FakeServer()], {"max_model_len": 16}, "cannot judge at all: the prompt has"),
    ],
)
async def test_a_start_that_cannot_work_is_refused_with_the_servers_url(
    servers: list[FakeServer], given: dict[str, Any], says: str
) -> None:
    with pytest.raises(StartupError, match=says) as caught:
        await identity_of(*servers, **given)
    text = str(caught.value)
    assert SECRET not in text
    assert ("127.0.0.1" in text) == ("SCOPE_TOKENIZER" not in text and "the prompt" not in text)


async def test_servers_of_two_kinds_are_refused() -> None:
    like = {"owned_by": "x", "max_model_len": 2048}
    servers = FakeServer(card=like), FakeServer(vllm=False, card=like)
    with pytest.raises(StartupError, match="only some servers"):
        await identity_of(*servers)
    assert (await identity_of(*servers, openai_scoring="top")).chat_frame == "chat"


async def test_another_models_tokenizer_is_refused() -> None:
    def other_names(answer: dict[str, Any]) -> dict[str, Any]:
        changed: dict[str, Any] = json.loads(json.dumps(answer).replace('"A": -', '"ĠB": -'))
        return changed

    with pytest.raises(StartupError, match="SCOPE_TOKENIZER names another tokenizer"):
        await identity_of(FakeServer(change=other_names))


async def test_an_unreachable_server_is_named() -> None:
    there, gone = FakeServer(), FakeServer()
    async with serving(there, gone):
        await gone.stop()
        engine = engine_of(there, gone)
        with pytest.raises(StartupError, match=f"{gone.url} cannot be reached"):
            await engine.start(prompts_of(1)[0])
        await engine.stop()


@pytest.mark.parametrize(
    "urls", ["", " , ", "host:8000", "ftp://host/v1", "http://", "http://h:x/v1", "http://h/v1?x=1"]
)
def test_wrong_urls_are_refused(urls: str) -> None:
    words = "SCOPE_OPENAI_URLS(: .* is not a URL such as http://host:8000/v1| is empty)"
    with pytest.raises(StartupError, match=words):
        make_engine(Settings(engine="openai", openai_urls=urls))


def test_credentials_in_a_url_are_refused_without_being_shown() -> None:
    with pytest.raises(StartupError, match="use SCOPE_OPENAI_API_KEY") as caught:
        make_engine(Settings(engine="openai", openai_urls=f"http://me:{SECRET}@host/v1"))
    assert SECRET not in str(caught.value)


def test_urls_are_read_with_blanks_and_slashes() -> None:
    settings = Settings(openai_urls=" http://a:1/v1/ ,http://b/v1,")
    assert Endpoints.of(settings).urls == ("http://a:1/v1", "http://b/v1")
    with pytest.raises(StartupError, match="twice"):
        make_engine(Settings(engine="openai", openai_urls="http://a/v1,http://a/v1/"))


def test_a_revision_is_the_servers_choice() -> None:
    with pytest.raises(StartupError, match="SCOPE_REVISION"):
        make_engine(Settings(engine="openai", openai_urls="http://a/v1", revision="main"))
