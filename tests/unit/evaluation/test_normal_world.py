"""The normal world: its draws have its closed form."""

import math

import numpy as np
import pytest

from app.core.diagnostics import auroc
from app.core.preference import LN2
from app.evaluation.normal_world import NormalJudge


@pytest.mark.parametrize(
    "judge", [NormalJudge(accuracy=0.807, auroc=0.744), NormalJudge(accuracy=0.6, auroc=0.5)]
)
def test_a_judge_has_the_given_accuracy_and_auroc(judge: NormalJudge) -> None:
    n = 200_000
    uncertainty, wrong = judge.draw(n, np.random.default_rng(1))
    assert ((uncertainty >= 0.0) & (uncertainty <= LN2)).all()
    # 4 standard errors: of a share at most 0.0045, of an AUROC at most 1 / sqrt(12 n_wrong) each.
    assert 1.0 - wrong.mean() == pytest.approx(judge.accuracy, abs=0.0045)
    tolerance = 4 / math.sqrt(12 * min(wrong.sum(), n - wrong.sum()))
    assert auroc(-uncertainty, ~wrong) == pytest.approx(judge.auroc, abs=tolerance)


def test_the_closed_form_agrees_with_a_large_draw() -> None:
    judge = NormalJudge(accuracy=0.807, auroc=0.744)
    uncertainty, wrong = judge.draw(400_000, np.random.default_rng(2))
    thresholds = np.array([0.05, 0.3, 0.6])
    for threshold, coverage, error in zip(thresholds, *judge.truth(thresholds), strict=True):
        accepted = uncertainty <= threshold
        # 5 standard errors of a share at n = 400,000 are 0.004 at most; of errors, over accepted.
        assert accepted.mean() == pytest.approx(coverage, abs=0.004)
        assert wrong[accepted].mean() == pytest.approx(error, abs=2.5 / math.sqrt(accepted.sum()))


def test_the_extreme_thresholds_accept_nothing_and_everything() -> None:
    coverage, error = NormalJudge(accuracy=0.8, auroc=0.7).truth(np.array([-math.inf, LN2]))
    assert coverage.tolist() == [0.0, pytest.approx(1.0)]
    assert error.tolist() == [0.0, pytest.approx(0.2)]
