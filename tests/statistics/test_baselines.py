"""The paper's other rules and readings of risk, in worlds whose true error is known.

Section 2 of docs/design/guarantees.md has the expected numbers.
"""

import math

import numpy as np
import pytest

from app.core.preference import FloatArray
from app.evaluation.selectors import SELECTORS, Points, RiskTarget, SelectorName
from tests.statistics.worlds.normal import NormalJudge


def truths(
    name: SelectorName, judge: NormalJudge, n: int, target: RiskTarget, calibrations: int
) -> tuple[FloatArray, FloatArray]:
    """True coverage and error of the calibrated thresholds, each of shape (calibrations,)."""
    thresholds = [
        SELECTORS[name](Points.of(*judge.draw(n, np.random.default_rng(seed))), target)
        for seed in range(calibrations)
    ]
    return judge.truth(np.array(thresholds))


def test_scopes_three_readings_of_risk_differ_and_naive_exceeds_alpha_even_on_average() -> None:
    judge, target = NormalJudge(accuracy=0.738, auroc=0.685), RiskTarget(0.1, 0.1)
    coverage, risk = truths("scope", judge, 50, target, 400)
    assert risk.mean() == pytest.approx(0.060, abs=0.015)
    assert (coverage * risk).sum() / coverage.sum() == pytest.approx(0.160, abs=0.02)
    assert (risk > 0.1).mean() == pytest.approx(0.40, abs=0.08)
    # The mean counts a calibration that accepts nothing as 0.
    assert truths("naive", judge, 50, target, 400)[1].mean() > 0.115


def test_trust_or_escalate_keeps_its_guarantee_and_accepts_something() -> None:
    alpha, delta, calibrations = 0.15, 0.1, 600
    judge = NormalJudge(accuracy=0.8, auroc=0.8)
    coverage, risk = truths("trust_or_escalate", judge, 500, RiskTarget(alpha, delta), calibrations)
    assert (coverage > 0).mean() > 0.5
    # A true rate of delta exceeds this bound, 2.5 standard errors above it, in 0.6% of seeds.
    bound = delta + 2.5 * math.sqrt(delta * (1 - delta) / calibrations)
    assert (risk > alpha).mean() <= bound
