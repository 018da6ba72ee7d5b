"""Calibration sets with several pairs of a question, whose errors resemble each other."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr

from app.core.pac_pairs import PacPairs
from app.core.preference import LN2, FloatArray
from app.core.questions import drawn_pairs
from tests.statistics.worlds.normal import NormalJudge

ALPHA = DELTA = 0.1
# "one" counts one pair of each question; "ignore" counts all pairs.
Rule = Literal["one", "ignore"]
# Questions by which the truth of a world is known.
_MANY = 100_000
Pairs = tuple[FloatArray, NDArray[np.bool_], NDArray[np.int64]]


@dataclass(frozen=True, kw_only=True)
class Questions:
    """A judge on questions with several pairs each.

    Args:
        judge: Judge of the normal world: a pair of the smallest question is as there.
        questions: Number of questions in a calibration set.
        pairs: Number of pairs of each question; the smallest number in a world with a tail.
        correlation: Correlation between two pairs of one question, of their errors and of their
            confidences, in (0, 1).
        tail: Exponent of the Pareto distribution of the sizes, which are then at most 200; None if
            all questions have the same size.
        harder: Change of the log-odds of an error when a question is e times as large.
        kept: Probability with which a pair of the traffic is in a calibration set.
    """

    judge: NormalJudge
    questions: int
    pairs: int = 1
    correlation: float
    tail: float | None = None
    harder: float = 0.0
    kept: float = 1.0

    def draw(self, rng: np.random.Generator, questions: int | None = None) -> Pairs:
        """Uncertainty in nats, error and number of the question, each of shape (n,)."""
        count = questions or self.questions
        sizes = np.full(count, self.pairs)
        if self.tail is not None:
            sizes = np.minimum(self.pairs * (1 - rng.random(count)) ** (-1 / self.tail), 200)
            sizes = sizes.astype(np.int64)
        wrong_rate = expit(
            logit(1 - self.judge.accuracy) + self.harder * np.log(sizes / self.pairs)
        )
        # A beta distribution of the error over questions has exactly this correlation.
        spread = 1 / self.correlation - 1
        error = rng.beta(wrong_rate * spread, (1 - wrong_rate) * spread)
        numbers = np.repeat(np.arange(count), sizes)
        wrong = rng.random(len(numbers)) < error[numbers]
        shared = rng.standard_normal(count)[numbers]
        own = rng.standard_normal(len(numbers))
        noise = math.sqrt(self.correlation) * shared + math.sqrt(1 - self.correlation) * own
        confidence = noise + np.where(wrong, 0.0, self.judge.shift)
        uncertainty = LN2 * ndtr(-confidence)
        if self.kept == 1.0 or questions is not None:
            return uncertainty, wrong, numbers
        here = rng.random(len(numbers)) < self.kept
        _, numbers = np.unique(numbers[here], return_inverse=True)
        return uncertainty[here], wrong[here], numbers

    @cached_property
    def _traffic(self) -> tuple[FloatArray, FloatArray]:
        """Uncertainties of random judgments, ascending, and the errors up to each."""
        uncertainty, wrong, _ = self.draw(np.random.default_rng(99), _MANY)
        order = np.argsort(uncertainty)
        return uncertainty[order], np.cumsum(wrong[order])

    def truth(self, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coverage and error of a random judgment of the traffic, for each threshold."""
        if self.harder == 0.0:
            return self.judge.truth(thresholds)
        scores, errors = self._traffic
        accepted = np.searchsorted(scores, thresholds, side="right")
        wrong = np.where(accepted > 0, errors[np.maximum(accepted, 1) - 1], 0)
        return accepted / len(scores), wrong / np.maximum(accepted, 1)


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
    threshold = pairs.needed(ALPHA, DELTA).threshold
    assert threshold is not None, "every pair has a label"
    return threshold


def measured(world: Questions, rule: Rule, count: int, *, seed: int) -> tuple[float, float]:
    """Mean true coverage, and share of calibrations whose true error exceeds alpha."""
    rng = np.random.default_rng(seed)
    thresholds = [threshold_of(rule, *world.draw(rng), rng) for _ in range(count)]
    coverage, error = world.truth(np.array(thresholds))
    return float(coverage.mean()), float((error > ALPHA).mean())
