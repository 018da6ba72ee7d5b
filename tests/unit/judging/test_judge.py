"""Tests of Judge: signs, reasons of abstentions, and which item an error belongs to."""

import asyncio
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.calibration import Calibration
from app.core.comparison import Case, Comparison, Criterion
from app.core.errors import (
    CalibrationNotFoundError,
    JudgmentFailedError,
    PromptTooLongError,
    RequestError,
    StoreCorruptError,
)
from app.core.fingerprint import JudgeIdentity
from app.core.pac import PacPairs
from app.core.preference import Preference, Score
from app.judges.engines.scripted import ScriptedEngine, by_quality, logits_of_gap
from app.judging.judge import decide, find_threshold
from app.judging.services import Services
from app.ports import Head, LabelLogits, Prompt
from app.stores.memory import MemoryStore
from scope_judge.records import Judgment, Reason
from tests.labeled_examples import calibration_of, labeled_example
from tests.serving import ShortEngine, labelled, pair, request, services_of

LN2 = math.log(2)


async def judged(services: Services, comparison: Comparison, **criterion: Any) -> Judgment:
    return (await services.judge.judge(request(comparison, **criterion))).judgment


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


async def judge_one(engine: ScriptedEngine, comparison: Comparison) -> Judgment:
    async with services_of(engine) as services:
        return await judged(services, comparison, alpha=None)


async def calibrate(
    services: Services, *, n: int = 60, wrong_below: float = 0.0, seed: int = 1
) -> None:
    """Adds n examples with gaps in (0, 4]; those below `wrong_below` are labeled B."""
    gaps = np.random.default_rng(seed).uniform(0.01, 4.0, n)
    await services.calibrator.add(
        "default",
        [
            labelled(gap, "B" if gap < wrong_below else "A", number=i)
            for i, gap in enumerate(gaps.tolist())
        ],
    )


async def test_the_sign_of_the_reverse_order_is_inverted() -> None:
    # Shown first, "good" gets A with log-odds 3 - 1 = 2; shown second it gets B with log-odds
    # 1.5 - 1 = 0.5, so p_fwd = sigmoid(2) and p_rev = sigmoid(0.5).
    def script(prompt: Prompt) -> LabelLogits:
        forward = prompt.user.index("good") < prompt.user.index("bad")
        return LabelLogits(-1.0, -3.0) if forward else LabelLogits(-1.5, -1.0)

    found = await judge_one(ScriptedEngine(script), Comparison.of("Why?", "good", "bad"))
    p_bar = (sigmoid(2) + sigmoid(0.5)) / 2
    assert found.p_fwd == pytest.approx(sigmoid(2), abs=1e-15)
    assert found.p_rev == pytest.approx(sigmoid(0.5), abs=1e-15)
    assert found.p_bar == pytest.approx(p_bar, abs=1e-15)
    entropy = -p_bar * math.log(p_bar) - (1 - p_bar) * math.log(1 - p_bar)
    assert found.uncertainty == pytest.approx(entropy, abs=1e-14)
    assert found.confidence == pytest.approx(p_bar, abs=1e-15)
    # The smaller of e^-1 + e^-3 = 0.4177 and e^-1.5 + e^-1 = 0.5910.
    assert found.label_mass == pytest.approx(math.exp(-1) + math.exp(-3), abs=1e-15)
    assert (found.verdict, found.preferred, found.reason) == ("A", "A", None)


@pytest.mark.parametrize("gap", [0.0, 0.3, 2.0, -5.0, 40.0])
async def test_a_judge_with_only_position_bias_has_no_preference(gap: float) -> None:
    engine = ScriptedEngine(lambda prompt: logits_of_gap(gap))
    found = await judge_one(engine, Comparison.of("Why?", "one", "two"))
    assert found.p_bar == 0.5
    assert found.p_fwd is not None
    assert found.p_rev == pytest.approx(1 - found.p_fwd, abs=1e-12)
    assert found.uncertainty == pytest.approx(LN2, abs=1e-15)
    assert (found.verdict, found.preferred, found.reason) == (
        "abstain",
        None,
        "no_preference",
    )
    assert found.risk_level is None


