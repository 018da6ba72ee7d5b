"""Labels of audited verdicts whose true error rate is known and may change."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from app.core.betting import first_at
from app.core.monitoring import (
    MONITOR_DELTA,
    MonitorFigures,
    alarm_delta,
    error_interval,
    monitor,
)
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
    """Errors that labels show."""
    rates = np.concatenate([np.full(phase.labels, phase.error) for phase in phases])
    wrong: NDArray[np.bool_] = rng.random(len(rates)) < rates
    shown: NDArray[np.bool_] = wrong ^ (rng.random(len(rates)) < flipped)
    return shown


def runs(
    phases: Sequence[Phase], count: int, *, seed: int, flipped: float = 0.0
) -> list[MonitorFigures]:
    """Monitors of a version's first criterion in independent runs, each after all its labels."""
    rng = np.random.default_rng(seed)
    drawn = (labels(phases, rng, flipped=flipped) for _ in range(count))
    return [monitor(each, alpha=ALPHA, false_alarms=alarm_delta(1)) for each in drawn]


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


class Asked(NamedTuple):
    """Traffic with equally many pairs of each question, some of which are drawn and labeled.

    Args:
        pairs: Number of accepted pairs of each question.
        rate: Probability with which each of them is drawn.
        correlation: Correlation between the errors of two pairs of one question, in (0, 1).
    """

    pairs: int = 10
    rate: float = 0.3
    correlation: float = 0.3

    def draws(self, phases: Sequence[Phase], rng: np.random.Generator) -> "AskedDraws":
        """The draws of all phases; each phase has questions of its own."""
        size, begun = 1 / self.correlation - 1, 0
        errors, numbers = list[NDArray[np.bool_]](), list[NDArray[np.int64]]()
        for phase in phases:
            # Six standard deviations more than are needed on average.
            expected = phase.labels / (self.pairs * self.rate)
            count = int(expected + 6 * np.sqrt(expected / self.rate)) + 10
            drawn = rng.binomial(self.pairs, self.rate, count)
            question = np.repeat(np.arange(count), drawn)[: phase.labels]
            # A beta distribution of the error over questions has exactly this correlation.
            error = rng.beta(phase.error * size, (1 - phase.error) * size, count)
            errors.append(rng.random(len(question)) < error[question])
            numbers.append(question + begun)
            begun += count
        return AskedDraws(np.concatenate(errors), np.concatenate(numbers))


class AskedDraws(NamedTuple):
    """Labeled draws of shape (n,): whether the verdict is wrong, and the number of the question."""

    errors: NDArray[np.bool_]
    questions: NDArray[np.int64]

    def figures(self, *, by_question: bool, place: int = 1) -> MonitorFigures:
        """The figures of the criterion that came into use at a place.

        Without `by_question`, each draw is a bet and the alarm is at 5%.
        """
        if not by_question:
            return monitor(self.errors, alpha=ALPHA)
        return monitor(
            self.errors, questions=self.questions, alpha=ALPHA, false_alarms=alarm_delta(place)
        )

    def labels_to(self, question: int | None) -> int | None:
        """Number of labels up to the end of the bet with a number, from 1."""
        if question is None:
            return None
        return int((self.questions <= np.unique(self.questions)[question - 1]).sum())


class Found(NamedTuple):
    """Shares of runs: alarms, certificates, and intervals that miss the error at some time."""

    alarms: float
    certificates: float
    misses: float


def asked_runs(
    asked: Asked, *, labels: int, count: int, seed: int, by_question: bool, looks: int = 12
) -> Found:
    """Runs the monitor where the error is alpha all along; each share should be at most 5%."""
    rng, alarmed, certified, missed = np.random.default_rng(seed), 0, 0, 0
    for _ in range(count):
        draws = asked.draws([Phase(labels, ALPHA)], rng)
        figures = draws.figures(by_question=by_question)
        alarmed += figures.alarm
        # An alarm takes the certificate back, so that of the labels before it counts.
        certified += figures.certified
        missed += any(
            not low <= ALPHA <= high
            for low, high in intervals(draws, by_question=by_question, looks=looks)
        )
    return Found(alarmed / count, certified / count, missed / count)


def intervals(draws: AskedDraws, *, by_question: bool, looks: int) -> list[tuple[float, float]]:
    """The intervals of the error at some times, from 20 labels on."""
    numbers = draws.questions if by_question else np.arange(len(draws.errors))
    _, first, question, sizes = np.unique(
        numbers, return_index=True, return_inverse=True, return_counts=True
    )
    means = np.bincount(question, weights=draws.errors) / sizes
    sums, start = np.cumsum(means), int(np.searchsorted(first, 20))
    times = np.unique(np.geomspace(max(start, 1), len(means), looks).astype(int))
    return [error_interval(float(sums[time - 1]), int(time)) for time in times]


def asked_delays(
    asked: Asked, error: float, count: int, *, seed: int, by_question: bool, place: int = 1
) -> FloatArray:
    """Labels from a change of the error, after 1,000 labels at 0.08, to the alarm."""
    rng = np.random.default_rng(seed)
    phases = [Phase(1000, 0.08), Phase(6000, error)]
    found = list[int | None]()
    for _ in range(count):
        draws = asked.draws(phases, rng)
        figures = draws.figures(by_question=by_question, place=place)
        found.append(draws.labels_to(figures.alarm_at) if by_question else figures.alarm_at)
    return delays(found, 1000)


def share_with_any_alarm(
    criteria: int, *, labels: int, count: int, seed: int, shared: bool
) -> float:
    """Share of versions with an alarm of any criterion, where each has an error of its alpha."""
    rng, alphas = np.random.default_rng(seed), np.linspace(0.05, 0.3, criteria)
    rang = 0
    for _ in range(count):
        rang += any(
            monitor(
                rng.random(labels) < alpha,
                alpha=float(alpha),
                false_alarms=alarm_delta(place) if shared else MONITOR_DELTA,
            ).alarm
            for place, alpha in enumerate(alphas, start=1)
        )
    return rang / count


class Expiring(NamedTuple):
    """Draws of which a share expires: `only_errors`, or any like the others."""

    error: float
    expired: float
    only_errors: bool

    def figures(self, labels: int, rng: np.random.Generator) -> MonitorFigures:
        """The figures after so many draws."""
        wrong = rng.random(labels) < self.error
        share = self.expired / self.error if self.only_errors else self.expired
        expired = (rng.random(labels) < share) & (wrong | (not self.only_errors))
        return monitor(wrong, unlabeled=expired, alpha=ALPHA)


def expiring_runs(world: Expiring, *, labels: int, count: int, seed: int) -> list[MonitorFigures]:
    """The figures of independent runs."""
    rng = np.random.default_rng(seed)
    return [world.figures(labels, rng) for _ in range(count)]
