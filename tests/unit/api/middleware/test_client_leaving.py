"""Tests that a leaving client cancels its work; they call the ASGI application directly."""

import asyncio
import json
from collections.abc import Sequence

import pytest

from app.judges.engines.scripted import ScriptedEngine
from app.ports import CallTimes, LabelLogits, Prompt, PromptError
from tests.patience import PATIENCE_S
from tests.serving import application_of
from tests.unit.api.asgi import talk
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


@pytest.mark.parametrize(
    "path", ["/judge", "/judge/batch", "/rewards/group", "/calibrate", "/calibrate/scores"]
)
async def test_a_client_that_leaves_cancels_the_engine_call_and_writes_nothing(
    path: str,
) -> None:
    engine = WaitingEngine()
    app = application_of(engine)
    body = {
        "/judge": comparison(alpha=None),
        "/judge/batch": {"alpha": None, "comparisons": [comparison()]},
        "/rewards/group": {"alpha": None, "question": "Which?", "responses": ["x", "y"]},
        "/calibrate": {"examples": [comparison(label="A")]},
        "/calibrate/scores": {"examples": [comparison(label="A")]},
    }[path]
    async with app.router.lifespan_context(app), asyncio.timeout(PATIENCE_S):
        assert await talk(app, path, json.dumps(body).encode(), then=engine.begun.wait) == []
        assert engine.cancelled
        assert await app.state.services.store.names() == []


async def test_a_client_that_leaves_during_the_body_causes_no_engine_call() -> None:
    engine = WaitingEngine()
    app = application_of(engine)

    async def leave() -> None:
        pass

    async with app.router.lifespan_context(app), asyncio.timeout(PATIENCE_S):
        sent = await talk(app, "/judge", b'{"question":', then=leave, unfinished=True)
    assert (sent, engine.begun.is_set()) == ([], False)
