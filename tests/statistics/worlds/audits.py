"""Labels of audited verdicts whose true error rate is known and may change."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from app.core.betting import first_at
from app.core.monitoring import MonitorFigures, monitor
from app.core.preference import FloatArray

ALPHA = 0.1
WINDOW, WINDOW_DELTA = 200, 0.05


class Phase(NamedTuple):
    """Some labels at one true error rate."""

    labels: int
    error: float


def labels(
    phases: Sequence[Phase], rng: np.random.Generator, *, flipped: float = 0.0
) -> NDArray[np.bool_]:
    """Errors that labels show, of which a share is flipped."""
    rates = np.concatenate([np.full(phase.labels, phase.error) for phase in phases])
    wrong: NDArray[np.bool_] = rng.random(len(rates)) < rates
    shown: NDArray[np.bool_] = wrong ^ (rng.random(len(rates)) < flipped)
    return shown


def runs(
    phases: Sequence[Phase], count: int, *, seed: int, flipped: float = 0.0
) -> list[MonitorFigures]:
    """Monitors of independent runs, each after all its labels."""
    rng = np.random.default_rng(seed)
    drawn = (labels(phases, rng, flipped=flipped) for _ in range(count))
    return [monitor(each, alpha=ALPHA, label_noise=flipped) for each in drawn]


def window_alarms(phases: Sequence[Phase], count: int, *, seed: int) -> list[int | None]:
    """Label at which a sliding window of 200 first has too many errors for a binomial test."""
    rng = np.random.default_rng(seed)
    most = int(binom.isf(WINDOW_DELTA, WINDOW, ALPHA))
    found = []
    for _ in range(count):
        errors = np.cumsum(labels(phases, rng))
        in_window = errors[WINDOW - 1 :] - np.append(0, errors[:-WINDOW])
        place = first_at(np.where(in_window > most, 1.0, 0.0), np.e)
        found.append(None if place is None else place + WINDOW - 1)
    return found


def alarm_rate(alarms: Sequence[int | None]) -> float:
    """Share of runs with an alarm."""
    return sum(each is not None for each in alarms) / len(alarms)


def delays(alarms: Sequence[int | None], change: int) -> FloatArray:
    """Labels from the change to the alarm, of the runs without an alarm before the change.

    Infinite for a run without an alarm.
    """
    after = [np.inf if each is None else each - change for each in alarms]
    return np.array([each for each in after if each > 0], dtype=np.float64)
