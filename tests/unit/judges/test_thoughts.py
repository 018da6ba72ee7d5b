"""Judges that think: what a thought changes, and what it cannot change."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.core.comparison import Comparison
from app.core.errors import JudgmentFailedError, StartupError
from app.core.preference import NoScore, Score, preference_from_gaps
from app.judges.engines.scripted import ScriptedEngine, logits_of_gap
from app.judges.prompts import PromptTemplate
from app.judges.thoughts import UNFINISHED, ThoughtScorer, advice_on_timeout, score_of_orders_after
from app.observability.telemetry import Telemetry
from app.ports import (
    EngineIdentity,
    LabelLogits,
    OnStage,
    Prompt,
    Thought,
    ahead_of_queue,
    no_stage,
)
from app.settings import Settings, read_settings
from tests.unit.judges.engines.openai_fake import FakeServer, serving
from tests.unit.judges.engines.openai_scene import engine_of
from tests.unit.judges.test_label_logits import ENGINE, TEMPLATE

PAIRS = [Comparison.of(f"{i}?", f"quality=0.{i} a", f"quality=0.{9 - i} b") for i in range(10)]
OPTIONS: dict[str, Any] = {
    "template": PromptTemplate(),
    "samples": 0,
    "max_tokens": 100,
    "temperature": 1.0,
}


def judge_of(engine: Any = None, **changed: Any) -> ThoughtScorer:
    return ThoughtScorer(
        engine=engine or ScriptedEngine(),
        telemetry=Telemetry.on_own_registry(),
        **{**OPTIONS, **changed},
    )


async def scorer_of(engine: Any = None, **changed: Any) -> ThoughtScorer:
    return await judge_of(engine, **changed).start()


def test_all_that_decides_is_in_the_fingerprint() -> None:
    def fingerprint(engine: EngineIdentity = ENGINE, **changed: Any) -> str:
        return judge_of(template=TEMPLATE, **changed).identity_on(engine).fingerprint

    others = [
        fingerprint(samples=4),
        fingerprint(temperature=0.6),
        fingerprint(max_tokens=99),
        fingerprint(replace(ENGINE, think_end="</think>")),
        fingerprint(replace(ENGINE, left_out=("seed",))),
    ]
    assert len({fingerprint(), *others}) == 6


async def test_a_comparison_gets_the_same_thoughts_again_alone_and_swapped() -> None:
    for samples in (1, 4):
        scorer = await scorer_of(samples=samples)
        together = await scorer.score(PAIRS)
        assert [(await scorer.score([pair]))[0] for pair in PAIRS] == together
        swapped = await scorer.score([pair.swapped for pair in PAIRS])
        assert swapped == [score.swapped for score in together if isinstance(score, Score)]
    # The judge's labels move with its thoughts.
    one, four = await scorer_of(samples=1), await scorer_of(samples=4)
    assert await one.score(PAIRS) != await four.score(PAIRS)


async def test_a_thought_without_an_end_gives_no_score_however_often_it_is_asked() -> None:
    scorer = await scorer_of(max_tokens=6)
    scores = await scorer.score(PAIRS)
    assert 0 < scores.count(UNFINISHED) < len(PAIRS)
    for _ in range(3):
        assert await scorer.score(PAIRS) == scores
    swapped = await scorer.score([pair.swapped for pair in PAIRS])
    assert [score == UNFINISHED for score in swapped] == [score == UNFINISHED for score in scores]
    assert await (await scorer_of(max_tokens=1)).score(PAIRS) == [UNFINISHED] * len(PAIRS)


def thoughts(*gaps: float, mass: float = 0.9) -> list[Thought]:
    return [Thought("", logits_of_gap(gap, label_mass=mass)) for gap in gaps]


def test_the_probability_of_an_order_is_the_mean_over_its_thoughts() -> None:
    score = score_of_orders_after(thoughts(2.0, -1.0), thoughts(0.0, 3.0))
    assert isinstance(score, Score)
    (p_fwd,), (p_rev,), (p_bar,), _ = preference_from_gaps(*([gap] for gap in score.gaps))  # type: ignore[arg-type]

    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    assert p_fwd == pytest.approx((sigmoid(2) + sigmoid(-1)) / 2, abs=1e-12)
    assert p_rev == pytest.approx((sigmoid(0) + sigmoid(-3)) / 2, abs=1e-12)
    assert p_bar == pytest.approx((p_fwd + p_rev) / 2, abs=1e-12)
    assert score.label_mass == pytest.approx(0.9)
    # Two thoughts that agree to the last digit keep a gap that no probability could hold.
    sure = score_of_orders_after(thoughts(60.0, 60.0), thoughts(-60.0, -60.0))
    assert isinstance(sure, Score)
    assert sure.gaps == pytest.approx((60.0, 60.0))
    mirrored = score_of_orders_after(thoughts(0.0, 3.0), thoughts(2.0, -1.0))
    assert mirrored == score.swapped


@pytest.mark.parametrize("place", range(4))
def test_one_thought_without_an_end_decides_and_an_error_does_not(place: int) -> None:
    order: list[Any] = [*thoughts(1.0, 1.0, 1.0, 1.0)]
    order[place] = Thought("and so on", None)
    assert score_of_orders_after(order, thoughts(1.0)) == UNFINISHED
    failed = [JudgmentFailedError("broken"), *order[1:]]
    expected = JudgmentFailedError if place == 0 else NoScore
    assert isinstance(score_of_orders_after(thoughts(1.0), failed), expected)
    broken = [Thought("", LabelLogits(math.nan, 0.0))]
    assert isinstance(score_of_orders_after(broken, thoughts(1.0)), JudgmentFailedError)


class Watched(ScriptedEngine):
    """Counts the thoughts that it is asked for."""

    thoughts = 0

    async def think(self, prompts: Sequence[Prompt], *given: Any) -> Any:
        self.thoughts += len(prompts)
        return await super().think(prompts, *given)


async def test_a_probe_skips_the_thought() -> None:
    engine = Watched()
    scorer = await scorer_of(engine, max_tokens=1)
    with ahead_of_queue():
        (score,) = await scorer.score(PAIRS[:1])
    assert isinstance(score, Score)
    assert engine.thoughts == 0


async def test_a_limit_without_room_for_a_prompt_ends_the_start() -> None:
    class Short(ScriptedEngine):
        async def start(self, prompt: Prompt, on_stage: OnStage = no_stage) -> EngineIdentity:
            return replace(await super().start(prompt), max_prompt_tokens=100)

    with pytest.raises(StartupError, match="SCOPE_THINK_TOKENS=100 leaves no room"):
        await scorer_of(Short())
    assert (await scorer_of(Short(), max_tokens=60)).identity.max_prompt_tokens == 40


@pytest.mark.parametrize(
    ("tokens_per_s", "advice"),
    [
        (None, None),
        (40.0, None),
        (20.0, "SCOPE_TIMEOUT_S to 240 or more, or SCOPE_THINK_TOKENS to 1200 or less"),
    ],
)
def test_the_timeout_is_compared_with_the_measured_speed(
    tokens_per_s: float | None, advice: str | None
) -> None:
    given = advice_on_timeout(tokens_per_s, 2400, 60.0)
    assert given is None if advice is None else advice in str(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"samples": "8"}, "SCOPE_SAMPLES: has no effect with SCOPE_SCORING=labels"),
        ({"temperature": "0.7"}, "SCOPE_TEMPERATURE: has no effect with SCOPE_SCORING=labels"),
        (
            {"scoring": "votes", "think_tokens": "10"},
            "SCOPE_THINK_TOKENS: has no effect with SCOPE_SCORING=votes: unset it, or set "
            "SCOPE_SCORING=thoughts",
        ),
        ({"think_end": "</think>"}, "SCOPE_THINK_END: has no effect"),
        ({"scoring": "votes", "samples": "1"}, "SCOPE_SAMPLES: must be at least 2"),
        ({"chat_template_kwargs": "[]"}, "SCOPE_CHAT_TEMPLATE_KWARGS: Input should be"),
        ({"chat_template_kwargs": "{"}, "SCOPE_CHAT_TEMPLATE_KWARGS: must be a JSON object"),
    ],
)
def test_a_setting_without_effect_is_refused_with_a_sentence(
    given: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(f"SCOPE_{name.upper()}", value)
    with pytest.raises(StartupError, match="SCOPE_") as refused:
        read_settings()
    assert message in str(refused.value)


def test_one_sample_is_enough_for_thoughts() -> None:
    assert Settings(scoring="thoughts", samples=1).samples == 1


def reasoning(content: str | None, thought: str | None = "hmm", reason: str = "stop") -> Any:
    """Makes the answers of a server that keeps the thought of a message apart."""

    def change(answer: dict[str, Any]) -> dict[str, Any]:
        message = {"content": content, "reasoning_content": thought}
        choices = [
            {**each, "message": message, "finish_reason": reason} for each in answer["choices"]
        ]
        return {**answer, "choices": choices}

    return change


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (reasoning("[[A]]"), "tie"),
        (reasoning("<think>[[B]]</think>\n\n[[A]]", None), "tie"),
        (reasoning(None, reason="length"), UNFINISHED),
        (reasoning("<think>[[A]]", None, reason="length"), UNFINISHED),
        (reasoning("I prefer [[A]]"), JudgmentFailedError),
        (reasoning("<think>[[A]]", None), JudgmentFailedError),
    ],
)
async def test_a_message_with_its_thought_is_a_vote(change: Any, outcome: Any) -> None:
    server = FakeServer(vllm=False, no_logprobs=True)
    async with serving(server):
        engine = engine_of(server, scoring="thoughts")
        try:
            scorer = await scorer_of(engine, samples=4)
            server.change = change
            server.asked.clear()
            (score,) = await scorer.score(PAIRS[:1])
            assert all(body["max_tokens"] == 116 for body in server.scored)
            with ahead_of_queue():
                (probe,) = await scorer.score(PAIRS[:1])
        finally:
            await engine.stop()
    if outcome == "tie":
        assert isinstance(score, Score)
        # The first response has all votes in either order.
        assert score.gap_fwd == 0.0 - score.gaps[1]
    elif outcome == UNFINISHED:
        assert score == UNFINISHED
    else:
        assert isinstance(score, outcome)
    assert probe == UNFINISHED


async def test_one_vote_in_each_order_is_refused() -> None:
    server = FakeServer(vllm=False, no_logprobs=True)
    async with serving(server):
        engine = engine_of(server, scoring="thoughts")
        with pytest.raises(StartupError, match="set SCOPE_SAMPLES to 8 or more"):
            await scorer_of(engine, samples=1)
        await engine.stop()
        engine = engine_of(server, scoring="thoughts")
        assert (await scorer_of(engine)).identity.inputs["scoring"]["samples"] == 16  # type: ignore[index]
        await engine.stop()
