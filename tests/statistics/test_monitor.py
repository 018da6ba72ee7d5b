"""The monitor of audited verdicts, by seeded simulation.

The expected numbers are those of docs/design/guarantees.md, section 6.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.monitoring import MonitorFigures, error_interval, monitor
from tests.statistics.worlds.audits import (
    ALPHA,
    Phase,
    alarm_rate,
    delays,
    runs,
)

RUNS = 200
LONG = 10_000
# A true rate of 0.05 is above this in 0.6% of seeds.
AT_MOST = 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / RUNS)


@pytest.mark.parametrize(
    "phases",
    [
        [Phase(LONG, 0.08)],
        [Phase(LONG, ALPHA)],
        # The error changes and never exceeds alpha.
        [Phase(500, 0.0), Phase(500, ALPHA)] * 10,
    ],
)
def test_an_error_of_at_most_alpha_almost_never_alarms(phases: list[Phase]) -> None:
    assert alarm_rate([run.alarm_at for run in runs(phases, RUNS, seed=1)]) <= AT_MOST


@pytest.mark.parametrize(
    ("error", "median", "ninety"), [(0.15, 713, 1204), (0.20, 207, 363), (0.30, 69, 120)]
)
def test_a_larger_error_alarms_after_as_many_labels_as_documented(
    error: float, median: float, ninety: float
) -> None:
    phases = [Phase(1000, 0.08), Phase(4000, error)]
    found = delays([run.alarm_at for run in runs(phases, RUNS, seed=2)], 1000)
    assert len(found) >= 0.98 * RUNS
    # The standard error of the median is about a tenth of it in 200 runs, divided by 2.
    assert np.median(found) == pytest.approx(median, rel=0.15)
    assert np.quantile(found, 0.9) == pytest.approx(ninety, rel=0.2)


@pytest.mark.parametrize(("error", "slowest"), [(0.05, 240), (0.073, 750), (0.08, 1300)])
def test_a_small_error_is_certified(error: float, slowest: float) -> None:
    found = [run.certified_at or math.inf for run in runs([Phase(5000, error)], RUNS, seed=4)]
    assert np.median(found) < slowest


def test_an_error_of_alpha_is_almost_never_certified() -> None:
    rate = alarm_rate([run.certified_at for run in runs([Phase(3000, ALPHA)], 500, seed=5)])
    assert 0.0 < rate <= 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / 500)


@pytest.mark.parametrize("error", [0.02, 0.1, 0.4])
def test_the_interval_holds_the_error_at_all_times(error: float) -> None:
    rng = np.random.default_rng(6)
    times = np.unique(np.geomspace(1, 5000, 40).astype(int))
    missed = 0
    for _ in range(RUNS):
        errors = np.cumsum(rng.random(5000) < error)
        found = (error_interval(int(errors[t - 1]), int(t)) for t in times)
        missed += any(not low <= error <= high for low, high in found)
    assert missed / RUNS <= AT_MOST


# Draws that somebody closes, who knows every true label before: (error, place) -> closed.
CLOSERS: dict[str, Callable[[NDArray[np.bool_]], NDArray[np.bool_]]] = {
    "every error": lambda wrong: wrong,
    "every right verdict": lambda wrong: ~wrong,
    "three in four errors": lambda wrong: wrong & (np.arange(len(wrong)) % 4 > 0),
    "right verdicts after an error": lambda wrong: ~wrong & np.append(False, wrong[:-1]),
    "errors while there are few": lambda wrong: (
        wrong & (np.cumsum(wrong) < 0.1 * np.arange(1, len(wrong) + 1))
    ),
    "right verdicts while errors are many": lambda wrong: (
        ~wrong & (np.cumsum(wrong) > 0.1 * np.arange(1, len(wrong) + 1))
    ),
}


def closing_runs(error: float, closer: str, *, count: int, seed: int) -> list[MonitorFigures]:
    """Monitors of runs whose draws are closed by the labels that they would have had."""
    rng = np.random.default_rng(seed)
    errors = (rng.random(1500) < error for _ in range(count))
    return [monitor(each, unlabeled=CLOSERS[closer](each), alpha=ALPHA) for each in errors]


@pytest.mark.parametrize("closer", CLOSERS)
def test_whoever_closes_by_the_outcome_makes_no_false_alarm_and_no_false_certificate(
    closer: str,
) -> None:
    found = closing_runs(ALPHA, closer, count=RUNS, seed=7)
    assert alarm_rate([run.alarm_at for run in found]) <= AT_MOST
    assert alarm_rate([run.certified_at for run in found]) <= AT_MOST


@pytest.mark.parametrize("closer", CLOSERS)
@pytest.mark.parametrize("error", [0.02, ALPHA, 0.4])
def test_whoever_closes_by_the_outcome_moves_no_interval_off_the_error(
    closer: str, error: float
) -> None:
    found = closing_runs(error, closer, count=RUNS, seed=8)
    missed = sum(not run.error_interval[0] <= error <= run.error_interval[1] for run in found)
    assert missed / RUNS <= AT_MOST
