"""The cost of a curve as a ratio to a sort in the same run, which holds on any machine."""

import math
import time
from collections.abc import Callable

import numpy as np
import pytest

from app.core.pac import pac_threshold
from app.core.preference import LN2, FloatArray
from app.core.thresholds import ThresholdCurve

RUNS = 5


def cpu_seconds(*calls: Callable[[], object]) -> list[float]:
    """The least CPU time of this thread in each call; other work on the machine does not count."""
    least = [math.inf] * len(calls)
    for _ in range(RUNS):
        for at, call in enumerate(calls):
            began = time.thread_time()
            call()
            least[at] = min(least[at], time.thread_time() - began)
    return least


def continuous(n: int) -> FloatArray:
    return np.random.default_rng(1).random(n) * LN2


def tied(n: int) -> FloatArray:
    return np.random.default_rng(1).integers(0, 1000, n) / 1000 * LN2


@pytest.mark.parametrize("scores_of", [continuous, tied])
def test_a_fit_costs_at_most_four_sorts(scores_of: Callable[[int], FloatArray]) -> None:
    scores = scores_of(1_000_000)
    wrong = np.random.default_rng(2).random(len(scores)) < 0.1
    sort, fit = cpu_seconds(
        lambda: np.argsort(scores), lambda: ThresholdCurve.fit(scores, wrong, 0.05)
    )
    assert fit <= 4 * sort


def test_many_lookups_are_one_call() -> None:
    scores = continuous(100_000)
    curve = ThresholdCurve.fit(scores, np.random.default_rng(2).random(len(scores)) < 0.3 * scores)
    alphas = np.random.default_rng(3).random(100_000)
    some = alphas[:1000].tolist()
    one_by_one, thresholds, risk_levels = cpu_seconds(
        lambda: [curve.threshold(alpha) for alpha in some],
        lambda: curve.threshold(alphas),
        lambda: curve.risk_level(scores),
    )
    # 1,000 single lookups took `one_by_one` seconds; 100,000 of them would take 100 times as long.
    assert max(thresholds, risk_levels) <= 10 * one_by_one
    assert curve.threshold(alphas).shape == curve.risk_level(scores).shape == (100_000,)
    assert curve.threshold(alphas)[:1000].tolist() == [curve.threshold(each) for each in some]


def test_a_pac_threshold_costs_a_few_sorts_once_its_ranks_are_known() -> None:
    scores = continuous(100_000)
    wrong = np.random.default_rng(2).random(len(scores)) < 0.3 * scores
    assert pac_threshold(scores, wrong, alpha=0.1, delta=0.1) > 0
    fit, pac = cpu_seconds(
        lambda: ThresholdCurve.fit(scores, wrong),
        lambda: pac_threshold(scores, wrong, alpha=0.1, delta=0.1),
    )
    assert pac <= 10 * fit
