"""Off-task judgments are never accepted, and thresholds take that into account."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.calibration import Calibration, LabeledExample
from app.core.comparison import Guarantee, Side
from app.core.diagnostics import more_examples
from app.core.preference import LN2
from tests.labeled_examples import calibration_of, labeled_example


def calibration(scores: list[LabeledExample], min_label_mass: float) -> Calibration:
    examples = {f"{i:05d}": each for i, each in enumerate(scores)}
    return calibration_of(examples, min_label_mass=min_label_mass)


def score(gap: float, label: Side, label_mass: float) -> LabeledExample:
    return labeled_example(gap, gap, label_mass, label)


def test_thresholds_leave_out_off_task_examples() -> None:
    # On task: 19 right at gap 4, one wrong at gap 1. Off task: 20 wrong at gap 9, more certain than
    # all others, and one without a preference.
    on = [score(4, "A", 0.9)] * 19 + [score(1, "B", 0.5)]
    off = [score(9, "B", 0.499)] * 20 + [labeled_example(1.0, -1.0, 0.1, "A")]
    found = calibration(on + off, 0.5)
    assert (found.n, found.curve.n, found.undecided) == (41, 20, 0)
    # (0 + 1) / 19 and (1 + 1) / 20: the off-task examples do not count.
    assert found.curve.risk_levels.tolist() == [1 / 19, 0.1]
    low, whole = found.row(0.06, "marginal", None), found.row(0.1, "marginal", None)
    assert (low.threshold, low.coverage, low.empirical_risk) == (found.uncertainty[0], 19 / 41, 0.0)
    assert (whole.threshold, whole.coverage, whole.empirical_risk) == (LN2, 20 / 41, 0.05)
    assert [point.coverage for point in found.risk_coverage] == [19 / 41, 20 / 41]
    # Figures that describe the judge use all examples.
    assert found.accuracy == pytest.approx(19 / 41, abs=1e-15)
    assert found.position_flips == 1 / 41
    # Without the limit on label mass, the certain off-task errors are below every threshold.
    assert not calibration(on + off, 0.0).row(0.2, "marginal", None).feasible


@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
def test_more_examples_includes_future_off_task_examples(guarantee: Guarantee) -> None:
    delta = 0.1 if guarantee == "pac" else None
    on, off = [score(4, "A", 0.9)] * 8, [score(4, "A", 0.1)] * 4
    found = calibration(on + off, 0.5)
    row = found.row(0.1, guarantee, delta)
    more = found.more_examples(row)
    assert more is not None
    # Two in three examples are on task, so the set needs 1.5 times as many new examples.
    alone = more_examples(found.curve, 0.1, guarantee, delta)
    assert alone is not None
    assert more == math.ceil((8 + alone) * 12 / 8) - 12
    # That many examples make alpha feasible; three fewer do not.
    for extra, feasible in ((more, True), (more - 3, False)):
        n = (12 + extra) * 8 // 12
        grown = calibration([score(4, "A", 0.9)] * n, 0.5)
        assert grown.row(0.1, guarantee, delta).feasible == feasible


masses = st.floats(0, 1)
examples = st.builds(score, st.floats(-9, 9), st.sampled_from(["A", "B"]), masses)


@settings(max_examples=60)
@given(st.lists(examples, max_size=120), st.floats(0, 0.99))
def test_thresholds_are_those_of_the_examples_on_task(
    scores: list[LabeledExample], limit: float
) -> None:
    found = calibration(scores, limit)
    alone = calibration([each for each in scores if each.score.numbers[2] >= limit], 0.0)
    assert [row.threshold for row in found.standard_rows] == [
        row.threshold for row in alone.standard_rows
    ]
    assert found.curve.risk_levels.tolist() == alone.curve.risk_levels.tolist()
    for row, without in zip(found.standard_rows, alone.standard_rows, strict=True):
        assert row.empirical_risk == without.empirical_risk
        assert row.coverage * found.n == pytest.approx(without.coverage * alone.n, abs=1e-9)
