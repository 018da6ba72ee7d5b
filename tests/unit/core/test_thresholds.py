"""The threshold curve: examples by hand, properties, and comparison with the definition."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.preference import LN2
from app.core.thresholds import ThresholdCurve, accepted_and_errors

patient = settings(max_examples=200)
NOISES = ("0.0", "0.05", "0.1", "0.2", "0.3")
ALPHAS = ("0.05", "0.07", "0.1", "0.15", "0.2", "0.25", "0.29", "0.33", "0.5", "0.9")
# Few distinct scores give many ties.
points = st.lists(st.tuples(st.integers(0, 12).map(lambda i: i * LN2 / 12), st.booleans()))
noises = st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.3])


def fit(data: list[tuple[float, bool]], label_noise: float = 0.0) -> ThresholdCurve:
    return ThresholdCurve.fit([s for s, _ in data], [e for _, e in data], label_noise)


def by_definition(scores: list[float], wrong: list[bool], alpha: str, noise: str) -> float:
    """Solves eq. scope_condition in rational numbers: sum S (E - alpha_obs) <= -1."""
    eps = Fraction(noise)
    alpha_obs = eps + (1 - 2 * eps) * Fraction(alpha)
    feasible = []
    for t in set(scores):
        accepted = [e for s, e in zip(scores, wrong, strict=True) if s <= t]
        if sum(accepted) - alpha_obs * len(accepted) <= -1:
            feasible.append(t)
    if not feasible:
        return -math.inf
    return LN2 if max(feasible) == max(scores) else max(feasible)


def test_a_curve_by_hand() -> None:
    # Scores 0.1 right, 0.2 right, 0.2 wrong, 0.3 right, 0.4 wrong. Blocks (k, e): (1, 0), (3, 1),
    # (4, 1), (5, 2). (e + 1) / k: 1, 2/3, 1/2, 3/5. Minimum from the right: 1/2, 1/2, 1/2, 3/5.
    curve = ThresholdCurve.fit([0.3, 0.2, 0.1, 0.4, 0.2], [False, True, False, True, False])
    assert curve.scores.tolist() == [0.1, 0.2, 0.3, 0.4]
    assert curve.accepted.tolist() == [1, 3, 4, 5]
    assert curve.errors.tolist() == [0, 1, 1, 2]
    assert curve.risk_levels.tolist() == [0.5, 0.5, 0.5, 0.6]
    assert curve.n == 5
    assert curve.threshold(0.49) == -math.inf
    assert curve.threshold(0.5) == 0.3
    assert curve.threshold(0.6) == LN2
    assert curve.risk_level(0.05) == 0.5
    assert curve.risk_level(0.35) == 0.6
    assert curve.risk_level(LN2) == 0.6
    assert [curve.accepted_at(t) for t in (-math.inf, 0.05, 0.2, 0.25, LN2)] == [
        (0, 0),
        (0, 0),
        (3, 1),
        (3, 1),
        (5, 2),
    ]


@pytest.mark.parametrize("wrong", [False, True])
def test_one_point_is_never_enough(wrong: bool) -> None:
    # (0 + 1) / 1 = 1 is not an alpha in (0, 1).
    curve = ThresholdCurve.fit([0.1], [wrong])
    assert curve.threshold(0.999) == -math.inf
    assert curve.risk_level(0.1) == math.inf


def test_no_points_accept_nothing() -> None:
    curve = ThresholdCurve.fit([], [])
    assert curve.n == 0
    assert curve.threshold(0.999) == -math.inf
    assert curve.threshold(np.array([0.1, 0.9])).tolist() == [-math.inf] * 2
    assert curve.risk_level(0.0) == math.inf
    assert curve.risk_level(np.array([0.0, LN2])).tolist() == [math.inf] * 2
    assert curve.accepted_at(LN2) == (0, 0)


def random_case(rng: random.Random) -> tuple[list[float], list[bool]]:
    n = rng.choice([0, 1, 1, 2, 3, 5, 8, 13, 20, 40, 100])
    grid = rng.choice([1, 3, 10, 1000])
    rate = rng.choice([0.0, 0.03, 0.1, 0.28, 0.5, 1.0])
    scores = [rng.randint(0, grid) / grid * LN2 for _ in range(n)]
    return scores, [rng.random() < rate for _ in range(n)]


@pytest.mark.parametrize("seed", range(4))
def test_the_curve_agrees_with_the_definition(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(1000):
        scores, wrong = random_case(rng)
        alpha, noise = rng.choice(ALPHAS), rng.choice(NOISES)
        found = ThresholdCurve.fit(scores, wrong, float(noise)).threshold(float(alpha))
        assert found == by_definition(scores, wrong, alpha, noise), (scores, wrong, alpha, noise)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("n", [40, 100, 200])
def test_the_curve_agrees_with_the_definition_at_equality(n: int, noise: str) -> None:
    # All counts of errors with all two-digit alphas often reach equality in the condition.
    for errors in range(n):
        wrong = [i < errors for i in range(n)]
        curve = ThresholdCurve.fit([0.5] * n, wrong, float(noise))
        eps = Fraction(noise)
        alphas = [f"0.{hundredths:02d}" for hundredths in range(1, 100)]
        obs = [eps + (1 - 2 * eps) * Fraction(alpha) for alpha in alphas]
        expected = [errors - n * alpha_obs <= -1 for alpha_obs in obs]
        assert (curve.threshold(np.array(alphas, dtype=float)) == LN2).tolist() == expected


@patient
@given(points, noises)
def test_thresholds_never_decrease_in_alpha(data: list[tuple[float, bool]], noise: float) -> None:
    curve = fit(data, noise)
    alphas = np.unique(np.append(np.linspace(0.001, 0.999, 200), curve.risk_levels))
    thresholds = curve.threshold(alphas).tolist()
    assert thresholds == sorted(thresholds)
    assert thresholds == [curve.threshold(alpha) for alpha in alphas.tolist()]


@patient
@given(points, noises, st.lists(st.floats(0.0, LN2), max_size=4))
def test_a_judgment_is_accepted_exactly_from_its_risk_level(
    data: list[tuple[float, bool]], noise: float, others: list[float]
) -> None:
    curve = fit(data, noise)
    uncertainty = np.array([0.0, LN2, *others, *curve.scores])
    risk_level = curve.risk_level(uncertainty)
    assert risk_level.tolist() == [curve.risk_level(u) for u in uncertainty.tolist()]
    inner = curve.risk_levels[(curve.risk_levels > 0) & (curve.risk_levels < 1)]
    ordinary = np.array([1e-9, 0.1, 0.29, 0.999])
    alphas = np.concatenate([inner, np.nextafter(inner, 0), np.nextafter(inner, 1), ordinary])
    alphas = alphas[alphas < 1]
    accepted = uncertainty[:, None] <= curve.threshold(alphas)[None, :]
    assert (accepted == (alphas[None, :] >= risk_level[:, None])).all()


@pytest.mark.parametrize("label_noise", [0.5, -0.1, 0.7, math.nan, math.inf])
def test_label_noise_out_of_range_is_refused(label_noise: float) -> None:
    with pytest.raises(ValueError, match="label_noise"):
        ThresholdCurve.fit([0.1], [False], label_noise)


def test_a_nan_score_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        ThresholdCurve.fit([0.1, math.nan], [False, False])


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        ThresholdCurve.fit([0.1, 0.2], [False])
    with pytest.raises(ValueError, match="shape"):
        accepted_and_errors([[0.1]], [[False]])
