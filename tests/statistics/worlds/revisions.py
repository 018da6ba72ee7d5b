"""Draws of questions that come over an hour and again on other days, labeled at once."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core.monitoring import (
    AGAIN_S,
    LEFT_OUT,
    QUESTION_S,
    alarm_delta,
    bets_of,
    monitor,
)
from tests.statistics.worlds.audits import ALPHA


class Returning(NamedTuple):
    """Questions that come every day again, each with several draws over an hour."""

    questions: int = 60
    pairs: int = 6
    days: int = 8
    correlation: float = 0.3

    def drawn(self, rng: np.random.Generator) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """The errors of the draws that count, in the order of their time, and their bets.

        The mean error of the questions is alpha.
        """
        size = 1 / self.correlation - 1
        error = rng.beta(ALPHA * size, (1 - ALPHA) * size, self.questions)
        error *= ALPHA / error.mean()
        shape = (self.days, self.questions)
        begins = (
            rng.random(shape) * (AGAIN_S - QUESTION_S) + AGAIN_S * np.arange(self.days)[:, None]
        )
        at = (begins[..., None] + QUESTION_S * rng.random((*shape, self.pairs))).ravel()
        order = np.argsort(at)
        wrong = (rng.random((*shape, self.pairs)) < error[:, None]).ravel()[order]
        asked = np.tile(np.repeat(np.arange(self.questions), self.pairs), self.days)[order]
        digests = np.zeros((len(asked), 32), dtype=np.uint8)
        digests[:, :8] = (asked + 1).astype(np.uint64)[:, None].view(np.uint8)
        bets = bets_of(digests, at[order])
        return wrong[bets != LEFT_OUT], bets[bets != LEFT_OUT]

    def alarms(self, *, count: int, seed: int, every: int) -> float:
        """Share of runs with an alarm at any look, one after each `every` labels."""
        rng, rang = np.random.default_rng(seed), 0
        for _ in range(count):
            wrong, bets = self.drawn(rng)
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
