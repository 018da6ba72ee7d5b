"""The conformal martingale: comparison with a naive loop, bounded memory, and edges."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from app.core import conformal
from app.core.conformal import ConformalMartingale

Floats = NDArray[np.float64]
EPSILONS = (-0.8, -0.4, -0.2, 0.2, 0.4, 0.8)


def naive(calibration: Floats, values: Floats, ties: Floats) -> list[float]:
    """The wealth after each value: ranks among all before it, one value and one bet at a time."""
    seen, wealth = calibration.tolist(), dict.fromkeys(EPSILONS, 0.0)
    found = []
    for k, (value, tie) in enumerate(zip(values.tolist(), ties.tolist(), strict=True), start=1):
        below = sum(each < value for each in seen)
        tied = sum(each == value for each in seen) + 1
        p = (below + tie * tied) / (len(seen) + 1)
        weight = math.log(10.5) / ((k + 10) * math.log(k + 10) ** 2)
        for epsilon in EPSILONS:
            wealth[epsilon] = (wealth[epsilon] + weight) * (1 + epsilon * (2 * p - 1))
        found.append(sum(wealth.values()) / len(EPSILONS))
        seen.append(value)
    return found


@pytest.mark.parametrize("grid", [3, 20, 10**6])
@pytest.mark.parametrize("block", [1, 7, 50, 300])
def test_the_martingale_is_the_naive_loop_whatever_the_blocks(grid: int, block: int) -> None:
    rng = np.random.default_rng(grid)
    calibration = rng.integers(0, grid, 40) / grid
    values = rng.integers(grid // 4, grid + 1, 300) / grid
    uniforms = rng.random((300, 2))
    expected = naive(calibration, values, uniforms[:, 0])
    found = ConformalMartingale.of(calibration)
    for begin in range(0, 300, block):
        found.update(values[begin : begin + block], uniforms[begin : begin + block])
    assert found.judged == 300
    assert found.evidence == pytest.approx(expected[-1], rel=1e-9)
    assert found.largest == pytest.approx(max(expected), rel=1e-9)


def test_it_forgets_at_random_and_stays_within_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conformal, "_MOST_VALUES", 100)
    rng = np.random.default_rng(8)
    held = []
    for _ in range(400):
        found = ConformalMartingale.of(np.arange(100.0))
        found.update(np.arange(100.0, 120.0), rng.random((20, 2)))
        held.append(found._values)
        assert len(held[-1]) == 100
        assert (np.diff(held[-1]) > 0).all()
    # One block of 20: each of 120 values is kept with probability 100 / 120, old or new.
    kept = np.bincount(np.concatenate(held).astype(int), minlength=120) / 400
    error = math.sqrt(5 / 36 / 400)
    assert abs(kept - 100 / 120).max() < 4 * error
    assert kept[100:].mean() == pytest.approx(100 / 120, abs=4 * error / math.sqrt(20))


def test_no_scores_and_no_values_say_nothing() -> None:
    found = ConformalMartingale.of([])
    assert (found.evidence, found.largest, found.judged) == (0.0, 0.0, 0)
    found.update([], np.empty((0, 2)))
    assert (found.evidence, found.largest, found.judged) == (0.0, 0.0, 0)
    found.update([0.3], [[0.5, 0.5]])
    assert found.judged == 1
    assert found.largest == found.evidence > 0.0


def test_wrong_arguments_are_refused() -> None:
    found = ConformalMartingale.of([0.1])
    with pytest.raises(ValueError, match="numbers"):
        ConformalMartingale.of([math.nan])
    with pytest.raises(ValueError, match="numbers"):
        found.update([math.nan], [[0.5, 0.5]])
    with pytest.raises(ValueError, match="uniforms"):
        found.update([0.1, 0.2], [[0.5, 0.5]])
    assert found.judged == 0
