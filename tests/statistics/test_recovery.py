"""The recipe after an alarm: the first N audits since then, N fixed by alpha, are calibrated anew.

Verdicts come back with the stated power, and the promise holds.
"""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.comparison import Criterion, Guarantee
from app.core.monitoring import monitor
from app.core.pac import pac_threshold
from app.core.preference import FloatArray
from app.core.recovery import labels_for_verdicts
from app.core.thresholds import ThresholdCurve
from tests.statistics.worlds.calibrations import DELTA, MIDDLING, OTHER, STRONG, WEAK
from tests.statistics.worlds.normal import NormalJudge

RUNS = 200
# Audits before the change of traffic, and the longest wait for the alarm.
BEFORE, LONGEST = 300, 8000
# Three standard errors of a share of 0.8, and of 0.1.
OF_POWER, OF_DELTA = (3 * math.sqrt(p * (1 - p) / RUNS) for p in (0.8, 0.1))


def needed(alpha: float, guarantee: Guarantee) -> int:
    delta = DELTA if guarantee == "pac" else None
    asked = Criterion(alpha=alpha, guarantee=guarantee, delta=delta, calibration="default")
    labels = labels_for_verdicts(asked)
    assert labels is not None
    return labels


def threshold(
    uncertainty: FloatArray, wrong: NDArray[np.bool_], alpha: float, guarantee: Guarantee
) -> float:
    if guarantee == "pac":
        return pac_threshold(uncertainty, wrong, alpha=alpha, delta=DELTA)
    return float(ThresholdCurve.fit(uncertainty, wrong).threshold(alpha))


def recovered(
    after: NormalJudge, alpha: float, guarantee: Guarantee, rng: np.random.Generator
) -> float | None:
    """The threshold of the first audits since the alarm that the change of traffic rings.

    None without an alarm: the accepted error may be at most alpha after the change, too.
    """
    old = threshold(*STRONG.draw(1000, rng), alpha, guarantee)
    both = [STRONG.draw(BEFORE, rng), after.draw(LONGEST, rng)]
    uncertainty, wrong = (np.concatenate(each) for each in zip(*both, strict=True))
    accepted = np.flatnonzero(uncertainty <= old)
    rang = monitor(wrong[accepted], alpha=alpha).alarm_at
    if rang is None:
        return None
    # Each draw after the one whose label rang, accepted or not.
    first = accepted[rang - 1] + 1
    since = slice(first, first + needed(alpha, guarantee))
    assert len(uncertainty[since]) == needed(alpha, guarantee)
    return threshold(uncertainty[since], wrong[since], alpha, guarantee)


def thresholds(after: NormalJudge, guarantee: Guarantee, seed: int) -> FloatArray:
    """The thresholds of many recoveries at alpha 0.1."""
    rng = np.random.default_rng(seed)
    runs = [recovered(after, 0.1, guarantee, rng) for _ in range(RUNS)]
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
    found = [threshold(*judge.draw(labels, rng), alpha, guarantee) for _ in range(RUNS)]
    assert np.mean(np.array(found) > 0) >= 0.8 - OF_POWER


@pytest.mark.parametrize("alpha", [0.1, 0.2])
def test_a_judge_that_is_worse_than_alpha_gets_verdicts_with_probability_delta_at_most(
    alpha: float,
) -> None:
    # Every accepted set has an error just above alpha.
    judge = NormalJudge(accuracy=1 - 1.005 * alpha, auroc=0.5)
    rng = np.random.default_rng(23)
    labels = needed(alpha, "pac")
    found = [threshold(*judge.draw(labels, rng), alpha, "pac") for _ in range(RUNS)]
    assert np.mean(np.array(found) > 0) <= DELTA + OF_DELTA


def test_a_judge_that_became_too_weak_gets_no_verdicts_rather_than_wrong_ones() -> None:
    assert surest(WEAK, 0.25) > 0.1
    _, error = WEAK.truth(thresholds(WEAK, "pac", seed=24))
    assert np.mean(error > 0.1) <= DELTA + OF_DELTA
