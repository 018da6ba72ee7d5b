"""Many calibrations at once in the normal world, with the truth about each threshold."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core.binomial import most_successes
from app.core.pac import observed_error, rank_sequence
from app.core.preference import LN2, FloatArray
from tests.statistics.worlds.normal import NormalJudge

DELTA = 0.1
WEAK, MIDDLING = NormalJudge(accuracy=0.738, auroc=0.685), NormalJudge(accuracy=0.807, auroc=0.744)
OTHER, STRONG = NormalJudge(accuracy=0.766, auroc=0.777), NormalJudge(accuracy=0.874, auroc=0.809)


class Outcome(NamedTuple):
    """The thresholds of all calibrations at one alpha, each of shape (calibrations,).

    Args:
        coverage: True coverage.
        error: True error among the accepted; 0 if nothing is accepted.
        asked: Number of labels up to the last test, which is all that `pac` looks at.
    """

    coverage: FloatArray
    error: FloatArray
    asked: NDArray[np.int64]

    def over(self, alpha: float) -> NDArray[np.bool_]:
        """Whether the true error exceeds alpha."""
        return self.error > alpha


class Calibrations(NamedTuple):
    """Labeled pairs of many calibrations, sorted by uncertainty.

    Args:
        judge: Judge of the normal world.
        uncertainty: Shape (calibrations, n), ascending in each row, in nats.
        errors: Shape (calibrations, n). Number of errors up to each pair.
    """

    judge: NormalJudge
    uncertainty: FloatArray
    errors: NDArray[np.int64]

    @classmethod
    def draw(
        cls, judge: NormalJudge, n: int, count: int, rng: np.random.Generator
    ) -> "Calibrations":
        """Draws independent calibrations."""
        uncertainty, wrong = judge.draw(n * count, rng)
        return cls.sorted(judge, uncertainty.reshape(count, n), wrong.reshape(count, n))

    @classmethod
    def sorted(
        cls, judge: NormalJudge, uncertainty: FloatArray, wrong: NDArray[np.bool_]
    ) -> "Calibrations":
        """Sorts the pairs of each calibration."""
        order = np.argsort(uncertainty, axis=1)
        errors = np.cumsum(np.take_along_axis(wrong, order, 1), axis=1, dtype=np.int64)
        return cls(judge, np.take_along_axis(uncertainty, order, 1), errors)

    def pac(self, alpha: float, delta: float = DELTA) -> Outcome:
        """`pac` on every calibration; a test compares it with `pac_threshold`."""
        thresholds, asked = self.thresholds(alpha, delta)
        return Outcome(*self.judge.truth(thresholds), asked)

    def thresholds(
        self, alpha: float, delta: float = DELTA
    ) -> tuple[FloatArray, NDArray[np.int64]]:
        """Thresholds of `pac` in nats, and labels up to the last test of each."""
        count, n = self.errors.shape
        ranks = np.array(rank_sequence(alpha, delta, 0.0, n), dtype=np.int64)
        if not len(ranks):
            return np.full(count, -math.inf), np.zeros(count, dtype=np.int64)
        failed = self.errors[:, ranks - 1] > most_successes(
            delta, ranks, observed_error(alpha, 0.0)
        )
        passed = np.where(failed.any(axis=1), failed.argmax(axis=1), len(ranks))
        last = ranks[np.maximum(passed, 1) - 1]
        scores = np.where(last == n, LN2, self.uncertainty[np.arange(count), last - 1])
        asked = ranks[np.minimum(passed, len(ranks) - 1)]
        return np.where(passed > 0, scores, -math.inf), asked


def with_more_labels(
    judge: NormalJudge, alpha: float, sizes: tuple[int, ...], count: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Adds labels until `pac` is feasible, which breaks the promise.

    Returns the true coverage and error of each run, at the first feasible size or at the last one.
    """
    uncertainty, wrong = judge.draw(sizes[-1] * count, rng)
    uncertainty, wrong = uncertainty.reshape(count, -1), wrong.reshape(count, -1)
    found = np.full(count, -math.inf)
    for size in sizes:
        grown = Calibrations.sorted(judge, uncertainty[:, :size], wrong[:, :size])
        found = np.where(np.isinf(found), grown.thresholds(alpha)[0], found)
    return judge.truth(found)
