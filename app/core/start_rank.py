"""The first rank that "pac" tests: where the test has power, whatever the labels say."""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from app.core.binomial import binomial_cdf, most_successes
from app.core.preference import FloatArray
from app.core.thresholds import exact_noise

# Power is the probability that the test passes if the true error is _ASSUMED_ERROR_SHARE * alpha.
# Trust-or-Escalate starts at the most confident points, where a test has no power.
_ASSUMED_ERROR_SHARE = 0.6
_FAIR_POWER, _GOOD_POWER = 0.5, 0.8
# Good power pays for its later start if that is within this share of the points, and within this
# multiple of alpha: a judge's accepted share falls with alpha. Measured for six judges and alphas
# from 0.02 to 0.4 (docs/design/guarantees.md, section 3).
_LATEST_START_SHARE, _LATEST_START_ALPHAS = 0.5, 2.5
_LARGEST_CHUNK = 1024
# No realistic number of labels distinguishes two error rates that are closer than this.
_SMALLEST_GAP = 1e-12


def observed_error(alpha: float, label_noise: float) -> float:
    """Returns the error rate that noisy labels show if the true error rate is alpha."""
    noise = float(exact_noise(label_noise))
    return noise + (1 - 2 * noise) * alpha


def allowable_errors(ranks: NDArray[np.int64], bound: float, delta: float) -> FloatArray:
    """Returns the largest number of errors that passes at each rank; -1 if 0 errors fail."""
    return most_successes(delta, ranks, bound)


def start_rank(alpha: float, delta: float, label_noise: float, n: int) -> int | None:
    """Returns the first rank to test with n points, which depends on no score and no label.

    It is the rank with power 0.8 if that is within the share 2.5 alpha of the points, and within
    their half; else the one with power 0.5. For alpha = delta = 0.1 these are 210, from n = 840 on,
    and 91.

    Returns:
        The rank; None if it is above n.
    """
    good = good_start_rank(alpha, delta, label_noise, at_most=_latest_good_start(alpha, n))
    if good is not None:
        return good
    return fair_start_rank(alpha, delta, label_noise, at_most=n)


def points_for_good_start(alpha: float, good: int) -> int:
    """Returns the number of points from which on tests start at the rank with good power."""
    n = max(1, math.floor(good / _latest_start_share(alpha)) - 1)
    while _latest_good_start(alpha, n) < good:
        n += 1
    return n


def _latest_good_start(alpha: float, n: int) -> int:
    return math.floor(n * _latest_start_share(alpha))


def _latest_start_share(alpha: float) -> float:
    return min(_LATEST_START_SHARE, _LATEST_START_ALPHAS * alpha)


def fair_start_rank(alpha: float, delta: float, label_noise: float, *, at_most: int) -> int | None:
    """Returns the smallest rank at which the test has power 0.5; None if it is above `at_most`."""
    return _rank_with_power(alpha, delta, label_noise, _FAIR_POWER, at_most)


def good_start_rank(alpha: float, delta: float, label_noise: float, *, at_most: int) -> int | None:
    """Returns the smallest rank at which the test has power 0.8; None if it is above `at_most`."""
    return _rank_with_power(alpha, delta, label_noise, _GOOD_POWER, at_most)


def good_marginal_rank(alpha: float, label_noise: float, *, at_most: int) -> int | None:
    """Returns the smallest rank up to which "marginal" accepts with power 0.8.

    It accepts k points with e errors if (e + 1) / k <= alpha, so only the first rank at which one
    more error is allowed can be the smallest one.

    Returns:
        The rank; None if it is above `at_most`.
    """
    bound = observed_error(alpha, label_noise)
    errors = np.arange(int(at_most * bound))
    ranks = np.ceil((errors + 1) / bound).astype(np.int64)
    ranks += (errors + 1) / ranks > bound
    power = binomial_cdf(errors, ranks, observed_error(_ASSUMED_ERROR_SHARE * alpha, label_noise))
    enough = ranks[(power >= _GOOD_POWER) & (ranks <= at_most)]
    return int(enough[0]) if len(enough) else None


def _rank_with_power(
    alpha: float, delta: float, label_noise: float, power: float, at_most: int
) -> int | None:
    """Returns the smallest rank with that power, at least 0.5; None if it is above `at_most`."""
    bound = observed_error(alpha, label_noise)
    assumed_error = observed_error(_ASSUMED_ERROR_SHARE * alpha, label_noise)
    # Below this rank not even a test without errors passes.
    passable = math.log(delta) / math.log1p(-bound)
    # With gap = bound - assumed_error, the normal approximation of the rank solves
    # k gap = z sqrt(k bound (1 - bound)) + y sqrt(k assumed_error (1 - assumed_error)). Rounding to
    # whole errors, skewness, and the distance between median and mean are less than one error each,
    # so 5 / gap ranks are a safe distance.
    gap = bound - assumed_error
    if gap < _SMALLEST_GAP:
        return None
    spread = -float(ndtri(delta)) * math.sqrt(bound * (1 - bound))
    spread += float(ndtri(power)) * math.sqrt(assumed_error * (1 - assumed_error))
    estimate = (max(0.0, spread) / gap) ** 2
    low = max(1, math.floor(max(passable, estimate - 5 / gap)))
    # The rank is at most as far above that estimate as `low` is below it.
    chunk = math.ceil(min(10 / gap, _LARGEST_CHUNK))
    while low <= at_most:
        high = min(low + chunk, at_most + 1)
        rank = _powerful_rank(bound, assumed_error, delta, power, low, high)
        if rank is not None:
            return rank
        low = high
    return None


@lru_cache(maxsize=4096)
def _powerful_rank(
    bound: float, assumed_error: float, delta: float, power: float, low: int, high: int
) -> int | None:
    """Returns the smallest rank in [low, high) at which the test has that power."""
    ranks = np.arange(low, high)
    allowable = allowable_errors(ranks, bound, delta)
    passing = np.where(allowable >= 0, binomial_cdf(allowable, ranks, assumed_error), 0.0)
    enough = np.flatnonzero(passing >= power)
    return int(ranks[enough[0]]) if len(enough) else None
