"""A calibration set with pairs without labels, with ties, and with several pairs of a question."""

import math
from dataclasses import replace

import numpy as np
import pytest

from app.core.calibration import Calibration, LabeledExample
from app.core.comparison import Guarantee, Label
from app.core.errors import LabelsMissingError
from tests.labeled_examples import calibration_of, labeled_example


def scored(
    gap: float, label: Label | None = "A", *, mass: float = 0.9, question: int | None = None
) -> LabeledExample:
    return labeled_example(
        gap, gap, mass, label, None if question is None else f"{question + 1:064x}"
    )


def calibration(scores: list[LabeledExample]) -> Calibration:
    examples = {f"{i:064x}": score for i, score in enumerate(scores)}
    return calibration_of(examples, name="pool", min_label_mass=0.5)


CERTAIN = [scored(9 - i / 50) for i in range(300)]


@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
def test_one_missing_label_is_enough_to_refuse(guarantee: Guarantee) -> None:
    whole, delta = calibration(CERTAIN), None if guarantee == "marginal" else 0.1
    assert whole.threshold(0.1, guarantee, delta) > 0.0
    for place in (0, 299):
        scores = CERTAIN.copy()
        scores[place] = replace(scores[place], label=None)
        partly = calibration(scores)
        with pytest.raises(LabelsMissingError, match="has 1 pairs without a label"):
            partly.threshold(0.1, guarantee, delta)
        row = partly.row(0.1, guarantee, delta)
        assert row.labels_missing
        assert not row.feasible
        assert (row.threshold, row.coverage, row.empirical_risk) == (None, 0.0, None)
        for figure in (partly.accuracy, partly.auroc, partly.expected_calibration_error):
            assert figure is None


def test_pac_needs_no_label_of_a_pair_off_task_and_no_label_of_a_tie() -> None:
    off_task = [scored(9.5, None, mass=0.1) for _ in range(40)]
    ties = [scored(9.4, "tie") for _ in range(7)]
    found = calibration(CERTAIN + off_task + ties)
    assert found.threshold(0.1, "pac", 0.1) == math.log(2)
    row = found.row(0.1, "pac", 0.1)
    assert (row.coverage, row.empirical_risk) == (300 / 340, 0.0)
    assert (found.n, found.labelled, found.unlabelled, found.ties) == (347, 300, 40, 7)
    with pytest.raises(LabelsMissingError):
        found.threshold(0.1, "marginal", None)


def test_figures_leave_the_ties_of_a_pool_out() -> None:
    wrong = [scored(1.0 + i / 90, "B") for i in range(50)]
    ties = [scored(5.0 + i / 90, "tie") for i in range(30)]
    without, found = calibration(CERTAIN + wrong), calibration(CERTAIN + wrong + ties)
    assert found.accuracy == without.accuracy == pytest.approx(300 / 350)
    assert found.auroc == without.auroc
    assert found.expected_calibration_error == without.expected_calibration_error
    assert found.risk_coverage == without.risk_coverage
    for one, other in zip(found.standard_rows, without.standard_rows, strict=True):
        if one.guarantee == "marginal":
            assert replace(one, tie_share=0.0, tie_interval=other.tie_interval) == other


def test_the_drawn_pairs_do_not_depend_on_labels_or_scores() -> None:
    rng = np.random.default_rng(4)
    drawn = []
    for _ in range(3):
        scores = [
            scored(float(gap), ("A", "B", "tie", None)[rng.integers(4)], question=i // 3)
            for i, gap in enumerate(rng.normal(size=60))
        ]
        found = calibration(scores)
        assert (found.questions, int(found.counted.sum())) == (20, 20)
        drawn.append(found.counted.tolist())
    assert drawn[0] == drawn[1] == drawn[2]
