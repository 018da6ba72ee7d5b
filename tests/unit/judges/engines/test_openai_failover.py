"""The OpenAI engine with several servers: failover, and servers that are busy."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from app.core.errors import EngineUnavailableError, OverloadedError
from tests.patience import PATIENCE_S, until
from tests.unit.judges.engines.openai_fake import FakeServer, response
from tests.unit.judges.engines.openai_scene import expected, prompts_of, set_timeout, started

FAILURES: dict[str, Callable[[FakeServer], None]] = {
    "status 500": lambda server: setattr(server, "trouble", lambda p, b: response(500, b"")),
    "status 404": lambda server: setattr(server, "trouble", lambda p, b: response(404, b"")),
    "status 401": lambda server: setattr(server, "key", "another"),
    "reset": lambda server: setattr(server, "trouble", lambda p, b: b""),
    "half a body": lambda server: setattr(
        server, "trouble", lambda p, b: response(200, b'{"choices": [', length=500)
    ),
    "no HTTP": lambda server: setattr(server, "trouble", lambda p, b: b"SSH-2.0\r\n\r\n"),
    "17 MiB": lambda server: setattr(server, "change", lambda a: {**a, "x": "y" * (17 * 2**20)}),
    "silence": lambda server: setattr(server, "is_silent", True),
}


def mend(server: FakeServer) -> None:
    server.trouble, server.key, server.is_silent = (lambda path, body: None), "", False
    server.change = lambda answer: answer


@pytest.mark.parametrize("failure", FAILURES)
async def test_another_server_takes_over_and_the_first_comes_back(failure: str) -> None:
    prompts = prompts_of(20)
    broken, healthy = FakeServer(), FakeServer()
    async with started(broken, healthy) as engine:
        FAILURES[failure](broken)
        if failure == "silence":
            set_timeout(engine, broken, 0.1)
        assert await engine.label_logits(prompts) == expected(prompts)
        mend(broken)
        set_timeout(engine, broken, PATIENCE_S)
        broken.asked.clear()
        # The probe scores a prompt before any other prompt is sent to this server.
        await until(lambda: bool(broken.scored))
        broken.asked.clear()
        # The engine uses the server again once it has read the probe's answer.
        async with asyncio.timeout(PATIENCE_S):
            while not broken.scored:
                assert await engine.label_logits(prompts) == expected(prompts)


async def test_a_stopped_server_costs_no_request_and_is_found_again() -> None:
    prompts = prompts_of(20)
    one, other = FakeServer(), FakeServer()
    async with started(one, other) as engine:
        await one.stop()
        assert await engine.label_logits(prompts) == expected(prompts)
        await other.stop()
        with pytest.raises(EngineUnavailableError, match="no server") as caught:
            await engine.label_logits(prompts)
        assert caught.value.retry_after_s >= 1
        one.asked.clear()
        await one.start()
        await until(lambda: bool(one.scored))
        found = None
        async with asyncio.timeout(PATIENCE_S):
            while found is None:
                # The engine uses the server again once it has read the probe's answer.
                with suppress(EngineUnavailableError):
                    found = await engine.label_logits(prompts)
        assert found == expected(prompts)


async def test_a_server_that_dies_with_requests_in_flight_loses_none_of_them() -> None:
    prompts = prompts_of(60)
    one, other = FakeServer(), FakeServer()
    async with started(one, other) as engine:
        one.is_silent = True
        task = asyncio.create_task(engine.label_logits(prompts))
        await until(lambda: bool(one.scored))
        await one.stop()
        assert await task == expected(prompts)


async def test_a_server_that_comes_back_with_another_model_stays_out() -> None:
    prompts = prompts_of(2)
    one, other = FakeServer(), FakeServer()
    async with started(one, other) as engine:
        one.card = {"root": "org/another"}
        one.asked.clear()
        # These requests are probes: no prompt was sent.
        await until(lambda: len(one.asked) >= 3)
        for _ in range(5):
            assert await engine.label_logits(prompts) == expected(prompts)
        assert one.scored == []
        one.card = {}
        await until(lambda: bool(one.scored))


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_server_is_avoided_and_all_busy_means_overloaded(status: int) -> None:
    busy = response(status, b"", headers="Retry-After: 59\r\n")
    prompts = prompts_of(2)
    one, other = FakeServer(), FakeServer()
    async with started(one, other) as engine:
        one.trouble = lambda path, body: busy if body else None
        assert await engine.label_logits(prompts) == expected(prompts)
        tried = len(one.scored)
        assert tried == 1
        # Other servers are preferred until its Retry-After has passed.
        assert await engine.label_logits(prompts) == expected(prompts)
        assert len(one.scored) == tried
        other.trouble = one.trouble
        with pytest.raises(OverloadedError) as caught:
            await engine.label_logits(prompts)
        assert caught.value.retry_after_s == 59
        one.trouble = other.trouble = lambda path, body: None
        # A busy server stays in the pool.
        assert await engine.label_logits(prompts) == expected(prompts)
