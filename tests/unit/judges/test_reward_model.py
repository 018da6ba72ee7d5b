"""A reward model's scorer: one pass a response, clear errors, and the whole service around it."""

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from app.core.comparison import Comparison, Turn
from app.core.errors import InvalidComparisonError, JudgmentFailedError, PromptTooLongError
from app.core.preference import Score
from app.judges.reward_model import conversations_of, reward_identity, score_of_rewards
from app.ports import CallTimes, Conversation, PromptError
from tests.serving import client_of_scorer
from tests.unit.judges.number_model import INPUTS, LONGEST, MODEL, NumberModel, scorer_of


@asynccontextmanager
async def service(model: NumberModel, **given: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of_scorer(await scorer_of(model), **given) as client:
        yield client


def test_the_fingerprint_of_a_reward_model_does_not_change() -> None:
    # A change makes every stored calibration refuse its own judge.
    assert MODEL.fingerprint == "8518d06ed3a4cd16581b5c2eedc464b151897c4e8590c6d0eb35fd8798f98bc7"
    for name in ("architecture", "weights", "chat_frame", "dtype", "head_dtype"):
        changed = reward_identity(**{**INPUTS, name: "another"})
        assert changed.fingerprint != MODEL.fingerprint


async def test_a_gap_is_the_difference_of_two_rewards_without_an_order() -> None:
    scorer = await scorer_of(NumberModel())
    pair = Comparison.of("Which?", "2.5", "-1")
    assert await scorer.score([pair, pair.swapped]) == [
        Score(gap_fwd=3.5, gap_rev=None, label_mass=None),
        Score(gap_fwd=-3.5, gap_rev=None, label_mass=None),
    ]


async def test_equal_rewards_are_a_tie_whatever_the_texts() -> None:
    scorer = await scorer_of(NumberModel())
    pairs = [Comparison.of("Which?", "1", "1"), Comparison.of("Which?", "1", "1.0")]
    for score in await scorer.score(pairs):
        assert isinstance(score, Score)
        assert repr(score.gap_fwd) == "0.0"


async def test_a_response_is_scored_once_in_a_call_and_by_its_own_question() -> None:
    model = NumberModel()
    scorer = await scorer_of(model)
    pairs = [Comparison.of("Which?", str(a), str(b)) for a in range(5) for b in range(a)]
    await scorer.score([*pairs, Comparison.of("Who?", "1", "2")])
    (asked,) = model.calls
    assert len(asked) == len(set(asked)) == 5 + 2
    assert await scorer.score([]) == []
    assert len(model.calls) == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["response_a", "response_b"])
async def test_a_reward_that_is_not_a_number_is_an_error_of_its_comparisons(
    bad: float, place: str
) -> None:
    scorer = await scorer_of(NumberModel())
    texts = {"question": "Which?", "response_a": "1", "response_b": "2"}
    found, other = await scorer.score(
        [Comparison.of(**{**texts, place: str(bad)}), Comparison.of(**texts)]
    )
    assert isinstance(found, JudgmentFailedError)
    assert other == Score(gap_fwd=-1.0, gap_rev=None, label_mass=None)


def test_the_error_of_either_response_is_the_error_of_the_comparison() -> None:
    error = PromptTooLongError("too long")
    assert score_of_rewards(1.0, error) is error
    assert score_of_rewards(error, math.nan) is error


def test_finite_rewards_without_a_finite_difference_are_an_error() -> None:
    assert isinstance(score_of_rewards(1.5e308, -1.5e308), JudgmentFailedError)


async def test_a_wrong_number_of_rewards_is_an_error() -> None:
    class Short(NumberModel):
        async def rewards(
            self, conversations: Sequence[Conversation], times: CallTimes | None = None
        ) -> list[float | PromptError]:
            return (await super().rewards(conversations, times))[:-1]

    scorer = await scorer_of(Short())
    with pytest.raises(JudgmentFailedError, match="1 rewards for 2 responses"):
        await scorer.score([Comparison.of("Which?", "1", "2")])


def test_each_reply_of_a_conversation_follows_its_turn() -> None:
    question = (Turn("system", "s"), Turn("user", "u1"), Turn("user", "u2"))
    first, second = _pair(Comparison(question, ("a1", "a2"), ("b1", "b2")))
    assert [turn.content for turn in first] == ["s", "u1", "a1", "u2", "a2"]
    assert [turn.role for turn in second] == ["system", *("user", "assistant") * 2]
    given = (Turn("user", "u1"), Turn("assistant", "given"), Turn("user", "u2"))
    one, _ = _pair(Comparison(given, ("a",), ("b",)))
    assert [turn.content for turn in one] == ["u1", "given", "u2", "a"]


def _pair(comparison: Comparison) -> tuple[Conversation, Conversation]:
    pair = conversations_of(comparison)
    assert isinstance(pair, tuple)
    return pair


async def test_two_replies_to_one_turn_are_refused() -> None:
    given = (Turn("user", "u1"), Turn("assistant", "given"), Turn("user", "u2"))
    model = NumberModel()
    (found,) = await (await scorer_of(model)).score([Comparison(given, ("1", "2"), ("3", "4"))])
    assert isinstance(found, InvalidComparisonError)
    assert model.calls == []


def labelled(count: int, *, spread: float = 20.0) -> list[dict[str, str]]:
    """Pairs whose label is the larger number in nine of ten; the others have close numbers."""
    rows = []
    for i in range(count):
        gap = spread * (1 + i % 19) / 19
        is_wrong = i % 10 == 0
        gap = spread / 40 if is_wrong else gap
        rows.append(
            {
                "question": f"Question {i}?",
                "response_a": str(gap),
                "response_b": "0",
                "label": "B" if is_wrong else "A",
            }
        )
    return rows


async def test_a_reward_model_calibrates_judges_and_says_its_temperature() -> None:
    async with service(NumberModel()) as client:
        answer = await client.post("/calibrate", json={"examples": labelled(400)})
        assert answer.json()["added"] == 400, answer.text
        detail = (await client.get("/calibrations/default")).json()
        assert detail["temperature"] > 1.0
        pair = {"question": "Which?", "response_a": "19", "response_b": "1"}
        judged = (await client.post("/judge", json=pair)).json()
        assert (judged["verdict"], judged["orders"], judged["label_mass"]) == ("A", 1, None)
        assert judged["temperature"] == detail["temperature"]
        expected = 1.0 / (1.0 + math.exp(-18.0 / detail["temperature"]))
        assert judged["p_bar"] == pytest.approx(expected, abs=1e-12)
        assert judged["p_fwd"] == judged["p_rev"]
        # All numbers of an answer are on one scale.
        assert judged["uncertainty"] <= judged["threshold"]
        assert judged["risk_level"] <= judged["alpha"]
        raw = (await client.post("/judge", json={**pair, "alpha": None})).json()
        assert raw["temperature"] == 1.0
        assert raw["p_bar"] == pytest.approx(1.0 / (1.0 + math.exp(-18.0)), abs=1e-12)
        tie = (await client.post("/judge", json={**pair, "response_b": "19.0"})).json()
        assert (tie["verdict"], tie["reason"], tie["p_bar"]) == ("abstain", "no_preference", 0.5)
        long = await client.post("/judge", json={**pair, "response_b": "1" * (LONGEST + 1)})
        assert (long.status_code, long.json()["code"]) == (413, "prompt_too_long")