@settings(max_examples=60)
@given(st.floats(-30, 30), st.floats(-30, 30), st.floats(-3, 3))
def test_swapping_the_responses_mirrors_p_bar(a: float, b: float, bias: float) -> None:
    def script(prompt: Prompt) -> LabelLogits:
        plain = by_quality(prompt)
        return logits_of_gap(plain.a - plain.b + bias)

    async def both() -> list[Judgment]:
        async with services_of(ScriptedEngine(script)) as services:
            await services.calibrator.add(
                "default", [labelled(1.0 + 0.01 * i, "A", number=i) for i in range(30)]
            )
            comparison = pair(a, b)
            requests = [request(comparison), request(comparison.swapped)]
            found = await services.judge.judge_batch(requests)
            return [case.judgment for case in found if isinstance(case, Case)]

    straight, swapped = asyncio.run(both())
    assert straight.p_bar is not None
    assert swapped.p_bar == pytest.approx(1 - straight.p_bar, abs=1e-6)
    mirrored = {"A": "B", "B": "A", "abstain": "abstain"}
    assert mirrored[straight.verdict] == swapped.verdict
    assert straight.reason == swapped.reason
    assert straight.uncertainty == swapped.uncertainty
    assert straight.risk_level == swapped.risk_level


async def test_too_little_label_mass_gives_no_verdict_at_any_alpha() -> None:
    # With "broken" in the response shown first, the judge answers with little label mass.
    def script(prompt: Prompt) -> LabelLogits:
        plain = by_quality(prompt)
        off = "[Assistant A's Answer]\nbroken" in prompt.user
        return logits_of_gap(plain.a - plain.b, label_mass=0.2 if off else 0.9)

    broken = Comparison.of("Which?", "broken quality=3.9", "quality=0")
    even = Comparison.of("Which?", "broken quality=0", "quality=0")
    async with services_of(ScriptedEngine(script), min_label_mass=0.5) as services:
        await calibrate(services, n=200, wrong_below=1.0)
        for alpha in (None, 0.2, 0.004):
            found = await judged(services, broken, alpha=alpha)
            assert (found.verdict, found.reason, found.preferred) == (
                "abstain",
                "off_task",
                "A",
            )
            assert found.label_mass == pytest.approx(0.2, abs=1e-12)
            assert found.risk_level is None
        # Two reasons apply, and "off_task" comes first.
        without = await judged(services, even, alpha=None)
        assert (without.reason, without.preferred) == ("off_task", None)
        fine = await judged(services, pair(3.9, 0.0))
        assert (fine.verdict, fine.reason) == ("A", None)
    async with services_of(ScriptedEngine(script)) as services:
        answered = await judged(services, broken, alpha=None)
        assert (answered.verdict, answered.reason) == ("A", None)


async def test_a_label_mass_at_the_limit_is_on_task() -> None:
    engine = ScriptedEngine(lambda prompt: LabelLogits(math.log(0.25), math.log(0.25)))
    comparison = Comparison.of("Why?", "one", "two")
    for limit, reason in ((0.5, "no_preference"), (math.nextafter(0.5, 1), "off_task")):
        async with services_of(engine, min_label_mass=limit) as services:
            found = await judged(services, comparison, alpha=None)
            assert (found.label_mass, found.reason) == (0.5, reason)


async def test_without_alpha_every_preference_is_a_verdict_and_no_calibration_is_needed() -> None:
    async with services_of() as services:
        found = await judged(services, pair(0.0, 0.001), alpha=None)
        assert (found.verdict, found.reason) == ("B", None)
        assert (found.threshold, found.risk_level, found.calibration) == (None, None, None)


