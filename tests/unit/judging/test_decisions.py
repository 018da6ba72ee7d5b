"""Tests of the order of the reasons of an abstention."""

import math

import pytest

from app.core.comparison import Criterion, Reason
from app.core.score import Preference
from app.judging.decisions import AcceptanceRule, decide
from scope_judge.records import CalibrationReference

SURE = Preference(p_fwd=0.99, p_rev=0.99, p_bar=0.99, uncertainty=0.056)
UNSURE = Preference(p_fwd=0.6, p_rev=0.6, p_bar=0.6, uncertainty=0.673)
EVEN = Preference(p_fwd=0.5, p_rev=0.5, p_bar=0.5, uncertainty=math.log(2.0))


def rule(threshold: float, *, suspended: bool, min_label_mass: float) -> AcceptanceRule:
    return AcceptanceRule(
        criterion=Criterion(alpha=0.1, guarantee="marginal", delta=None, calibration="default"),
        threshold=threshold,
        calibration=CalibrationReference(name="default", version=1, n=100),
        min_label_mass=min_label_mass,
        suspended=suspended,
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
    found = decide(
        preference,
        rule(threshold, suspended=suspended, min_label_mass=0.5),
        label_mass=label_mass,
        judge="judge",
    )
    assert found.reason == reason
    assert found.verdict == ("A" if reason is None else "abstain")


def test_a_suspended_judgment_keeps_its_scores_and_its_threshold() -> None:
    suspended = rule(0.3, suspended=True, min_label_mass=0.0)
    found = decide(SURE, suspended, label_mass=0.9, judge="judge")
    assert (found.preference, found.threshold) == (SURE, 0.3)
