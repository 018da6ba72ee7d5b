"""The normal world, by which other simulations know the truth: its draws have its closed form."""

import math

import numpy as np
import pytest

from app.core.diagnostics import auroc
from tests.statistics.worlds.normal import NormalJudge


def test_the_closed_form_agrees_with_a_large_draw() -> None:
    judge, n = NormalJudge(accuracy=0.807, auroc=0.744), 400_000
    uncertainty, wrong = judge.draw(n, np.random.default_rng(2))
    assert 1.0 - wrong.mean() == pytest.approx(judge.accuracy, abs=0.004)
    assert auroc(-uncertainty, ~wrong) == pytest.approx(judge.auroc, abs=0.006)
    thresholds = np.array([0.05, 0.3, 0.6])
    for threshold, coverage, error in zip(thresholds, *judge.truth(thresholds), strict=True):
        accepted = uncertainty <= threshold
        # 5 standard errors of a share at n = 400,000 are 0.004 at most; of errors, over accepted.
        assert accepted.mean() == pytest.approx(coverage, abs=0.004)
        assert wrong[accepted].mean() == pytest.approx(error, abs=2.5 / math.sqrt(accepted.sum()))