async def test_a_judgment_is_accepted_exactly_from_its_risk_level_on() -> None:
    async with services_of() as services:
        rng = np.random.default_rng(20)
        gaps = rng.uniform(0.01, 4.0, 80)
        right = rng.uniform(size=80) < 1 / (1 + np.exp(-gaps))
        await services.calibrator.add(
            "default",
            [
                labelled(gap, "A" if ok else "B", number=i)
                for i, (gap, ok) in enumerate(zip(gaps.tolist(), right.tolist(), strict=True))
            ],
        )
        levels = services.calibrations.known()[0].curve.risk_levels
        inside = levels[(levels > 0) & (levels < 1)]
        alphas = {*np.linspace(0.01, 0.99, 15), *inside, *np.nextafter(inside, 0)}
        asked = [
            request(pair(gap, 0.0), alpha=float(alpha))
            for gap in (0.005, *gaps[:8].tolist(), 4.5)
            for alpha in alphas
        ]
        found = await services.judge.judge_batch(asked)
        accepted = 0
        for case in found:
            assert isinstance(case, Case)
            judgment = case.judgment
            alpha = judgment.alpha
            assert alpha is not None
            level = judgment.risk_level
            assert (judgment.verdict == "A") == (level is not None and alpha >= level)
            accepted += judgment.verdict == "A"
        assert 0 < accepted < len(found)


async def test_an_items_error_is_not_a_verdict_and_does_not_affect_other_items() -> None:
    def script(prompt: Prompt) -> LabelLogits | RequestError:
        if "long" in prompt.user:
            return PromptTooLongError("9 tokens")
        # Fails only if the response is shown first: an error in one order is enough.
        if "[Assistant A's Answer]\nbroken" in prompt.user:
            return LabelLogits(math.nan, -1.0)
        return by_quality(prompt)

    async with services_of(ScriptedEngine(script)) as services:
        await calibrate(services)
        good, missing = pair(3.9, 0.0), request(pair(3.9, 0.0), calibration="absent")
        asked = [
            request(good),
            request(Comparison.of("long", "a", "b")),
            request(good),
            request(Comparison.of("q", "fine", "broken")),
            missing,
            request(good),
        ]
        found = await services.judge.judge_batch(asked)
        kinds = [type(outcome) for outcome in found]
        assert kinds == [
            Case,
            PromptTooLongError,
            Case,
            JudgmentFailedError,
            CalibrationNotFoundError,
            Case,
        ]
        first, *others = (each.judgment for each in found if isinstance(each, Case))
        assert others == [first, first]
        exposition = services.telemetry.exposition()[0].decode()
        assert 'scope_judgments_total{reason="",verdict="A"} 3.0' in exposition
        for code in ("prompt_too_long", "judgment_failed", "calibration_not_found"):
            assert f'scope_judgment_errors_total{{code="{code}"}} 1.0' in exposition


async def test_a_corrupt_calibration_is_the_error_of_the_items_that_use_it() -> None:
    store = MemoryStore()
    await store.write("bad", Head("x", 1), blob=b"garbage", thresholds={}, record="", expected=None)
    async with services_of(store=store) as services:
        asked = [request(pair(1, 0), calibration="bad"), request(pair(1, 0), alpha=None)]
        first, second = await services.judge.judge_batch(asked)
        assert isinstance(first, StoreCorruptError)
        assert isinstance(second, Case)


async def test_an_engine_that_loses_an_answer_fails_the_whole_request() -> None:
    async with services_of(ShortEngine()) as services:
        with pytest.raises(JudgmentFailedError, match="3 answers to 4 prompts"):
            await services.judge.judge_batch([request(pair(1, 0), alpha=None)] * 2)


async def test_a_missing_calibration_causes_no_engine_call() -> None:
    asked: list[Prompt] = []

    def script(prompt: Prompt) -> LabelLogits:
        asked.append(prompt)
        return logits_of_gap(1.0)

    async with services_of(ScriptedEngine(script)) as services:
        with pytest.raises(CalibrationNotFoundError, match="calibrate"):
            await judged(services, pair(1, 0))
    assert asked == []


