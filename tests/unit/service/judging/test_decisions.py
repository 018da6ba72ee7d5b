"""Tests of the order of the reasons of an abstention."""

import math

import pytest

from app.core.comparison import CalibrationReference, Criterion, Reason
from app.service.judging.decisions import AcceptanceRule, PreferenceRow, decide

CRITERION = Criterion(0.1, "marginal", None, "default")
REFERENCE = CalibrationReference("default", 1, 100)
SURE = PreferenceRow(0.99, 0.99, 0.99, 0.056, 0.99)
UNSURE = PreferenceRow(0.6, 0.6, 0.6, 0.673, 0.6)
EVEN = PreferenceRow(0.5, 0.5, 0.5, math.log(2.0), 0.5)


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
    preference: PreferenceRow,
    threshold: float,
    suspended: bool,
    label_mass: float,
    reason: Reason | None,
) -> None:
    rule = AcceptanceRule(threshold, None, REFERENCE, suspended)
    found = decide(
        preference, CRITERION, rule, label_mass=label_mass, min_label_mass=0.5, judge="judge"
    )
    assert found.reason == reason
    assert found.verdict == ("A" if reason is None else "abstain")


def test_a_suspended_judgment_keeps_its_scores_and_its_threshold() -> None:
    rule = AcceptanceRule(0.3, None, REFERENCE, True)
    found = decide(SURE, CRITERION, rule, label_mass=0.9, min_label_mass=0.0, judge="judge")
    assert (found.preferred, found.threshold, found.uncertainty) == ("A", 0.3, 0.056)
