"""The paper's other rules and readings of risk, in worlds whose true error is known.

Section 2 of docs/design/guarantees.md has the expected numbers.
"""

import math
from collections.abc import Mapping

import numpy as np
import pytest

from app.core.preference import FloatArray
from app.evaluation.protocol import Design, run_protocol
from app.evaluation.selectors import SELECTORS, Points, RiskTarget, Selector, SelectorName
from tests.statistics.worlds.normal import NormalJudge

SCOPE_AND_NAIVE: Mapping[str, Selector] = {name: SELECTORS[name] for name in ("scope", "naive")}


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


def test_the_protocol_reports_the_ratio_of_a_judge_whose_confidence_is_useless() -> None:
    # Accuracy 0.85, AUROC 0.5, n = 200: the ratio is 0.150 for any threshold, and the mean of the
    # tables is lower, because some calibrations accept nothing. The mean of naive is 0.124.
    judge = NormalJudge(accuracy=0.85, auroc=0.5)
    risk, naive_risk, errors, coverage = [], [], [], []
    for seed in range(200):
        points = Points.of(*judge.draw(400, np.random.default_rng(seed)))
        design = Design(seed=seed, splits=10, alphas=(0.1,))
        scope, naive = (
            row.outcome for row in run_protocol(points, design, selectors=SCOPE_AND_NAIVE)
        )
        risk.append(scope.risk)
        naive_risk.append(naive.risk)
        coverage.append(scope.coverage)
        errors.append(scope.coverage * (scope.ratio_of_sums or 0.0))
    standard_error = float(np.std(risk)) / math.sqrt(200)
    assert np.mean(risk) == pytest.approx(0.056, abs=3 * standard_error + 0.003)
    assert np.mean(naive_risk) > 0.1 + 3 * np.std(naive_risk) / math.sqrt(200)
    # Measured 0.1507, standard error 0.0030 over data sets.
    assert sum(errors) / sum(coverage) == pytest.approx(0.150, abs=0.009)


def test_trust_or_escalate_keeps_its_guarantee_and_accepts_something() -> None:
    alpha, delta, calibrations = 0.15, 0.1, 600
    judge = NormalJudge(accuracy=0.8, auroc=0.8)
    coverage, risk = truths("trust_or_escalate", judge, 500, RiskTarget(alpha, delta), calibrations)
    assert (coverage > 0).mean() > 0.5
    # A true rate of delta exceeds this bound, 2.5 standard errors above it, in 0.6% of seeds.
    bound = delta + 2.5 * math.sqrt(delta * (1 - delta) / calibrations)
    assert (risk > alpha).mean() <= bound


def test_vanilla_accepts_everything_and_its_risk_is_the_error_rate() -> None:
    points = Points.of(*NormalJudge(accuracy=0.8, auroc=0.75).draw(400, np.random.default_rng(8)))
    vanilla = run_protocol(points, Design(seed=1, splits=200))[0].outcome
    assert (vanilla.coverage, vanilla.coverage_std) == (1.0, 0.0)
    assert vanilla.risk == pytest.approx(vanilla.ratio_of_sums)
    assert vanilla.risk == pytest.approx(points.error.mean(), abs=4 * vanilla.risk_std / 200**0.5)
