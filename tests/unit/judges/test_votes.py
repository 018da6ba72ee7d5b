"""Votes: how answers are read, and what shares become."""

import math
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from app.core.assessment import advice_on_unanimous
from app.core.comparison import Comparison
from app.core.errors import JudgmentFailedError
from app.core.pac import pac_threshold
from app.core.preference import Preferences, Score, preference_from_gaps
from app.judges.engines.scripted import ScriptedEngine
from app.judges.prompts import PromptTemplate
from app.judges.votes import Draw, Votes, VoteScorer, is_unanimous, score_of_votes, verdict_of
from app.observability.telemetry import Telemetry
from app.ports import EngineIdentity, Generated, Prompt, PromptError
from app.settings import Settings
from tests.serving import client_of_settings
from tests.unit.judges.test_label_logits import ENGINE, TEMPLATE

JSON = PromptTemplate(user="Answer in JSON. {question} {answer_a} {answer_b}")
PAIRS = [Comparison.of(f"{i}?", f"quality=0.{i} a", f"quality=0.{9 - i} b") for i in range(10)]


def scored(forward: Votes, reverse: Votes, *, tie: float = 0.5) -> Score:
    score = score_of_votes(forward, reverse, tie=tie)
    assert isinstance(score, Score)
    return score


def preferences(*scores: Score) -> Preferences:
    return preference_from_gaps(*zip(*(score.gaps for score in scores), strict=True))  # type: ignore[arg-type]


def judge_of(engine: ScriptedEngine | None = None, **given: Any) -> VoteScorer:
    options = {"template": PromptTemplate(), "samples": 16, "temperature": 1.0, **given}
    telemetry = Telemetry.on_own_registry()
    return VoteScorer(
        engine=engine or ScriptedEngine(), tie_key=b"key", telemetry=telemetry, **options
    )


async def scorer_of(engine: ScriptedEngine | None = None, **given: Any) -> VoteScorer:
    return await judge_of(engine, **given).start()


def test_all_that_decides_is_in_the_fingerprint() -> None:
    def fingerprint(engine: EngineIdentity = ENGINE, **given: Any) -> str:
        return judge_of(template=TEMPLATE, **given).identity_on(engine).fingerprint

    own = fingerprint()
    assert own == "17a1731b44db510102743eeb6d7a61b1579f22bfdb311a0d24397dc5a122c61d"
    others = [
        fingerprint(samples=8),
        fingerprint(temperature=0.7),
        fingerprint(replace(ENGINE, left_out=("seed",))),
    ]
    assert len({own, *others}) == 4


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("[[A]]", "A"),
        (" [[B]]\n", "B"),
        ("B", "B"),
        ("[[A]]\n\nBecause it is right.", "A"),
        ("A is better", None),
        ("A response", None),
        ("[[A]] or [[B]]", None),
        ("I think [[A]]", None),
        ("[A]", None),
        ("a", None),
        ("[[C]]", None),
        ("", None),
        ('{"verdict": "A"}', None),
        ("[[\u0391]]", None),
    ],
)
def test_a_verdict_is_the_first_line_and_nothing_else(text: str, verdict: str | None) -> None:
    assert verdict_of(text, PromptTemplate()) == verdict
    if text.startswith("[["):
        assert verdict_of(text[2:], PromptTemplate(prefill="[[")) == verdict


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('{"why": "B is wrong", "verdict": "A"}', "A"),
        ('{"verdict": "[[B]]"}', "B"),
        ('{"verdict": "A", "why": "B"}', "B"),
        ('{"verdict": "A", "sure": true}', None),
        ('{"verdict": "A"', None),
        ('{"verdict": "A"} {"verdict": "B"}', None),
        ("[" * 100_000, None),
        ("{}", None),
        ("[[A]]", "A"),
    ],
)
def test_a_json_verdict_is_the_last_field(text: str, verdict: str | None) -> None:
    assert verdict_of(text, JSON) == verdict


def test_p_bar_is_the_share_of_all_votes() -> None:
    for forward in range(9):
        for reverse in range(9):
            (p_bar,) = preferences(
                scored(Votes(forward, 8 - forward, 8), Votes(8 - reverse, reverse, 8))
            ).p_bar
            assert p_bar == pytest.approx((forward + reverse) / 16, abs=1e-9)
            if forward + reverse == 8:
                assert p_bar == 0.5


def test_unanimous_pairs_are_tied_at_one_value_and_no_other_pair_is() -> None:
    unanimous = [
        scored(Votes(n, 0, 16), Votes(0, m, 16), tie=tie)
        for n, m, tie in ((16, 16, 0.1), (16, 12, 0.9), (9, 8, 0.0))
    ]
    assert set(preferences(*unanimous).entropy) == {0.0}
    assert set(preferences(*(score.swapped for score in unanimous)).p_bar) == {0.0}
    assert all(map(is_unanimous, unanimous))
    # All votes of both orders for the place, and not for the response.
    split = scored(Votes(16, 0, 16), Votes(16, 0, 16))
    assert not is_unanimous(split)
    assert preferences(split).p_bar == 0.5


def test_equal_shares_are_ordered_by_the_hash_whatever_the_orders_say() -> None:
    # 24 of 32 votes for response_a, spread over the orders in four ways.
    spread = [(16, 8), (12, 12), (8, 16), (15, 9)]
    for order in permutations(range(4)):
        entropies = preferences(
            *(
                scored(Votes(a, 16 - a, 16), Votes(16 - b, b, 16), tie=place / 4)
                for (a, b), place in zip(spread, order, strict=True)
            )
        ).entropy
        assert [sorted(entropies).index(one) for one in entropies] == list(order)
        assert len(set(entropies)) == 4


