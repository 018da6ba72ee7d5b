"""Tests of the order of the reasons of an abstention."""

import math

import pytest

from app.core.comparison import Criterion, Reason
from app.core.fingerprint import JudgeIdentity
from app.core.score import Preference, Score
from app.judges.case import Case
from app.judging.judge import decide
from tests.serving import pair

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
    assert (found.preference, found.threshold) == (SURE, 0.3)
