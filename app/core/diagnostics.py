"""Quality of a judge's confidence, and the changes that make an alpha feasible."""

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom, rankdata

from app.core.comparison import Guarantee
from app.core.pac import allowable_errors, observed_error, start_rank
from app.core.preference import FloatArray
from app.core.thresholds import ThresholdCurve

_BINS = 10
# Far more examples than people label; a longer search for a start rank takes seconds.
_MOST_EXAMPLES = 10**5


def auroc(confidence: ArrayLike, right: ArrayLike) -> float | None:
    """Probability that a right verdict is more confident than a wrong one; ties count half.

    Args:
        confidence: Shape (n,).
        right: Shape (n,), bool.

    Returns:
        In [0, 1]; None if all verdicts are right or all are wrong.
    """
    ranks, is_right = rankdata(confidence), np.asarray(right, dtype=bool)
    positives = int(is_right.sum())
    negatives = len(is_right) - positives
    if not positives or not negatives:
        return None
    above = ranks[is_right].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))


def expected_calibration_error(confidence: ArrayLike, right: ArrayLike) -> float | None:
    """Mean gap between confidence and accuracy over 10 uniform bins (SCOPE, section ECE).

    Args:
        confidence: Shape (n,), in [0, 1].
        right: Shape (n,), bool.

    Returns:
        In [0, 1]; None without verdicts.
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
    """The bin of each confidence; bin m is (m / 10, (m + 1) / 10], as in Naeini et al. (2015).

    Args:
        confidence: Shape (n,), in [0, 1].

    Returns:
        Shape (n,). Bin numbers from 0 to 9; a confidence of 0 is in bin 0.
    """
    numbers = np.ceil(np.asarray(confidence, dtype=np.float64) * _BINS).astype(np.int64) - 1
    return np.clip(numbers, 0, _BINS - 1)


class Feasibility(NamedTuple):
    """The two ways to make an infeasible alpha feasible.

    Args:
        smallest_alpha: Smallest feasible alpha with these examples, to three decimals for "pac";
            None if no alpha is feasible.
        more_examples: Number of further examples that make the alpha feasible if the error rates
            stay the same; None if no number does, or more than 100,000 are needed.
    """

    smallest_alpha: float | None
    more_examples: int | None


def feasibility(
    curve: ThresholdCurve,
    alpha: float,
    guarantee: Guarantee,
    delta: float | None,
    *,
    off_task: int = 0,
) -> Feasibility:
    """Computes the changes that make alpha feasible, from the error rates of the examples.

    Args:
        curve: Curve of the calibration set without its off-task examples.
        alpha: In (0, 1).
        guarantee: "marginal" or "pac".
        delta: In (0, 1) for "pac"; ignored for "marginal".
        off_task: Number of off-task examples. The same share of further examples is assumed to be
            off task.
    """
    if guarantee == "marginal":
        first = float(curve.risk_levels[0]) if len(curve.risk_levels) else math.inf
        smallest, needed = first if first < 1.0 else None, _examples_marginal(curve, alpha)
    else:
        assert delta is not None, "pac needs a delta"
        smallest, needed = _smallest_alpha_pac(curve, delta), _examples_pac(curve, alpha, delta)
    if needed is None:
        return Feasibility(smallest, None)
    n = curve.n + off_task
    more = max(0, math.ceil(Fraction(needed * n, curve.n)) - n)
    return Feasibility(smallest, more if more <= _MOST_EXAMPLES else None)


def _examples_marginal(curve: ThresholdCurve, alpha: float) -> int | None:
    """Number of examples at which "marginal" becomes feasible; None if no number suffices.

    With m times the examples, (m e + 1) / (m k) <= bound needs m >= 1 / (bound k - e).
    """
    if not curve.n:
        return None
    slack = observed_error(alpha, curve.label_noise) * curve.accepted - curve.errors
    most = float(slack.max())
    return math.ceil(curve.n / most) if most > 0.0 else None


def _examples_pac(curve: ThresholdCurve, alpha: float, delta: float) -> int | None:
    """Number of examples at which "pac" becomes feasible; None if no number suffices.

    With n' examples, the start rank k has the error rate that rank k n / n' has now.
    """
    start = start_rank(alpha, delta, curve.label_noise, at_most=_MOST_EXAMPLES)
    if start is None or not curve.n:
        return None
    bound = observed_error(alpha, curve.label_noise)
    allowed = allowable_errors(np.array([start]), bound, delta)[0]
    passing = np.flatnonzero(curve.errors * (start / curve.accepted) <= allowed)
    if not len(passing):
        return None
    needed = math.ceil(curve.n * start / int(curve.accepted[passing[-1]]))
    return max(start, needed)


def _smallest_alpha_pac(curve: ThresholdCurve, delta: float) -> float | None:
    """The first feasible alpha on a grid of 1%, refined on a grid of 0.1% below it."""
    coarse = _first_feasible(curve, np.arange(1, 100) / 100, delta)
    if coarse is None:
        return None
    return _first_feasible(curve, np.round(coarse + np.arange(-9, 1) / 1000, 3), delta)


def _first_feasible(curve: ThresholdCurve, alphas: FloatArray, delta: float) -> float | None:
    """The first feasible alpha: only the first test matters, the later ones raise the threshold."""
    for alpha in map(float, alphas):
        start = start_rank(alpha, delta, curve.label_noise, at_most=curve.n)
        if start is None:
            continue
        block: NDArray[np.int64] = np.searchsorted(curve.accepted, [start], side="left")
        bound = observed_error(alpha, curve.label_noise)
        if binom.cdf(curve.errors[block], curve.accepted[block], bound)[0] <= delta:
            return alpha
    return None
