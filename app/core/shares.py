"""Bounds on a share that was observed."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from app.core.preference import FloatArray


def clopper_pearson(
    counts: ArrayLike, totals: ArrayLike, *, tail: float
) -> tuple[FloatArray, FloatArray]:
    """Returns the lower and the upper bound of Clopper and Pearson (1934) on shares.

    Args:
        counts: Number of cases, of any shape.
        totals: Number of observations, of that shape; no smaller than the counts.
        tail: Probability with which each of the two bounds fails, in (0, 1).

    Returns:
        Two arrays of that shape, in [0, 1].
    """
    cases = np.asarray(counts)
    others = np.asarray(totals) - cases
    low = np.where(cases > 0, betaincinv(np.maximum(cases, 1), others + 1, tail), 0.0)
    high = np.where(others > 0, betaincinv(cases + 1, np.maximum(others, 1), 1.0 - tail), 1.0)
    return low, high
