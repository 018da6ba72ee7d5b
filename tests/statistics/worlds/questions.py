"""Calibration sets with several pairs of each question, whose errors resemble each other."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from app.core.clusters import ClusterRule, one_a_question
from app.core.pac_pairs import PacPairs
from app.core.preference import LN2, FloatArray
from app.evaluation.normal_world import NormalJudge

ALPHA = DELTA = 0.1


class Questions(NamedTuple):
    """A judge on questions with equally many pairs each.

    Args:
        judge: Judge of the normal world: each pair alone is as there.
        questions: Number of questions.
        pairs: Number of pairs of each question.
        correlation: Correlation between two pairs of one question, of their errors and of their
            confidences, in (0, 1).
    """

    judge: NormalJudge
    questions: int
    pairs: int
    correlation: float

    def draw(
        self, rng: np.random.Generator
    ) -> tuple[FloatArray, NDArray[np.bool_], NDArray[np.int64]]:
        """Uncertainty in nats, error and number of the question, each of shape (n,)."""
        numbers = np.repeat(np.arange(self.questions), self.pairs)
        # A beta distribution of the error over questions has exactly this correlation.
        size, accuracy = 1 / self.correlation - 1, self.judge.accuracy
        error = rng.beta((1 - accuracy) * size, accuracy * size, self.questions)
        wrong = rng.random(len(numbers)) < error[numbers]
        shared = rng.standard_normal(self.questions)[numbers]
        own = rng.standard_normal(len(numbers))
        noise = math.sqrt(self.correlation) * shared + math.sqrt(1 - self.correlation) * own
        confidence = noise + np.where(wrong, 0.0, self.judge.shift)
        return LN2 * ndtr(-confidence), wrong, numbers


def threshold_of(
    rule: ClusterRule,
    uncertainty: FloatArray,
    error: NDArray[np.bool_],
    numbers: NDArray[np.int64],
    rng: np.random.Generator,
) -> float:
    """The threshold of `pac` as a calibration set computes it."""
    lots = rng.integers(2**63, size=len(error)).astype(np.uint64)
    used = one_a_question(numbers, lots) if rule == "one" else np.ones(len(error), dtype=bool)
    pairs = PacPairs.fit(
        uncertainty[used],
        error[used],
        np.ones(int(used.sum()), dtype=bool),
        numbers=numbers if rule == "adjusted" else None,
    )
    threshold = pairs.needed(ALPHA, DELTA).threshold
    assert threshold is not None, "every pair has a label"
    return threshold


def measured(world: Questions, rule: ClusterRule, count: int, *, seed: int) -> tuple[float, float]:
    """Mean true coverage, and share of calibrations whose true error exceeds alpha."""
    rng = np.random.default_rng(seed)
    thresholds = [threshold_of(rule, *world.draw(rng), rng) for _ in range(count)]
    coverage, error = world.judge.truth(np.array(thresholds))
    return float(coverage.mean()), float((error > ALPHA).mean())
