"""Drift of a judge's scores without labels: a conformal test martingale.

Vovk, Gammerman and Shafer 2005, chapter 7. Each new value is ranked among all values before it, the
calibration scores first. As long as the traffic is like the calibration set, the ranks are
independent and uniform, and nobody can grow rich by betting against them
(docs/design/guarantees.md, section 7).
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.core.betting import finite, restart_log_weights, restarted_log_wealth
from app.core.preference import FloatArray

# Shape (6, 1). Bets on larger and on smaller values, weak and strong.
_BETS: FloatArray = np.array([[-0.8], [-0.4], [-0.2], [0.2], [0.4], [0.8]])
# 80 kB a stream.
_MOST_VALUES = 10_000
# Values of one block are compared with each other, in a matrix.
_BLOCK = 64


class ConformalMartingale:
    """Wealth of bets that new values are unlike those before them; mutable, bounded in memory.

    If calibration scores and new values are exchangeable, `largest` ever reaches 1 / delta with
    probability at most delta. Correlated values, such as many pairs of one question, or the same
    pair again and again, are not exchangeable and raise alarms.

    It keeps 10,000 values. When there are more, as many as are too many are drawn at random among
    all that it holds, old and new alike, and forgotten. The draw does not depend on the values or
    on their age, so the ranks stay independent and uniform.
    """

    __slots__ = ("_judged", "_log_largest", "_log_wealth", "_values")

    def __init__(self, values: FloatArray) -> None:
        # Ascending.
        self._values = values
        self._judged = 0
        self._log_wealth = np.full(len(_BETS), -math.inf)
        self._log_largest = -math.inf

    @classmethod
    def of(cls, scores: ArrayLike) -> "ConformalMartingale":
        """Begins with the scores of the calibration set.

        Args:
            scores: Shape (n,), in an order that does not depend on them; n may be 0. Of more than
                10,000 it takes 10,000 in even steps.

        Raises:
            ValueError: A score is NaN, or scores has no shape (n,).
        """
        values = _checked(scores)
        if len(values) > _MOST_VALUES:
            values = values[np.arange(_MOST_VALUES) * len(values) // _MOST_VALUES]
        return cls(np.sort(values))

    def update(self, values: ArrayLike, uniforms: ArrayLike) -> None:
        """Adds new values in their order.

        Where one block ends and the next begins must not depend on the values.

        Args:
            values: Shape (m,).
            uniforms: Shape (m, 2). Independent random numbers in [0, 1): the first of each value
                breaks ties, the second says which value is forgotten if there are too many.

        Raises:
            ValueError: A value is NaN, or the shapes differ.
        """
        new, random = _checked(values), np.asarray(uniforms, dtype=np.float64)
        if random.shape != (len(new), 2):
            raise ValueError(f"values {new.shape} need uniforms (m, 2), got {random.shape}")
        for begin in range(0, len(new), _BLOCK):
            self._add(new[begin : begin + _BLOCK], random[begin : begin + _BLOCK])

    @property
    def judged(self) -> int:
        """Number of new values."""
        return self._judged

    @property
    def evidence(self) -> float:
        """The wealth now, at most 1e300."""
        return finite(float(_mixed(self._log_wealth)))

    @property
    def largest(self) -> float:
        """The largest wealth after any value so far, at most 1e300."""
        return finite(self._log_largest)

    def _add(self, new: FloatArray, random: FloatArray) -> None:
        """Bets on one block and keeps its values."""
        log_factors = np.log1p(_BETS * (2.0 * self._p_values(new, random[:, 0]) - 1.0))
        weights = restart_log_weights(self._judged + 1, len(new))
        wealth = restarted_log_wealth(log_factors, weights, self._log_wealth)
        self._log_wealth = wealth[:, -1]
        self._log_largest = max(self._log_largest, float(_mixed(wealth).max()))
        self._judged += len(new)
        self._keep(np.sort(new), random[:, 1])

    def _p_values(self, new: FloatArray, ties: FloatArray) -> FloatArray:
        """Share of the values so far that are below each new one, with ties broken at random."""
        below = np.searchsorted(self._values, new, side="left")
        tied = np.searchsorted(self._values, new, side="right") - below
        # Row i has the values of the block before value i.
        before = np.tri(len(new), k=-1, dtype=bool)
        below += (before & (new[np.newaxis, :] < new[:, np.newaxis])).sum(axis=1)
        tied += (before & (new[np.newaxis, :] == new[:, np.newaxis])).sum(axis=1)
        count = len(self._values) + np.arange(1, len(new) + 1)
        shares: FloatArray = (below + ties * (tied + 1)) / count
        return shares

    def _keep(self, new: FloatArray, random: FloatArray) -> None:
        """Adds ascending values, and forgets as many at random as are too many."""
        values = np.insert(self._values, np.searchsorted(self._values, new), new)
        surplus = len(values) - _MOST_VALUES
        if surplus > 0:
            values = np.delete(values, _drawn(len(values), random[:surplus]))
        self._values = values


def _checked(values: ArrayLike) -> FloatArray:
    """The values as numbers; raises ValueError for NaN and for a wrong shape."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or np.isnan(numbers).any():
        raise ValueError(f"values {numbers.shape} must be numbers of shape (n,)")
    return numbers


def _mixed(log_wealth: FloatArray) -> FloatArray:
    """Log of the mean wealth over the bets, which are the first axis."""
    mean: FloatArray = np.logaddexp.reduce(log_wealth, axis=0) - math.log(len(_BETS))
    return mean


def _drawn(count: int, random: FloatArray) -> NDArray[np.int64]:
    """As many different numbers below `count` as there are random ones (Floyd 1987)."""
    chosen: set[int] = set()
    for last, number in enumerate(random.tolist(), start=count - len(random)):
        place = int(number * (last + 1))
        chosen.add(last if place in chosen else place)
    return np.fromiter(chosen, dtype=np.int64, count=len(chosen))
