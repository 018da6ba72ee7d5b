"""Asking a judge about labeled pairs: questions, stored answers, and repeated questions."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.core.comparison import Comparison
from app.core.errors import (
    EngineUnavailableError,
    InvalidRequestError,
    JudgmentFailedError,
    PromptTooLongError,
)
from app.core.fingerprint import JudgeIdentity
from app.evaluation.benchmarks.labeled_pairs import LabeledPair
from app.evaluation.judgments.interview import (
    CHUNK_PAIRS,
    check_judge,
    missing_answers,
)
from app.evaluation.judgments.interview import ask as ask_judge
from app.evaluation.judgments.jsonl import JudgmentLog
from app.evaluation.judgments.questions import SAMPLES, Dataset, draw_personas
from app.evaluation.judgments.record import JudgedPair, Observation
from app.judges.engines.scripted import ScriptedEngine, by_quality, logits_of_gap
from app.judges.label_logits import LabelLogitScorer
from app.judges.prompts import PromptTemplate
from app.observability.telemetry import Telemetry
from app.ports import (
    Engine,
    LabelLogits,
    Prompt,
    PromptError,
)
from tests.unit.judges import number_model
from tests.unit.judges.number_model import NumberModel

ALL: tuple[Observation, ...] = ("orders", "verbalized", "annotators", "samples")
TEMPLATE = PromptTemplate()


def pair(i: int, gap: float = 1.0) -> LabeledPair:
    comparison = Comparison.of(f"Question {i}?", f"quality={gap:.3f}", f"quality=0 number {i}")
    return LabeledPair(id=f"pair-{i}", group=f"group-{i % 3}", comparison=comparison, label="A")


def scorer_of(
    engine: Engine, template: PromptTemplate = TEMPLATE, *, weights: str = "w"
) -> LabelLogitScorer:
    """A chat model whose fingerprint does not depend on its prompt."""
    identity = JudgeIdentity(
        name="scripted", inputs={"weights": weights}, described={}, max_prompt_tokens=1000
    )
    telemetry = Telemetry.on_own_registry()
    scorer = LabelLogitScorer(engine=engine, template=template, telemetry=telemetry)
    scorer.identity = identity
    return scorer


def dataset(n: int, *, gap: float = 1.0, template: PromptTemplate = TEMPLATE) -> Dataset:
    demonstrations = [pair(1000 + i) for i in range(50)]
    pairs = [pair(i, gap) for i in range(n)]
    personas = draw_personas(demonstrations, seed=3)
    return Dataset(name="d", pairs=pairs, template=template, personas=personas, seed=3)


async def ask(
    folder: Path,
    data: Dataset,
    engine: Engine | None = None,
    observations: Sequence[Observation] = ALL,
) -> tuple[dict[tuple[str, str], JudgedPair], int]:
    """The content of the log afterwards, and the number of pairs asked, counted per observation."""
    answered: list[int] = []
    scorer = scorer_of(engine or ScriptedEngine())
    with JudgmentLog(folder / "judgments.jsonl", judge="scripted") as log:
        known = log.read()
        missing = missing_answers([data], observations, known)
        check_judge(scorer, known.values())
        await ask_judge(scorer, missing, log, lambda _, n: answered.append(n))
        return log.read(), sum(answered)


async def test_every_observation_stores_the_engines_answer(tmp_path: Path) -> None:
    def script(prompt: Prompt) -> LabelLogits:
        shown_first = prompt.user.rindex("quality=1.000") < prompt.user.rindex("quality=0 ")
        return logits_of_gap(1.5 if shown_first else -0.5)

    judged, asked = await ask(tmp_path, dataset(3), ScriptedEngine(script))
    assert asked == 12
    for i in range(3):
        found = judged["d", f"pair-{i}"]
        # In the reverse prompt response_a is label B: a gap of -0.5 there is 0.5 for response_a.
        assert found.gaps == pytest.approx((1.5, 0.5))
        assert found.label_mass == pytest.approx(0.99)
        assert found.annotators == pytest.approx((1.5,) * 5)
        assert found.samples is not None
        assert len(found.samples) == SAMPLES
        assert {sample.text for sample in found.samples} <= {"[[A]]", "[[B]]"}
        assert found.verbalized is not None
        assert found.verbalized.text.startswith("[[A]] 0.8")
        assert found.failed is None
        assert (found.label, found.group, found.judge) == ("A", f"group-{i % 3}", "scripted")


async def test_only_missing_answers_are_asked_for(tmp_path: Path) -> None:
    some, asked = await ask(tmp_path, dataset(100), observations=["orders"])
    assert asked == 100
    again, asked = await ask(tmp_path, dataset(130), observations=["orders", "samples"])
    assert asked == 30 + 130
    assert all(again[key].gaps == some[key].gaps for key in some)
    _, asked = await ask(tmp_path, dataset(130), observations=["orders", "samples"])
    assert asked == 0


async def test_a_new_text_prompt_or_label_is_asked_again(tmp_path: Path) -> None:
    await ask(tmp_path, dataset(5))
    judged, asked = await ask(tmp_path, dataset(5, gap=2.0), observations=["orders"])
    assert asked == 5
    assert judged["d", "pair-0"].gaps == pytest.approx((2.0, 2.0))
    template = dataclasses.replace(TEMPLATE, system="Judge.")
    _, asked = await ask(tmp_path, dataset(5, gap=2.0, template=template), observations=["orders"])
    assert asked == 5
    data = dataset(5, gap=2.0, template=template)
    pairs = [dataclasses.replace(data.pairs[0], label="B", group="new"), *data.pairs[1:]]
    relabeled = dataclasses.replace(data, pairs=pairs)
    judged, asked = await ask(tmp_path, relabeled, observations=["orders"])
    assert asked == 1
    assert (judged["d", "pair-0"].label, judged["d", "pair-0"].group) == ("B", "new")
    _, asked = await ask(tmp_path, relabeled, observations=["orders"])
    assert asked == 0


@pytest.mark.parametrize("error", [PromptTooLongError("too long"), JudgmentFailedError("odd")])
async def test_a_failure_is_stored_and_asked_again_unless_it_would_repeat(
    error: PromptError, tmp_path: Path
) -> None:
    def script(prompt: Prompt) -> LabelLogits | PromptError:
        return error if "Question 1?" in prompt.user else by_quality(prompt)

    judged, _ = await ask(tmp_path, dataset(3), ScriptedEngine(script), ["orders", "annotators"])
    failed = judged["d", "pair-1"]
    assert failed.failed == {"orders": error.code, "annotators": error.code}
    assert (failed.gaps, failed.annotators) == (None, None)
    _, asked = await ask(tmp_path, dataset(3), ScriptedEngine(script), ["orders", "annotators"])
    # A prompt that is too long is not asked again.
    assert asked == (0 if isinstance(error, PromptTooLongError) else 2)


@pytest.mark.parametrize("observation", ["orders", "annotators"])
@pytest.mark.parametrize("bad", [JudgmentFailedError("x"), LabelLogits(float("nan"), 0.0)])
async def test_one_failed_reply_fails_the_observation_and_no_other(
    observation: Observation, bad: LabelLogits | PromptError, tmp_path: Path
) -> None:
    replies = iter([logits_of_gap(1.0), bad, *[logits_of_gap(1.0)] * 8])
    engine = ScriptedEngine(lambda _: next(replies))
    judged, _ = await ask(tmp_path, dataset(2), engine, [observation])
    first, second = judged["d", "pair-0"], judged["d", "pair-1"]
    assert first.failed == {observation: "judgment_failed"}
    assert (first.gaps, first.annotators) == (None, None)
    assert second.failed is None


async def test_a_judge_that_goes_down_loses_no_stored_answer(tmp_path: Path) -> None:
    calls = 0

    def script(prompt: Prompt) -> LabelLogits:
        nonlocal calls
        calls += 1
        if calls > 2 * 3 * CHUNK_PAIRS:
            raise EngineUnavailableError("the judge is down")
        return by_quality(prompt)

    n = 10 * CHUNK_PAIRS
    with pytest.raises(EngineUnavailableError):
        await ask(tmp_path, dataset(n), ScriptedEngine(script), ["orders"])
    with JudgmentLog(tmp_path / "judgments.jsonl", judge="scripted") as log:
        stored = len(log.read())
    assert CHUNK_PAIRS < stored <= 3 * CHUNK_PAIRS
    judged, asked = await ask(tmp_path, dataset(n), observations=["orders"])
    assert asked == n - stored
    assert len(judged) == n


async def test_the_same_name_with_other_weights_is_refused(tmp_path: Path) -> None:
    await ask(tmp_path, dataset(2), observations=["orders"])
    with JudgmentLog(tmp_path / "judgments.jsonl", judge="scripted") as log:
        other = scorer_of(ScriptedEngine(), weights="other")
        with pytest.raises(
            InvalidRequestError, match="the prompt or another input of the scores differs"
        ):
            check_judge(other, log.read().values())


async def ask_reward_model(
    folder: Path, model: NumberModel, pairs: Sequence[LabeledPair]
) -> dict[tuple[str, str], JudgedPair]:
    """The content of the log after a run with a reward model, whose observation is its score."""
    data = Dataset(name="d", pairs=pairs, template=None)
    scorer = await number_model.scorer_of(model)
    with JudgmentLog(folder / "judgments.jsonl", judge=number_model.MODEL.name) as log:
        known = log.read()
        missing = missing_answers([data], ["orders"], known)
        await ask_judge(scorer, missing, log, lambda *_: None)
        return log.read()


def numbers(question: str, one: str, other: str) -> LabeledPair:
    comparison = Comparison.of(question, one, other)
    return LabeledPair(id=question, group=question, comparison=comparison, label="A")


async def test_a_judge_without_prompts_answers_with_its_score_and_is_asked_once(
    tmp_path: Path,
) -> None:
    pairs = [numbers("one", "3", "1.5"), numbers("two", "1", "nan"), numbers("three", "2", "2")]
    model = NumberModel()
    judged = await ask_reward_model(tmp_path, model, pairs)
    one, two, three = (judged["d", pair.id] for pair in pairs)
    assert (one.gaps, one.orders, one.label_mass) == ((1.5, 1.5), 1, None)
    assert (two.gaps, two.orders, two.failed) == (None, None, {"orders": "judgment_failed"})
    assert (three.gaps, three.has_both_orders) == ((0.0, 0.0), False)
    model.calls.clear()
    assert await ask_reward_model(tmp_path, model, pairs) == judged
    # Only the reward that is not a number is asked for again.
    assert [{turns[-1].content for turns in call} for call in model.calls] == [{"1", "nan"}]
    model.calls.clear()
    await ask_reward_model(tmp_path, model, [numbers("one", "3", "2"), pairs[2]])
    assert [{turns[-1].content for turns in call} for call in model.calls] == [{"3", "2"}]
