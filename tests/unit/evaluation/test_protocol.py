"""The protocol against a plain loop, and the paper's numbers from docs/design/guarantees.md."""

import math

import numpy as np
import pytest

from app.core.calibration import STANDARD_ALPHAS
from app.core.preference import LN2
from app.evaluation.metrics import RiskCoverage
from app.evaluation.protocol import (
    LABEL_NOISES,
    Design,
    ablate_label_noise,
    flipped,
    run_protocol,
)
from app.evaluation.selectors import SELECTORS, Points, RiskTarget, Selector
from tests.unit.evaluation.test_selectors import normal_world, tied_world


def slow_protocol(points: Points, seed: int, splits: int, name: str, alpha: float) -> RiskCoverage:
    uncertainty, error = points
    n = len(error)
    rng = np.random.default_rng([seed, 1])
    accepted, errors = [], []
    for _ in range(splits):
        drawn = rng.permutation(n)
        ours, theirs = drawn[: n // 2], drawn[n // 2 :]
        selector = dict[str, Selector](SELECTORS.items())[name]
        calibration = Points(uncertainty[ours], error[ours])
        threshold = selector(calibration, RiskTarget(alpha, 0.1))
        taken = [i for i in theirs if uncertainty[i] <= threshold]
        accepted.append(len(taken))
        errors.append(sum(bool(error[i]) for i in taken))
    return RiskCoverage.over_splits(accepted, errors, math.ceil(n / 2), alpha=alpha)


@pytest.mark.parametrize("points", [tied_world(301, seed=1), normal_world(0.8, 0.8, 400, seed=2)])
def test_the_protocol_agrees_with_a_plain_loop(points: Points) -> None:
    rows = run_protocol(points, Design(seed=4, splits=20, alphas=(*STANDARD_ALPHAS, 0.3)))
    assert [(row.selector, row.alpha) for row in rows] == [
        (name, alpha) for name in SELECTORS for alpha in (*STANDARD_ALPHAS, 0.3)
    ]
    for row in rows:
        assert row.outcome == slow_protocol(points, 4, 20, row.selector, row.alpha)


def test_equal_seeds_give_equal_rows_in_any_order_of_the_pairs() -> None:
    points = tied_world(300, seed=5)
    order = np.random.default_rng(1).permutation(300)
    shuffled = Points.of(points.uncertainty[order], points.error[order])
    rows = run_protocol(points, Design(seed=6, splits=10))
    assert run_protocol(shuffled, Design(seed=6, splits=10)) == rows
    assert run_protocol(points, Design(seed=7, splits=10)) != rows


def test_label_noise_lowers_coverage_and_the_correction_restores_it() -> None:
    points = normal_world(0.874, 0.809, 2000, seed=3)
    design = Design(seed=1, splits=60, ablation_splits=60, alphas=(0.1,))
    rows = ablate_label_noise(points, design)
    assert [row.value for row in rows[::3]] == list(LABEL_NOISES)
    of = {(row.value, row.row.selector): row.row.outcome for row in rows}
    plain = [of[noise, "scope"].coverage for noise in LABEL_NOISES]
    assert plain == sorted(plain, reverse=True)
    assert plain[0] > 0.8
    assert plain[-1] < 0.05
    assert of[0.0, "scope"] == of[0.0, "scope_corrected"]
    for noise in LABEL_NOISES:
        assert of[noise, "scope_corrected"].coverage > 0.8
        assert of[noise, "scope_corrected"].risk == pytest.approx(0.1, abs=0.012)
    assert of[0.0, "scope"] == run_protocol(points, design)[3].outcome


def test_a_point_without_preference_stays_an_error_when_its_label_is_flipped() -> None:
    undecided = np.arange(200) < 100
    points = Points(np.where(undecided, LN2, 0.1), undecided)
    error = flipped(points, 0.4, np.random.default_rng(1)).error
    assert error[undecided].all()
    assert 20 < error[~undecided].sum() < 60
    # All points are right and certain: exactly so many are flipped.
    right = Points(np.zeros(200), np.zeros(200, dtype=bool))
    assert flipped(right, 0.4, np.random.default_rng(1)).error.sum() == 80
