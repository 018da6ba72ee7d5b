"""Tests that a leaving client cancels its work; they call the ASGI application directly."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from fastapi import FastAPI

from app.judges.engines.scripted import ScriptedEngine
from app.ports import CallTimes, LabelLogits, Prompt, PromptError
from tests.patience import PATIENCE_S
from tests.serving import application_of
from tests.unit.api.problems import comparison


class WaitingEngine(ScriptedEngine):
    """Answers when a test lets it, and records whether its call was cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.cancelled = False

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return await super().label_logits(prompts, times)


def scope_of(app: FastAPI, path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "app": app,
    }


@pytest.mark.parametrize(
    "path", ["/judge", "/judge/batch", "/rewards/group", "/calibrate", "/calibrate/scores"]
)
async def test_a_client_that_leaves_cancels_the_engine_call_and_writes_nothing(
    path: str,
) -> None:
    engine, sent = WaitingEngine(), list[Any]()
    app = application_of(engine)
    body = {
        "/judge": comparison(alpha=None),
        "/judge/batch": {"alpha": None, "comparisons": [comparison()]},
        "/rewards/group": {"alpha": None, "question": "Which?", "responses": ["x", "y"]},
        "/calibrate": {"examples": [comparison(label="A")]},
        "/calibrate/scores": {"examples": [comparison(label="A")]},
    }[path]
    messages = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await engine.begun.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async with app.router.lifespan_context(app):
        await asyncio.wait_for(app(scope_of(app, path), receive, send), PATIENCE_S)
        assert engine.cancelled
        assert sent == []
        assert await app.state.services.store.names() == []


async def test_a_client_that_leaves_during_the_body_causes_no_engine_call() -> None:
    engine, sent = WaitingEngine(), list[Any]()
    app = application_of(engine)
    messages = [
        {"type": "http.request", "body": b'{"question":', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    async with app.router.lifespan_context(app):
        await asyncio.wait_for(app(scope_of(app, "/judge"), receive, send), PATIENCE_S)
    assert (sent, messages, engine.begun.is_set()) == ([], [], False)


async def test_a_client_that_stays_gets_its_answer_and_the_engine_is_not_cancelled() -> None:
    engine, sent = WaitingEngine(), list[Any]()
    app = application_of(engine)
    messages = [
        {
            "type": "http.request",
            "body": json.dumps(comparison(alpha=None)).encode(),
            "more_body": False,
        }
    ]

    async def receive() -> Any:
        if messages:
            return messages.pop()
        engine.go_on.set()
        return await asyncio.Future()

    async def send(message: Any) -> None:
        sent.append(message)

    async with app.router.lifespan_context(app):
        await asyncio.wait_for(app(scope_of(app, "/judge"), receive, send), PATIENCE_S)
    assert not engine.cancelled
    assert sent[0]["status"] == 200
    assert json.loads(sent[1]["body"])["verdict"] == "A"
