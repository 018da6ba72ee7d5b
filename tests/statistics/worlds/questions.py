"""Calibration sets with several pairs of each question, whose errors resemble each other."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from app.core.clusters import one_a_question
from app.core.pac_pairs import PacPairs
from app.core.preference import LN2, FloatArray
from app.evaluation.normal_world import NormalJudge

RULES = ("ignore", "one", "adjusted")


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


def threshold(world: Questions, rule: str, alpha: float, rng: np.random.Generator) -> float:
    """The threshold of one calibration by a rule for pairs of one question, with delta 0.1."""
    uncertainty, wrong, numbers = world.draw(rng)
    kept = np.ones(len(wrong), dtype=bool)
    if rule == "one":
        kept = one_a_question(numbers, rng.integers(0, 2**63, len(wrong), dtype=np.uint64))
    found = PacPairs.fit(
        uncertainty[kept],
        wrong[kept],
        kept[kept],
        numbers=numbers if rule == "adjusted" else None,
    )
    reached = found.tests(alpha, 0.1).threshold
    assert reached is not None, "every pair has a label"
    return reached


def measured(world: Questions, rule: str, count: int, *, seed: int) -> tuple[float, float]:
    """Mean true coverage, and share of calibrations whose true error exceeds alpha 0.1."""
    rng = np.random.default_rng(seed)
    found = np.array([threshold(world, rule, 0.1, rng) for _ in range(count)])
    coverage, error = world.judge.truth(found)
    return float(coverage.mean()), float((error > 0.1).mean())
