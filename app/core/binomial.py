"""The binomial distribution and a root, without scipy.stats and scipy.optimize.

Their imports take most of a command's start.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, ndtri

from app.core.preference import FloatArray

_TOLERANCE = 1e-12


def binomial_cdf(successes: ArrayLike, trials: ArrayLike, rate: ArrayLike) -> FloatArray:
    """P[Bin(trials, rate) <= successes], broadcast to one shape.

    It is the incomplete beta function, which also has fractions for both counts. `successes` is -1
    or more and at most `trials`, and `rate` in (0, 1).
    """
    done = np.asarray(successes, dtype=np.float64)
    failures = np.asarray(trials, dtype=np.float64) - done
    # The function needs positive arguments. With `tiny` it is 1 without failures, and 0 below 0.
    tiny = np.finfo(float).tiny
    right, wrong = np.maximum(failures, tiny), np.maximum(done + 1.0, tiny)
    probability: FloatArray = betainc(right, wrong, 1.0 - np.asarray(rate))
    return probability


def most_successes(probability: float, trials: ArrayLike, rate: float) -> FloatArray:
    """The largest k with P[Bin(trials, rate) <= k] <= probability; -1 where 0 is too many.

    `probability` and `rate` are in (0, 1), and `trials` are at least 1.
    """
    n = np.asarray(trials, dtype=np.float64)
    # The Cornish-Fisher expansion is at most a few steps away.
    z, spread = float(ndtri(probability)), np.sqrt(n * rate * (1.0 - rate))
    k = np.floor(n * rate + z * spread + (z * z - 1.0) * (1.0 - 2.0 * rate) / 6.0 - 0.5)
    k = np.clip(k, -1.0, n)
    while (up := (k < n) & (binomial_cdf(np.minimum(k + 1.0, n), n, rate) <= probability)).any():
        k += up
    while (down := (k >= 0.0) & (binomial_cdf(k, n, rate) > probability)).any():
        k -= down
    return k


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """A root between two arguments at which the function has different signs, by bisection.

    To an error of 1e-12, relative where the root is above 1. The function is not negative there.
    """
    rises = function(low) < 0.0
    while high - low > _TOLERANCE * max(1.0, high):
        middle = 0.5 * (low + high)
        if (function(middle) < 0.0) == rises:
            low = middle
        else:
            high = middle
    return high if rises else low
