"""Draws of questions that come over an hour and again on other days, labeled at once."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core.monitoring import (
    AGAIN_S,
    LEFT_OUT,
    alarm_delta,
    bets_of,
    monitor,
)
from tests.statistics.worlds.audits import ALPHA


class Returning(NamedTuple):
    """Traffic whose questions come every day, each with several draws.

    Each draw has its label at once, so a later draw of the hour revises the bet of its question
    after the monitor has counted it.

    Args:
        questions: Number of questions a day.
        pairs: Number of draws of each question a day.
        spread_s: Time over which they come, in seconds.
        days: Number of days.
        is_fresh: Whether each day has other questions, and not those of the day before.
        correlation: Correlation between the errors of two draws of one question, in (0, 1).
    """

    questions: int = 60
    pairs: int = 6
    spread_s: float = 3600.0
    days: int = 8
    is_fresh: bool = True
    correlation: float = 0.3

    def drawn(self, rng: np.random.Generator) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """The errors of the draws that count, in the order of their time, and their bets.

        The mean error is alpha: of all possible questions, or of those that return.
        """
        size = 1 / self.correlation - 1
        shape = (self.days if self.is_fresh else 1, self.questions)
        error = rng.beta(ALPHA * size, (1 - ALPHA) * size, shape)
        if not self.is_fresh:
            error = np.repeat(error * ALPHA / error.mean(), self.days, axis=0)
        returning = np.tile(np.arange(self.questions), self.days)
        number = np.arange(error.size) if self.is_fresh else returning
        begins = rng.random(error.shape) * (AGAIN_S - self.spread_s)
        begins += AGAIN_S * np.arange(self.days)[:, None]
        at = (begins[..., None] + self.spread_s * rng.random((*error.shape, self.pairs))).ravel()
        order = np.argsort(at)
        wrong = (rng.random((*error.shape, self.pairs)) < error[..., None]).ravel()[order]
        asked = np.repeat(number, self.pairs)[order]
        digests = np.zeros((len(asked), 32), dtype=np.uint8)
        digests[:, :8] = (asked + 1).astype(np.uint64)[:, None].view(np.uint8)
        bets = bets_of(digests, at[order])
        return wrong[bets != LEFT_OUT], bets[bets != LEFT_OUT]


def revised_alarms(world: Returning, *, count: int, seed: int, every: int) -> float:
    """Share of runs with an alarm at any look, where the mean error is alpha.

    Args:
        world: The traffic.
        count: Number of runs.
        seed: Seed.
        every: Number of labels between two looks.
    """
    rng, rang = np.random.default_rng(seed), 0
    for _ in range(count):
        wrong, bets = world.drawn(rng)
        rang += any(
            monitor(
                wrong[:end], questions=bets[:end], alpha=ALPHA, false_alarms=alarm_delta(1)
            ).alarm
            for end in [*range(every, len(wrong), every), len(wrong)]
        )
    return rang / count


class Rounds(NamedTuple):
    """Questions that are drawn once in each round of one hour, each with its label at once.

    Args:
        questions: Number of questions.
        draws: Number of rounds, so of draws of each question.
        correlation: Correlation between the errors of two draws of one question, in (0, 1).
    """

    questions: int
    draws: int
    correlation: float = 0.3

    def outcomes(self, *, count: int, seed: int) -> tuple[float, float]:
        """Shares of runs with an alarm, and with a certificate; the error is alpha.

        Questions count after their hour, as the service counts them.
        """
        rng, size = np.random.default_rng(seed), 1 / self.correlation - 1
        shape = (self.questions, self.draws)
        alarms = certificates = 0
        for _ in range(count):
            error = rng.beta(ALPHA * size, (1 - ALPHA) * size, self.questions)
            wrong = rng.random(shape) < error[:, None]
            bets = np.repeat(np.arange(self.questions), self.draws)
            found = monitor(wrong.ravel(), questions=bets, alpha=ALPHA, false_alarms=alarm_delta(1))
            alarms, certificates = alarms + found.alarm, certificates + found.certified
        return alarms / count, certificates / count
