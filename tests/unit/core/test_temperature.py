"""The temperature of rewards: fitted through 0, and without effect on ranks and thresholds."""

import math

import numpy as np
import pytest

from app.core.calibration import Calibration
from app.core.comparison import Guarantee, Side
from app.core.preference import preference_from_gaps
from app.core.temperature import fitted_temperature
from tests.labeled_examples import calibration_of, labeled_example


def labels_of(gap: np.ndarray, temperature: float, rng: np.random.Generator) -> np.ndarray:
    """Labels that prefer response_a with probability sigmoid(gap / temperature)."""
    chosen: np.ndarray = rng.random(len(gap)) < 1.0 / (1.0 + np.exp(-gap / temperature))
    return chosen


@pytest.mark.parametrize("temperature", [0.02, 1.0, 7.0, 4e5])
def test_the_temperature_of_simulated_labels_is_found(temperature: float) -> None:
    rng = np.random.default_rng(3)
    gap = rng.normal(size=20_000) * 2.0 * temperature
    found = fitted_temperature(gap, labels_of(gap, temperature, rng))
    assert found == pytest.approx(temperature, rel=0.05)


def test_two_gaps_of_one_size_have_the_temperature_by_hand() -> None:
    # Three of four verdicts with gaps of +-2 are right. Platt's targets are 4/5 and 1/3, so their
    # mean is (3 * 4/5 + 1/3) / 4 = 41/60, and sigmoid(2 / T) = 41/60.
    gap = np.array([2.0, 2.0, -2.0, 2.0])
    label_a = np.array([True, True, False, False])
    expected = 2.0 / math.log((41 / 60) / (19 / 60))
    assert fitted_temperature(gap, label_a) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("gap", "label_a"),
    [([], []), ([0.0, 0.0], [True, False]), ([1.0, 2.0], [False, False])],
    ids=["no pairs", "ties", "a judge that is always wrong"],
)
def test_gaps_that_fit_no_temperature_stay_as_they_are(
    gap: list[float], label_a: list[bool]
) -> None:
    assert fitted_temperature(np.array(gap), np.array(label_a, dtype=bool)) == 1.0


def test_a_judge_that_is_always_right_has_a_finite_temperature() -> None:
    gap = np.linspace(0.01, 30.0, 1000)
    found = fitted_temperature(gap, np.ones(1000, dtype=bool))
    assert 0.0 < found < 30.0
    entropy = preference_from_gaps(gap / found, gap / found).entropy
    # No two rewards tie.
    assert len(set(entropy.tolist())) == 1000


def set_of(gaps: np.ndarray, labels: np.ndarray, *, orders: int = 1) -> Calibration:
    sides: list[Side] = ["A" if label else "B" for label in labels.tolist()]
    return calibration_of(
        {
            f"{i:064x}": labeled_example(gap, None if orders == 1 else gap, None, side)
            for i, (gap, side) in enumerate(zip(gaps.tolist(), sides, strict=True))
        }
    )


def test_the_temperature_changes_no_accepted_set() -> None:
    rng = np.random.default_rng(5)
    gaps = rng.normal(size=600) * 40.0
    labels = labels_of(gaps, 25.0, rng)
    scaled, raw = set_of(gaps, labels), set_of(gaps, labels, orders=2)
    assert scaled.temperature == pytest.approx(25.0, rel=0.2)
    assert (raw.temperature, raw.orders, scaled.orders) == (1.0, 2, 1)
    assert scaled.error.tolist() == raw.error.tolist()
    for alpha in (0.05, 0.1, 0.2):
        for delta in (None, 0.1):
            guarantee: Guarantee = "marginal" if delta is None else "pac"
            accepted = [
                (each.uncertainty <= each.threshold(alpha, guarantee, delta)).tolist()
                for each in (scaled, raw)
            ]
            assert accepted[0] == accepted[1]
    assert any(accepted[0])
    # The probabilities fit the labels, and those of the raw rewards do not.
    assert scaled.expected_calibration_error is not None
    assert raw.expected_calibration_error is not None
    assert scaled.expected_calibration_error < 0.05 < raw.expected_calibration_error


def test_a_set_without_all_labels_has_no_temperature() -> None:
    gaps = np.array([3.0, -5.0, 4.0])
    examples = dict(set_of(gaps, gaps > 0).examples)
    examples["f" * 64] = labeled_example(2.0, None, None, None)
    assert calibration_of(examples).temperature == 1.0
