"""Calibration sets with several pairs of a question, whose errors resemble each other."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from app.core.examples import drawn_pairs
from app.core.pac import PacPairs
from app.core.preference import LN2, FloatArray
from tests.statistics.worlds.normal import NormalJudge

ALPHA = DELTA = 0.1
# "one" counts one pair of each question; "ignore" counts all pairs.
Rule = Literal["one", "ignore"]
Pairs = tuple[FloatArray, NDArray[np.bool_], NDArray[np.int64]]


@dataclass(frozen=True, kw_only=True)
class Questions:
    """A judge on questions with several pairs each.

    One pair of each question is as in the normal world. `correlation` is that of the errors and of
    the confidences of two pairs of one question, in (0, 1).
    """

    judge: NormalJudge
    questions: int
    pairs: int
    correlation: float

    def draw(self, rng: np.random.Generator) -> Pairs:
        """Uncertainty in nats, error and number of the question, each of shape (n,)."""
        count = self.questions
        # A beta distribution of the error over questions has exactly this correlation.
        spread, wrong_rate = 1 / self.correlation - 1, 1 - self.judge.accuracy
        error = rng.beta(wrong_rate * spread, (1 - wrong_rate) * spread, count)
        numbers = np.repeat(np.arange(count), self.pairs)
        wrong = rng.random(len(numbers)) < error[numbers]
        shared = rng.standard_normal(count)[numbers]
        own = rng.standard_normal(len(numbers))
        noise = math.sqrt(self.correlation) * shared + math.sqrt(1 - self.correlation) * own
        confidence = noise + np.where(wrong, 0.0, self.judge.shift)
        return LN2 * ndtr(-confidence), wrong, numbers


def threshold_of(
    rule: Rule,
    uncertainty: FloatArray,
    error: NDArray[np.bool_],
    numbers: NDArray[np.int64],
    rng: np.random.Generator,
) -> float:
    """The threshold of `pac` as a calibration set computes it."""
    lots = rng.integers(2**63, size=len(error)).astype(np.uint64)
    used = drawn_pairs(numbers, lots) if rule == "one" else np.ones(len(error), dtype=bool)
    pairs = PacPairs.fit(
        uncertainty[used],
        error[used],
        np.ones(int(used.sum()), dtype=bool),
    )
    threshold, _ = pairs.needed(ALPHA, DELTA)
    assert threshold is not None, "every pair has a label"
    return threshold


def measured(world: Questions, rule: Rule, count: int, *, seed: int) -> tuple[float, float]:
    """Mean true coverage, and share of calibrations whose true error exceeds alpha."""
    rng = np.random.default_rng(seed)
    thresholds = [threshold_of(rule, *world.draw(rng), rng) for _ in range(count)]
    coverage, error = world.judge.truth(np.array(thresholds))
    return float(coverage.mean()), float((error > ALPHA).mean())
