"""The recipe after an alarm: the first N audits since then, N fixed by alpha, replace all examples.

Verdicts come back with the stated power, and the promise holds.
"""

import math

import numpy as np
import pytest

from app.core.comparison import Criterion, Guarantee
from app.core.pac import labels_for_verdicts
from app.core.preference import FloatArray
from tests.statistics.worlds.absorptions import next_threshold, threshold_of
from tests.statistics.worlds.calibrations import DELTA, MIDDLING, OTHER, STRONG, WEAK
from tests.statistics.worlds.normal import NormalJudge

RUNS = 200
# Three standard errors of a share of 0.8, and of 0.1.
OF_POWER, OF_DELTA = (3 * math.sqrt(p * (1 - p) / RUNS) for p in (0.8, 0.1))


def needed(alpha: float, guarantee: Guarantee) -> int:
    delta = DELTA if guarantee == "pac" else None
    asked = Criterion(alpha=alpha, guarantee=guarantee, delta=delta, calibration="default")
    labels = labels_for_verdicts(asked)
    assert labels is not None
    return labels


def thresholds(after: NormalJudge, guarantee: Guarantee, seed: int) -> FloatArray:
    """The thresholds of many recoveries at alpha 0.1."""
    rng = np.random.default_rng(seed)
    audits = needed(0.1, guarantee)
    runs = [
        next_threshold(STRONG, after, "first audits", audits, rng, guarantee=guarantee)
        for _ in range(RUNS)
    ]
    found = np.array([each for each in runs if each is not None])
    assert len(found) > 0.9 * RUNS
    return found


def surest(judge: NormalJudge, share: float) -> float:
    """The judge's error on its most certain pairs."""
    coverage, error = judge.truth(np.linspace(1e-4, math.log(2), 20_000))
    return float(error[np.searchsorted(coverage, share)])


@pytest.mark.parametrize("after", [OTHER, MIDDLING])
@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
def test_verdicts_come_back_with_the_stated_power_and_the_promise_holds(
    after: NormalJudge, guarantee: Guarantee
) -> None:
    # The condition of the recipe: wrong in at most 0.6 alpha of the surest quarter.
    assert surest(after, 0.25) <= 0.06
    coverage, error = after.truth(thresholds(after, guarantee, seed=21))
    assert np.mean(coverage > 0) >= 0.8 - OF_POWER
    assert coverage.mean() > 0.2
    if guarantee == "pac":
        assert np.mean(error > 0.1) <= DELTA + OF_DELTA
    else:
        # "marginal" promises the mean over calibrations, 0 where nothing is accepted.
        assert error.mean() <= 0.1 + 0.01


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2, 0.3])
@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
def test_the_power_is_reached_at_the_limit_of_the_condition(
    alpha: float, guarantee: Guarantee
) -> None:
    # The error is 0.6 alpha, whatever the score says.
    judge = NormalJudge(accuracy=1 - 0.6 * alpha, auroc=0.5)
    rng = np.random.default_rng(22)
    labels = needed(alpha, guarantee)
    found = [
        threshold_of(judge.draw(labels, rng), guarantee=guarantee, alpha=alpha) for _ in range(RUNS)
    ]
    assert np.mean(np.array(found) > 0) >= 0.8 - OF_POWER


@pytest.mark.parametrize("alpha", [0.1, 0.2])
def test_a_judge_that_is_worse_than_alpha_gets_verdicts_with_probability_delta_at_most(
    alpha: float,
) -> None:
    # Every accepted set has an error just above alpha.
    judge = NormalJudge(accuracy=1 - 1.005 * alpha, auroc=0.5)
    rng = np.random.default_rng(23)
    labels = needed(alpha, "pac")
    found = [threshold_of(judge.draw(labels, rng), alpha=alpha) for _ in range(RUNS)]
    assert np.mean(np.array(found) > 0) <= DELTA + OF_DELTA


def test_a_judge_that_became_too_weak_gets_no_verdicts_rather_than_wrong_ones() -> None:
    assert surest(WEAK, 0.25) > 0.1
    _, error = WEAK.truth(thresholds(WEAK, "pac", seed=24))
    assert np.mean(error > 0.1) <= DELTA + OF_DELTA
