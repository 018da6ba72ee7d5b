"""Every selection rule by hand, against its definition in a plain loop, and by simulation."""

import math

import numpy as np
import pytest
from scipy.stats import beta

from app.core.preference import LN2, binary_entropy
from app.evaluation.selectors import (
    SELECTORS,
    Points,
    RiskTarget,
    SelectorName,
    heuristic,
    trust_or_escalate,
)
from tests.statistics.worlds.normal import NormalJudge

ALPHAS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5, 0.8)
NO_POINTS = Points.of([], [])


def normal_world(accuracy: float, auroc: float, n: int, *, seed: int) -> Points:
    """Confidence is N(d, 1) when right and N(0, 1) when wrong (docs/design/guarantees.md)."""
    return Points.of(
        *NormalJudge(accuracy=accuracy, auroc=auroc).draw(n, np.random.default_rng(seed))
    )


def tied_world(n: int, *, seed: int, levels: int = 12) -> Points:
    """A judge with few distinct scores, including ln 2, that errs more when less confident."""
    rng = np.random.default_rng(seed)
    uncertainty = LN2 * rng.integers(0, levels + 1, size=n) / levels
    return Points.of(uncertainty, rng.random(n) < 0.4 * uncertainty)


def level(j: int) -> float:
    return j / 100


# 60 points at scores 0.01 to 0.60; the 31st to 35th and all from the 51st on are wrong.
HAND = Points(
    np.array([level(j) for j in range(1, 61)]),
    np.array([31 <= j <= 35 or j > 50 for j in range(1, 61)]),
)


@pytest.mark.parametrize(
    ("name", "alpha", "expected"),
    [
        ("vanilla", 0.1, LN2),
        # Up to the 50th point there are 5 errors, and each further point is an error: 5 / 50 = 0.1
        # and 6 / 51 = 0.118. At alpha 0.25, 15 / 60 is exactly enough.
        ("naive", 0.1, level(50)),
        ("naive", 0.24, level(59)),
        ("naive", 0.25, LN2),
        # (5 + 1) / 50 = 0.12; before it (2 + 1) / 32 = 0.094 and (3 + 1) / 33 = 0.121; the smallest
        # is (0 + 1) / 30.
        ("scope", 0.12, level(50)),
        ("scope", 0.1, level(32)),
        ("scope", 0.034, level(30)),
        ("scope", 0.03, -math.inf),
        # 0.9^30 = 0.042 passes. With one error at 31, 0.9^31 + 31 * 0.1 * 0.9^30 = 0.170 fails.
        ("trust_or_escalate", 0.1, level(30)),
        # 0.93^30 = 0.113 fails, and later points are not tested.
        ("trust_or_escalate", 0.07, -math.inf),
        # pac starts at rank 91 for alpha = delta = 0.1.
        ("pac", 0.1, -math.inf),
    ],
)
def test_thresholds_by_hand(name: SelectorName, alpha: float, expected: float) -> None:
    assert SELECTORS[name](HAND, RiskTarget(alpha, 0.1)) == expected


def test_trust_or_escalate_accepts_or_refuses_a_block_of_ties_as_a_whole() -> None:
    # Votes of 5 annotators (SCOPE, appendix): 40 unanimous points, 1 wrong, are 0.9^40 +
    # 40 * 0.1 * 0.9^39 = 0.080 <= 0.1; with the next block, 10 of 80, the bound is far above 0.1.
    confidence = np.repeat([1.0, 0.8], 40)
    uncertainty = binary_entropy(confidence, 1.0 - confidence)
    points = Points(uncertainty, np.isin(np.arange(80), [3, *range(50, 59)]))
    assert trust_or_escalate(points, RiskTarget(0.1, 0.1)) == 0.0


@pytest.mark.parametrize("alpha", ALPHAS)
def test_heuristic_accepts_exactly_a_confidence_of_1_minus_alpha_or_more(alpha: float) -> None:
    confidence = np.array([j / 20 for j in range(10, 21)])
    uncertainty = binary_entropy(confidence, 1.0 - confidence)
    threshold = heuristic(NO_POINTS, RiskTarget(alpha, 0.1))
    expected = np.round(confidence, 6) >= np.round(1.0 - alpha, 6)
    assert ((uncertainty <= threshold) == expected).all()


def slow_trust_or_escalate(points: Points, alpha: float, delta: float) -> float:
    uncertainty, error = points
    found = -math.inf
    for s in sorted(set(uncertainty.tolist())):
        k, e = int((uncertainty <= s).sum()), int(error[uncertainty <= s].sum())
        if k < 30:
            continue
        # Clopper-Pearson: the largest rate at which so few errors still have probability delta.
        if e < k and beta.ppf(1.0 - delta, e + 1, k - e) <= alpha:
            found = s
        else:
            break
    return LN2 if found == uncertainty.max() else float(found)


@pytest.mark.parametrize("seed", range(8))
def test_trust_or_escalate_agrees_with_a_plain_loop_with_and_without_ties(seed: int) -> None:
    for points in (normal_world(0.85, 0.8, 150, seed=seed), tied_world(300, seed=seed)):
        for alpha in (0.03, *ALPHAS[:-1]):
            expected = slow_trust_or_escalate(points, alpha, 0.1)
            assert trust_or_escalate(points, RiskTarget(alpha, 0.1)) == expected
