"""The monitor of audited verdicts, by seeded simulation next to a sliding window.

The expected numbers are those of docs/design/guarantees.md, section 6.
"""

import math

import numpy as np
import pytest

from app.core.monitoring import error_interval
from tests.statistics.worlds.audits import (
    ALPHA,
    Phase,
    alarm_rate,
    delays,
    runs,
    window_alarms,
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


def test_a_sliding_window_alarms_in_most_runs_without_any_change() -> None:
    assert alarm_rate(window_alarms([Phase(LONG, 0.08)], RUNS, seed=1)) > 0.45
    assert alarm_rate(window_alarms([Phase(LONG, ALPHA)], RUNS, seed=1)) > 0.99


@pytest.mark.parametrize(
    ("error", "median", "ninety"), [(0.15, 645, 1148), (0.20, 191, 342), (0.30, 65, 108)]
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


@pytest.mark.parametrize("flipped", [0.1, 0.2])
def test_flipped_labels_do_not_alarm_where_the_noise_is_known(flipped: float) -> None:
    steady = runs([Phase(3000, ALPHA)], RUNS, seed=3, flipped=flipped)
    assert alarm_rate([run.alarm_at for run in steady]) <= AT_MOST
    changed = runs([Phase(1000, 0.08), Phase(2000, 0.3)], RUNS, seed=3, flipped=flipped)
    assert alarm_rate([run.alarm_at for run in changed]) > 0.98


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
