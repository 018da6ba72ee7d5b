"""A judge that hangs is noticed, and a slow or recovering one is not."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from app.core.errors import EngineUnavailableError
from app.judges.engines.scripted import ScriptedEngine
from app.ports import CallTimes, LabelLogits, Prompt, PromptError
from app.settings import Settings
from app.wiring.services import open_services
from app.wiring.startup import LoggingObserver
from tests.serving import services_of

pytestmark = pytest.mark.anyio


class MoodyEngine(ScriptedEngine):
    """An engine that answers, hangs or fails, as the test says."""

    mood = "answers"
    calls = 0

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        self.calls += 1
        if self.mood == "hangs":
            await asyncio.Event().wait()
        if self.mood == "fails":
            raise EngineUnavailableError("no")
        return await super().label_logits(prompts, times)


class Pauses:
    """Pauses that take no time; the engine changes its mood at some of them."""

    def __init__(self, engine: MoodyEngine, moods: dict[int, str]) -> None:
        self.engine, self.moods = engine, moods
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.engine.mood = self.moods.get(len(self.seconds), self.engine.mood)
        # The engine gets time for an answer before the pause ends.
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("mood", "reason"), [("hangs", "it does not answer"), ("fails", "engine_unavailable")]
)
async def test_a_judge_that_does_not_answer_for_the_whole_time_is_lost(
    mood: str, reason: str
) -> None:
    engine = MoodyEngine()
    pauses = Pauses(engine, {31: mood})
    async with services_of(engine) as services:
        why = await services.readiness.hung(300.0, sleep=pauses)
    assert why == f"no probe of the judge has succeeded for 300 s ({reason})"
    assert set(pauses.seconds) == {30.0}
    # It answered for 30 pauses, and then not for ten.
    assert 40 <= len(pauses.seconds) <= 43


async def test_a_judge_that_recovers_is_not_lost() -> None:
    engine = MoodyEngine()
    moods = {each: "fails" if each % 12 < 7 else "answers" for each in range(1, 200)}
    moods[200] = "hangs"
    pauses = Pauses(engine, moods)
    async with services_of(engine) as services:
        await services.readiness.hung(300.0, sleep=pauses)
    assert len(pauses.seconds) >= 209


async def test_a_probe_of_a_slow_judge_may_take_the_whole_time() -> None:
    answers = asyncio.Event()

    class Slow(MoodyEngine):
        async def label_logits(
            self, prompts: Sequence[Prompt], times: CallTimes | None = None
        ) -> list[LabelLogits | PromptError]:
            self.calls += 1
            if self.mood == "slow":
                await answers.wait()
            return await super().label_logits(prompts, times)

    class ThenAnswers(Pauses):
        async def __call__(self, seconds: float) -> None:
            if len(self.seconds) == 9:
                answers.set()
            await super().__call__(seconds)

    engine = Slow()
    engine.mood = "slow"
    pauses = ThenAnswers(engine, {11: "answers", 20: "hangs"})
    async with services_of(engine) as services:
        await services.readiness.hung(300.0, sleep=pauses)
    assert len(pauses.seconds) >= 29


@pytest.mark.parametrize(("setting", "watched"), [(0.01, True), (0.0, False)])
async def test_the_service_reports_a_hang_unless_it_shall_not(
    setting: float, watched: bool
) -> None:
    engine = MoodyEngine()
    reported: asyncio.Queue[str] = asyncio.Queue()
    given: dict[str, Any] = {"engine": "scripted", "store_url": "memory://", "max_hang_s": setting}
    opening = open_services(
        Settings(**given),
        LoggingObserver(),
        on_lost=reported.put_nowait,
        new_engine=lambda _: engine,
    )
    async with opening:
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert ("the watch over a hang" in names) == watched
        engine.mood = "hangs"
        if watched:
            assert (await reported.get()).startswith("no probe of the judge has succeeded for")