def test_the_smallest_difference_of_shares_is_larger_than_any_tie_break() -> None:
    shares = [scored(Votes(n, 128 - n, 128), Votes(0, 128, 128), tie=1.0) for n in range(128)]
    lower = [scored(Votes(n, 128 - n, 128), Votes(0, 128, 128), tie=0.0) for n in range(128)]
    assert all(preferences(*lower).entropy[:-1] > preferences(*shares).entropy[1:])


def test_a_test_of_pac_takes_the_unanimous_block_as_a_whole() -> None:
    # 300 unanimous pairs, of which the first 250 are right: a hash among them would let a test of
    # the first 210 pass.
    entropy = preferences(*[scored(Votes(8, 0, 8), Votes(0, 8, 8))] * 300).entropy
    wrong = [False] * 250 + [True] * 50
    assert pac_threshold(entropy, wrong, alpha=0.1, delta=0.1) == -math.inf
    assert pac_threshold(range(300), wrong, alpha=0.1, delta=0.1) > 0.0


@pytest.mark.parametrize("order", [0, 1])
def test_less_than_half_of_the_votes_is_an_error_and_never_a_verdict(order: int) -> None:
    votes = [Votes(8, 8, 16), Votes(7, 0, 16)]
    failed = score_of_votes(votes[order], votes[1 - order], tie=0.0)
    assert isinstance(failed, JudgmentFailedError)
    assert failed.detail == "only 7 of 16 answers of the judge are a verdict"
    half = scored(Votes(8, 0, 16), Votes(0, 16, 16))
    assert half.label_mass == 0.5


async def test_the_same_pair_has_the_same_votes_and_the_swapped_one_mirrored_votes() -> None:
    scorer = await scorer_of()
    first = await scorer.score(PAIRS)
    assert await scorer.score(PAIRS[3:5]) == first[3:5]
    swapped = await scorer.score([pair.swapped for pair in PAIRS])
    assert swapped == [score.swapped for score in first if isinstance(score, Score)]


async def test_nobody_without_the_key_of_the_store_knows_how_ties_of_votes_are_ordered(
    tmp_path: Path,
) -> None:
    comparisons = [
        dict(zip(("question", "response_a", "response_b"), pair.texts, strict=True))
        for pair in PAIRS
    ]
    found = []
    for store in ("one.db", "one.db", "other.db"):
        settings = Settings(
            engine="scripted", scoring="votes", store_url=f"sqlite:///{tmp_path / store}"
        )
        async with client_of_settings(settings) as client:
            body = {"comparisons": comparisons, "alpha": None}
            results = (await client.post("/judge/batch", json=body)).json()["results"]
        found.append([each["p_bar"] for each in results])
    ours, again, others = found
    assert ours == again != others
    assert ours == pytest.approx(others, abs=1e-8)


def test_another_wording_has_other_votes() -> None:
    draws = [Draw.of(Comparison.of("1?", "a", f"b{' ' * i}"), "judge") for i in range(100)]
    assert len({draw.seeds for draw in draws}) == len({draw.tie(b"key") for draw in draws}) == 100
    assert all(0 <= seed < 2**30 for draw in draws for seed in draw.seeds)


async def test_answers_that_are_no_verdict_are_no_votes() -> None:
    def writer(prompt: Prompt, temperature: float, seed: int) -> Generated | PromptError:
        return Generated("[[A]]" if seed % 4 else "No idea.", complete=True)

    scorer = await scorer_of(ScriptedEngine(writer=writer))
    (score,) = await scorer.score(PAIRS[:1])
    assert isinstance(score, Score)
    assert score.label_mass == 0.75
    weakness = scorer.weakness(score)
    assert weakness is not None
    assert weakness.startswith("only 75% of this judge's answers are a verdict")


@pytest.mark.parametrize(
    ("share", "change"), [(None, None), (0.1, None), (0.4, None), (0.41, "raise"), (0.09, "lower")]
)
def test_the_advice_on_the_temperature(share: float | None, change: str | None) -> None:
    advice = advice_on_unanimous(share)
    assert (advice is None) == (change is None)
    assert change is None or f"{change} SCOPE_TEMPERATURE" in str(advice)


async def test_info_and_the_set_show_unanimous_pairs() -> None:
    examples = [
        {
            "question": f"{i}?",
            "response_a": f"quality={i % 5} a",
            "response_b": f"quality={-(i % 5)} b",
            "label": "A",
        }
        for i in range(100)
    ]
    settings = Settings(engine="scripted", scoring="votes", samples=4, store_url="memory://")
    async with client_of_settings(settings) as client:
        report = (await client.post("/calibrate", json={"examples": examples})).json()
        scoring = (await client.get("/info")).json()["scoring"]
        found = (await client.get("/calibrations/default")).json()
    assert report["added"] == 100
    assert (scoring["kind"], scoring["samples"], scoring["left_out"]) == ("votes", 4, [])
    # The start has judged a pair of its own.
    assert scoring["unanimous"] == pytest.approx(found["unanimous"], abs=0.02)
    assert found["unanimous"] > 0.4
    assert "raise SCOPE_TEMPERATURE" in scoring["advice"]
