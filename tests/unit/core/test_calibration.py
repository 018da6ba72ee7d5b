"""Errors, thresholds and figures of a calibration set."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.calibration import (
    GUARANTEES,
    STANDARD_ALPHAS,
    STANDARD_DELTA,
    Calibration,
    LabeledExample,
)
from app.core.comparison import Side
from app.core.preference import LN2, Score
from tests.labeled_examples import calibration_of, labeled_example

patient = settings(max_examples=60)


def score(gap_fwd: float, gap_rev: float, label: Side) -> LabeledExample:
    return labeled_example(gap_fwd, gap_rev, label_mass=0.99, label=label)


def calibration(scores: list[LabeledExample]) -> Calibration:
    examples = {f"{i:04d}": each for i, each in enumerate(scores)}
    return calibration_of(examples)


def good_judge(n: int, seed: int = 5) -> Calibration:
    """A judge whose gap is large where it is right: label A, gap from N(3, 2)."""
    gaps = np.random.default_rng(seed).normal(3.0, 2.0, (n, 2)).tolist()
    return calibration([score(fwd, rev, "A") for fwd, rev in gaps])


scores = st.builds(
    score, st.floats(-9, 9), st.integers(-9, 9).map(float), st.sampled_from(["A", "B"])
)


def test_a_judge_errs_where_it_disagrees_with_the_label() -> None:
    found = calibration([score(2, 2, "A"), score(2, 2, "B"), score(-2, 1, "A"), score(-2, 1, "B")])
    assert found.error.tolist() == [False, True, True, False]
    assert found.accuracy == 0.5


@pytest.mark.parametrize("label", ["A", "B"])
@pytest.mark.parametrize("gap", [0.0, 5.0, 0.1])
def test_no_preference_is_an_error_at_ln_2(label: Side, gap: float) -> None:
    # Label A leads by `gap` in both orders, so the gaps for response_a are gap and -gap.
    found = calibration([score(gap, -gap, label)])
    assert found.preferences.p_bar.tolist() == [0.5]
    assert found.error.tolist() == [True]
    assert found.uncertainty.tolist() == [LN2]


def test_a_row_by_hand() -> None:
    # 19 right at gap 4, one wrong at gap 1: 1/19 = 0.0526 below, 2/20 = 0.1 with the wrong one.
    found = calibration([score(4, 4, "A")] * 19 + [score(1, 1, "B")])
    low = found.row(0.06, "marginal", None)
    assert (low.threshold, low.coverage, low.empirical_risk, low.feasible) == (
        found.uncertainty[0],
        0.95,
        0.0,
        True,
    )
    whole = found.row(0.1, "marginal", None)
    assert (whole.threshold, whole.coverage, whole.empirical_risk) == (LN2, 1.0, 0.05)
    none = found.row(0.05, "marginal", None)
    assert (none.threshold, none.coverage, none.empirical_risk, none.feasible) == (
        None,
        0.0,
        None,
        False,
    )


def test_standard_rows_are_both_guarantees_at_five_alphas() -> None:
    found = good_judge(400)
    rows = found.standard_rows
    assert [(row.guarantee, row.alpha) for row in rows] == [
        (guarantee, alpha) for guarantee in GUARANTEES for alpha in STANDARD_ALPHAS
    ]
    assert [row.delta for row in rows] == [None] * 5 + [STANDARD_DELTA] * 5
    assert all(row.feasible for row in rows)
    for row in rows:
        assert row.threshold is not None
        accepted = found.uncertainty <= row.threshold
        assert row.coverage == accepted.mean()
        assert row.empirical_risk == pytest.approx(found.error[accepted].mean(), abs=1e-15)


def test_the_risk_coverage_curve_keeps_both_ends_and_200_points_at_most() -> None:
    found = good_judge(1000)
    points = found.risk_coverage
    assert len(points) == 200
    assert points[0].uncertainty == found.uncertainty.min()
    assert points[-1].uncertainty == found.uncertainty.max()
    assert points[-1].coverage == 1.0
    assert points[-1].empirical_risk == pytest.approx(found.error.mean(), abs=1e-15)
    for name in ("uncertainty", "coverage", "risk_level"):
        column = [getattr(point, name) for point in points]
        assert column == sorted(column)
    assert len(good_judge(7).risk_coverage) == 7


@patient
@given(st.lists(scores, max_size=60))
def test_swapping_every_example_changes_nothing(examples: list[LabeledExample]) -> None:
    here = calibration(examples)
    swapped = [
        score(-gap_rev, -gap_fwd, "B" if each.label == "A" else "A")
        for each in examples
        if isinstance(each.score, Score)
        for gap_fwd, gap_rev in [each.score.gaps]
    ]
    there = calibration(swapped)
    assert here.error.tolist() == there.error.tolist()
    assert here.standard_rows == there.standard_rows
    assert here.risk_coverage == there.risk_coverage


def test_examples_without_a_preference_are_errors_for_the_threshold_and_never_accepted() -> None:
    # 18 right at a gap of 3, and two without a preference: (2 + 1) / 20 = 0.15 is feasible at
    # 0.15. All 18 with a preference are accepted there, and all 18 are right.
    sure = {f"{i:02}": labeled_example(3.0, 3.0, 1.0, "A") for i in range(18)}
    even = {f"x{i}": labeled_example(0.0, 0.0, 1.0, "A") for i in range(2)}
    found = calibration_of(sure | even)
    row = found.row(0.15, "marginal", None)
    assert row.threshold == LN2
    assert (row.coverage, row.empirical_risk) == (0.9, 0.0)
    assert [(point.coverage, point.empirical_risk) for point in found.risk_coverage] == [
        (0.9, 0.0),
        (0.9, 0.0),
    ]
    assert found.accuracy == 0.9
