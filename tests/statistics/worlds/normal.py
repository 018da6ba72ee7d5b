"""The normal world: a model that derives a judge's coverage from its accuracy and AUROC alone.

A judge is wrong with probability 1 - accuracy. Its confidence is N(d, 1) when it is right and
N(0, 1) when it is wrong, with d = sqrt(2) Phi^-1(AUROC) (docs/design/guarantees.md).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from app.core.preference import LN2, FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class NormalJudge:
    """A judge of the normal world: its true error at every threshold is known."""

    accuracy: float
    auroc: float

    @property
    def shift(self) -> float:
        """Mean confidence of a right verdict; that of a wrong one is 0."""
        return math.sqrt(2.0) * float(ndtri(self.auroc))

    def draw(self, n: int, rng: np.random.Generator) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Draws the uncertainty in nats and the error of n pairs, each of shape (n,)."""
        wrong = rng.random(n) >= self.accuracy
        return self.uncertainty(wrong, rng), wrong

    def uncertainty(self, wrong: NDArray[np.bool_], rng: np.random.Generator) -> FloatArray:
        """Draws the uncertainty in nats of pairs whose errors are given, of their shape."""
        confidence = rng.normal(size=wrong.shape) + np.where(wrong, 0.0, self.shift)
        uncertainty: FloatArray = LN2 * ndtr(-confidence)
        return uncertainty

    def truth(self, threshold: float | FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coverage and share of errors among the accepted, of the shape of the thresholds in nats.

        The error is 0 if nothing is accepted.
        """
        share = np.maximum(np.asarray(threshold, dtype=np.float64), 0.0) / LN2
        lowest = -ndtri(share)
        wrong = (1 - self.accuracy) * ndtr(-lowest)
        right = self.accuracy * ndtr(self.shift - lowest)
        accepted = wrong + right
        return accepted, np.divide(wrong, accepted, out=np.zeros_like(wrong), where=accepted > 0)
