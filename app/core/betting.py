"""Wealth of bets against a hypothesis: it stays small while the hypothesis is true.

A bet multiplies its wealth by a factor with a mean of at most 1 under the hypothesis, whatever was
seen before. Wealth that begins with at most 1 in all then reaches 1 / delta at any time with
probability at most delta (Ville 1939). So an alarm at that level may be looked for after each
observation, forever (docs/design/guarantees.md, section 6).
"""

import math

import numpy as np
from numpy.typing import NDArray

from app.core.preference import FloatArray

# Wealth is shown as a number in JSON; this one is finite and far beyond every alarm.
_LARGEST_LOG = math.log(1e300)
# w_k = _SCALE / ((k + 10) ln^2(k + 10)). The function is convex, so its sum over k >= 1 is at most
# its integral from 10.5, which is 1 / ln(10.5). So the weights sum to at most 1 (to 0.9997).
_OFFSET = 10
_SCALE = math.log(_OFFSET + 0.5)


def share_of(place: int) -> float:
    """The share of false alarms that the observer at a place has, from 1 on.

    The shares 1 / (k (k + 1)) sum to 1, however many observers come, and alarms at these shares
    together are as rare as one at all of it, however the observers depend on each other.
    """
    return 1.0 / (place * (place + 1))


def restart_log_weights(first: int, count: int) -> FloatArray:
    """Shape (count,). Logs of the wealth that begins at each observation from number `first` on.

    The weights fall so slowly that a change after many observations is still found soon. All
    weights from observation 1 on sum to at most 1.
    """
    places = np.arange(first, first + count, dtype=np.float64) + _OFFSET
    weights: FloatArray = math.log(_SCALE) - np.log(places) - 2.0 * np.log(np.log(places))
    return weights


def restarted_log_wealth(
    log_factors: FloatArray, log_weights: FloatArray, before: FloatArray | float = -math.inf
) -> FloatArray:
    """Shape (..., n). The log of M_t = (M_{t-1} + w_t) factor_t for each observation t.

    Args:
        log_factors: Shape (..., n). Logs of the factors of the observations, of one bet a row.
        log_weights: Shape (n,). Log of the wealth w_t that begins to bet at each observation.
        before: Shape (...). Log of the wealth before the first of these observations.
    """
    # M_t = F_t (M_0 + sum of w_k / F_{k-1} over k <= t), where F_t is the product of the factors.
    products = np.cumsum(log_factors, axis=-1)
    begun = np.logaddexp.accumulate(log_weights - (products - log_factors), axis=-1)
    wealth: FloatArray = products + np.logaddexp(begun, np.asarray(before)[..., np.newaxis])
    return wealth


def finite(log_wealth: float) -> float:
    """The wealth, at most 1e300."""
    return math.exp(min(log_wealth, _LARGEST_LOG))


def first_at(log_wealth: FloatArray, level: float) -> int | None:
    """The number, from 1, of the first observation with a wealth of at least `level`, above 0."""
    reached: NDArray[np.bool_] = log_wealth >= math.log(level)
    place = int(reached.argmax()) if len(reached) else 0
    return place + 1 if len(reached) and reached[place] else None
