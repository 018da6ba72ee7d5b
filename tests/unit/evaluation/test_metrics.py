"""The metrics by hand, and against scikit-learn on data with ties."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, roc_auc_score

from app.evaluation.metrics import RiskCoverage, quality


def test_quality_by_hand() -> None:
    found = quality([0.95, 0.85, 0.75, 0.65], [False, True, False, True])
    assert found.accuracy == 0.5
    # Each is alone in its bin: (0.05 + 0.85 + 0.25 + 0.65) / 4.
    assert found.ece == pytest.approx(0.45, abs=1e-12)
    # 0.95 is above both wrong ones and 0.75 above one: 3 of 4.
    assert found.auroc == 0.75
    # Recall rises by 1/2 at precision 1/1 and by 1/2 at precision 2/3.
    assert found.auprc == pytest.approx((1 + 2 / 3) / 2, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_all_agree_with_scikit_learn_and_plain_loops_on_ties(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 200
    confidence = 0.5 + rng.integers(0, 12, size=n) / 22
    right = rng.random(n) < confidence
    found = quality(confidence, ~right)
    assert found.accuracy == pytest.approx(accuracy_score(right, np.ones(n)), abs=1e-12)
    assert found.auroc == pytest.approx(roc_auc_score(right, confidence), abs=1e-12)
    slow = 0.0
    for m in range(10):
        bin_m = (confidence > m / 10) & (confidence <= (m + 1) / 10)
        if bin_m.any():
            slow += bin_m.sum() / n * abs(right[bin_m].mean() - confidence[bin_m].mean())
    assert found.ece == pytest.approx(slow, abs=1e-12)
    area, recall = 0.0, 0.0
    for c in sorted(set(confidence.tolist()), reverse=True):
        above = confidence >= c
        reached = right[above].sum() / right.sum()
        area, recall = area + (reached - recall) * right[above].mean(), reached
    assert found.auprc == pytest.approx(area, abs=1e-12)


def test_the_three_readings_of_risk_by_hand() -> None:
    # Splits: 0 of 10 accepted; 1 wrong of 2; 1 wrong of 10. Risks 0, 1/2, 1/10.
    found = RiskCoverage.over_splits([0, 2, 10], [0, 1, 1], 10, alpha=0.1)
    assert found.coverage == pytest.approx(0.4)
    assert found.coverage_std == pytest.approx(np.std([0.0, 0.2, 1.0]))
    assert found.risk == pytest.approx(0.2)
    assert found.risk_std == pytest.approx(np.std([0.0, 0.5, 0.1]))
    assert found.ratio_of_sums == pytest.approx(2 / 12)
    # 1 / 10 does not exceed 0.1.
    assert found.share_above_alpha == pytest.approx(1 / 3)
    assert found.splits == 3
