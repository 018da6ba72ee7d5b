"""Scores of judgments that arrive, and conformal martingales over them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from app.core.conformal import ConformalMartingale
from app.core.preference import FloatArray
from tests.statistics.worlds.normal import NormalJudge

ALARM = 20.0
# The service adds judgments in blocks of about this size.
BLOCK = 50
Draw = Callable[[int, np.random.Generator], FloatArray]
Rule = Callable[[list[float]], float]


def uncertainty(judge: NormalJudge) -> Draw:
    """Uncertainty of a judge of the normal world."""
    return lambda count, rng: judge.draw(count, rng)[0]


def label_mass(mean_loss: float) -> Draw:
    """Label mass whose distance from 1 is exponential; every third one is rounded to 1."""

    def draw(count: int, rng: np.random.Generator) -> FloatArray:
        mass = np.maximum(1.0 - rng.exponential(mean_loss, count), 0.0)
        return np.where(rng.random(count) < 1 / 3, 1.0, mass)

    return draw


def position_gap(spread: float) -> Draw:
    """Distance between the logit gaps of the two orders, half-normal."""
    return lambda count, rng: spread * np.abs(rng.standard_normal(count))


def grouped(judge: NormalJudge, *, pairs: int, correlation: float) -> Draw:
    """Uncertainty of the pairs of one question after the other, correlated within a question."""

    def draw(count: int, rng: np.random.Generator) -> FloatArray:
        questions = -(-count // pairs)
        shared = np.repeat(rng.standard_normal(questions), pairs)[:count]
        own = rng.standard_normal(count)
        level = ndtr(np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own)
        # Quantiles of the judge's uncertainty, so that one pair alone is as without groups.
        values: FloatArray = np.quantile(judge.draw(100_000, np.random.default_rng(0))[0], level)
        return values

    return draw


class Change(NamedTuple):
    """Traffic like the calibration set, and then other traffic.

    Args:
        before: Draws calibration scores and the first judgments.
        after: Draws the later judgments.
        scores, steady, changed: Numbers of calibration scores, and of judgments before and after.
    """

    before: Draw
    after: Draw
    scores: int = 1000
    steady: int = 1000
    changed: int = 9000

    def draw(self, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Calibration scores and values of judgments."""
        values = [self.before(self.steady, rng), self.after(self.changed, rng)]
        return self.before(self.scores, rng), np.concatenate(values)


def equal_shares(largest: list[float]) -> float:
    """The evidence of the first replica to alarm, if replicas share the false alarms equally."""
    return max(largest) / len(largest)


def alarm_at(change: Change, rng: np.random.Generator, replicas: int, rule: Rule) -> int | None:
    """Number of the judgment, of all replicas together, at which the evidence reaches 20.

    The replicas take turns, a block each, and the rule makes one evidence of their largest ones.
    """
    scores, values = change.draw(rng)
    martingales = [ConformalMartingale.of(scores) for _ in range(replicas)]
    for i, begin in enumerate(range(0, len(values), BLOCK)):
        block = values[begin : begin + BLOCK]
        martingales[i % replicas].update(block, rng.random((len(block), 2)))
        if rule([each.largest for each in martingales]) >= ALARM:
            return begin + len(block)
    return None


def alarms(
    change: Change, count: int, *, seed: int, replicas: int = 1, rule: Rule = max
) -> list[int | None]:
    """Judgments at which independent runs alarm; by default those of one martingale."""
    rng = np.random.default_rng(seed)
    return [alarm_at(change, rng, replicas, rule) for _ in range(count)]