SURE = Preference(p_fwd=0.99, p_rev=0.99, p_bar=0.99, uncertainty=0.056)
UNSURE = Preference(p_fwd=0.6, p_rev=0.6, p_bar=0.6, uncertainty=0.673)
EVEN = Preference(p_fwd=0.5, p_rev=0.5, p_bar=0.5, uncertainty=math.log(2.0))


JUDGE = JudgeIdentity(name="judge", inputs={}, described={}, max_prompt_tokens=1)


def case(
    preference: Preference, threshold: float, *, suspended: bool, label_mass: float = 0.9
) -> Case:
    return Case(
        pair(1.0, 0.0),
        Criterion(alpha=0.1, guarantee="marginal", delta=None, calibration="default"),
        threshold=threshold,
        suspended=suspended,
        score=Score(gap_fwd=1.0, gap_rev=1.0, label_mass=label_mass),
        preference=preference,
    )


@pytest.mark.parametrize(
    ("preference", "threshold", "suspended", "label_mass", "reason"),
    [
        (SURE, 0.3, False, 0.9, None),
        (SURE, 0.3, True, 0.9, "suspended"),
        # The first of several reasons is named.
        (SURE, 0.3, True, 0.4, "off_task"),
        (EVEN, 0.3, True, 0.9, "no_preference"),
        (UNSURE, -math.inf, True, 0.9, "suspended"),
        (UNSURE, -math.inf, False, 0.9, "infeasible"),
        (UNSURE, 0.3, True, 0.9, "suspended"),
        (UNSURE, 0.3, False, 0.9, "uncertain"),
    ],
)
def test_an_abstention_names_the_first_reason_that_applies(
    preference: Preference,
    threshold: float,
    suspended: bool,
    label_mass: float,
    reason: Reason | None,
) -> None:
    asked = case(preference, threshold, suspended=suspended, label_mass=label_mass)
    found = decide(asked, min_label_mass=0.5, judge=JUDGE)
    assert found.reason == reason
    assert found.verdict == ("A" if reason is None else "abstain")


def test_a_suspended_judgment_keeps_its_scores_and_its_threshold() -> None:
    found = decide(case(SURE, 0.3, suspended=True), min_label_mass=0.0, judge=JUDGE)
    assert (found.p_bar, found.uncertainty, found.threshold) == (SURE.p_bar, SURE.uncertainty, 0.3)


async def test_all_criteria_of_a_batch_use_one_version_of_a_set() -> None:
    async with services_of() as services:
        await calibrate(services)
        calibrations = services.calibrations
        usable = calibrations.usable

        async def changing(name: str, *, fingerprint: str) -> tuple[Calibration, float]:
            found = await usable(name, fingerprint=fingerprint)
            await services.calibrator.add(name, [labelled(5.0, "A", number=999)])
            return found

        calibrations.usable = changing  # type: ignore[method-assign]
        asked = [request(pair(3.0, 0.0), alpha=alpha) for alpha in (0.1, 0.2, 0.3)]
        judgments = await services.judge.judge_batch(asked)
    used = [one.judgment.calibration for one in judgments if isinstance(one, Case)]
    assert [one and one.version for one in used] == [1, 1, 1]


def pac(alpha: float) -> Criterion:
    return Criterion(alpha=alpha, guarantee="pac", delta=0.1, calibration="default")


async def test_a_threshold_is_kept_for_all_later_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = list[float]()
    tests = PacPairs.tests

    def counted(pairs: PacPairs, alpha: float, delta: float) -> object:
        computed.append(alpha)
        return tests(pairs, alpha, delta)

    monkeypatch.setattr(PacPairs, "tests", counted)
    known = calibration_of(
        {str(i): labeled_example(i / 100, i / 100, 1.0, "A") for i in range(200)}
    )
    threshold = await find_threshold(pac(0.2), known)
    assert await find_threshold(pac(0.2), known) == threshold
    assert computed == [0.2]
