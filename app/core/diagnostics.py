"""Quality of a judge's confidence, and the changes that make an alpha feasible."""

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.core.assessment import AlphaInterval
from app.core.binomial import binomial_cdf
from app.core.comparison import Guarantee
from app.core.examples import MOST_PAIRS
from app.core.pac import (
    fair_start_rank,
    observed_error,
    start_rank,
)
from app.core.thresholds import ThresholdCurve

_BINS = 10
# Shape (999,). The alphas among which feasible ones are looked for.
ALPHA_GRID = np.arange(1, 1000) / 1000


def auroc(confidence: ArrayLike, right: ArrayLike) -> float | None:
    """Probability that a right verdict is more confident than a wrong one; ties count half.

    None if all verdicts are right or all are wrong.
    """
    _, place, ties = np.unique(confidence, return_inverse=True, return_counts=True)
    # Tied confidences share their mean rank.
    ranks = (ties.cumsum() - (ties - 1) / 2)[place]
    is_right = np.asarray(right, dtype=bool)
    positives = int(is_right.sum())
    negatives = len(is_right) - positives
    if not positives or not negatives:
        return None
    above = ranks[is_right].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))


def expected_calibration_error(confidence: ArrayLike, right: ArrayLike) -> float | None:
    """Mean gap between confidence and accuracy over 10 uniform bins (SCOPE, section ECE).

    None without verdicts.
    """
    sure = np.asarray(confidence, dtype=np.float64)
    if not len(sure):
        return None
    bins = confidence_bins(sure)
    surplus = np.asarray(right, dtype=np.float64) - sure
    # fsum does not depend on the order in which a store returns the examples.
    gaps = [abs(math.fsum(surplus[bins == m])) for m in range(_BINS)]
    return math.fsum(gaps) / len(sure)


def confidence_bins(confidence: ArrayLike) -> NDArray[np.int64]:
    """The bin of each confidence in [0, 1], of shape (n,), from 0 to 9.

    Bin m is (m / 10, (m + 1) / 10], as in Naeini et al. (2015); a confidence of 0 is in bin 0.
    """
    numbers = np.ceil(np.asarray(confidence, dtype=np.float64) * _BINS).astype(np.int64) - 1
    return np.clip(numbers, 0, _BINS - 1)


def more_examples(
    curve: ThresholdCurve,
    alpha: float,
    guarantee: Guarantee,
    delta: float | None,
    *,
    off_task: int = 0,
) -> int | None:
    """The fewest further examples with which alpha can be feasible, if none of them is wrong.

    An estimate from the error rates at the first ranks jumped between 1,100 and 13,000 while labels
    were added. This bound falls by one with each example. None if there are enough examples, so
    that fewer errors are missing, or if a set has no room for them.

    Args:
        curve: Curve of the calibration set without its off-task examples.
        alpha: In (0, 1).
        guarantee: "marginal" or "pac".
        delta: In (0, 1) for "pac"; ignored for "marginal".
        off_task: Number of off-task examples, whose share is assumed of further examples, too.
    """
    if guarantee == "marginal":
        # Without an error, (0 + 1) / k must be at most the bound.
        least = 1.0 / observed_error(alpha, curve.label_noise)
        needed = math.ceil(least) if least <= MOST_PAIRS else None
    else:
        assert delta is not None, "pac needs a delta"
        needed = fair_start_rank(alpha, delta, curve.label_noise, at_most=MOST_PAIRS)
    if needed is None or curve.n >= needed:
        return None
    if not curve.n:
        return None if off_task else needed
    n = curve.n + off_task
    total = math.ceil(Fraction(needed * n, curve.n))
    return total - n if total <= MOST_PAIRS else None


def feasible_alphas(
    curve: ThresholdCurve, guarantee: Guarantee, delta: float | None
) -> tuple[AlphaInterval, ...]:
    """All feasible alphas, in intervals on a grid of 0.001 from 0.001 to 0.999, in ascending order.

    Under "pac" they need not be one interval: the start rank falls as alpha rises, and may then
    lie among errors. The arguments are those of `more_examples`.
    """
    if guarantee == "marginal":
        feasible = (curve.risk_levels[0] if curve.n else math.inf) <= ALPHA_GRID
    else:
        assert delta is not None, "pac needs a delta"
        feasible = _is_feasible_pac(curve, delta)
    steps = np.diff(np.concatenate([[False], feasible, [False]]).astype(np.int8))
    begins, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1) - 1
    return tuple(
        (float(ALPHA_GRID[first]), float(ALPHA_GRID[last]))
        for first, last in zip(begins, ends, strict=True)
    )


@lru_cache(maxsize=64)
def _start_ranks(delta: float, label_noise: float, n: int) -> NDArray[np.int64]:
    """Start rank of "pac" at every alpha of the grid; n + 1 where it is above n."""
    ranks = [start_rank(alpha, delta, label_noise, n) for alpha in ALPHA_GRID.tolist()]
    return np.array([n + 1 if rank is None else rank for rank in ranks], dtype=np.int64)


def _is_feasible_pac(curve: ThresholdCurve, delta: float) -> NDArray[np.bool_]:
    """Whether each alpha of the grid is feasible: only the first test of each alpha matters."""
    feasible = np.zeros(len(ALPHA_GRID), dtype=bool)
    starts = _start_ranks(delta, curve.label_noise, curve.n)
    tested = np.flatnonzero(starts <= curve.n)
    if len(tested):
        blocks = np.searchsorted(curve.accepted, starts[tested], side="left")
        bounds = [observed_error(alpha, curve.label_noise) for alpha in ALPHA_GRID[tested].tolist()]
        feasible[tested] = (
            binomial_cdf(curve.errors[blocks], curve.accepted[blocks], np.array(bounds)) <= delta
        )
    return feasible
