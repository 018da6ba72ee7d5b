"""The order-averaged preference and its entropy, from label logits in both orders (SCOPE, BPE)."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, xlogy

from app.core.errors import JudgmentFailedError
from app.core.score import Preference

FloatArray = NDArray[np.float64]

# The largest entropy of two outcomes, in nats: the threshold that accepts everything.
LN2 = math.log(2.0)


class Preferences(NamedTuple):
    """The preferences of a judge on n comparisons.

    Args:
        p_fwd: Shape (n,). Probability of response_a when it is shown first.
        p_rev: Shape (n,). Probability of response_a when it is shown second.
        p_bar: Shape (n,). Mean of p_fwd and p_rev; exactly 0.5 where the judge has no preference.
        entropy: Shape (n,). Entropy of p_bar, the uncertainty s(x), in nats within [0, ln 2].
    """

    p_fwd: FloatArray
    p_rev: FloatArray
    p_bar: FloatArray
    entropy: FloatArray

    @property
    def confidence(self) -> FloatArray:
        """Shape (n,). max(p_bar, 1 - p_bar), within [0.5, 1] (SCOPE, BPE as confidence)."""
        return np.maximum(self.p_bar, 1.0 - self.p_bar)

    def wrong(self, prefers_a: ArrayLike) -> NDArray[np.bool_]:
        """Shape (n,). E(x): true where the judge prefers not the side that people prefer.

        A judge without a preference is wrong whichever that side is. NaN is never wrong.

        Args:
            prefers_a: Shape (n,). Whether people prefer response_a.
        """
        wrong: NDArray[np.bool_] = np.where(prefers_a, self.p_bar <= 0.5, self.p_bar >= 0.5)
        return wrong

    def accepted(self, threshold: float) -> NDArray[np.bool_]:
        """Shape (n,). S(x, lambda): true where a threshold in nats accepts the preference.

        None is accepted without a preference, and none that is NaN.
        """
        accepted: NDArray[np.bool_] = (self.entropy <= threshold) & (self.p_bar != 0.5)
        return accepted

    def rows(self) -> list[Preference]:
        """The preference of each comparison."""
        columns = (self.p_fwd.tolist(), self.p_rev.tolist(), self.p_bar.tolist())
        return [
            Preference(p_fwd=p_fwd, p_rev=p_rev, p_bar=p_bar, uncertainty=uncertainty)
            for p_fwd, p_rev, p_bar, uncertainty in zip(
                *columns, self.entropy.tolist(), strict=True
            )
        ]

    @property
    def position_flips(self) -> float:
        """Share of comparisons in which the two orders prefer different responses; n > 0."""
        return float(((self.p_fwd - 0.5) * (self.p_rev - 0.5) < 0.0).mean())


def preference_from_gaps(gap_fwd: FloatArray, gap_rev: FloatArray) -> Preferences:
    """Averages the two orders, given the logit gaps that a calibration set stores.

    Args:
        gap_fwd: Shape (n,). Logit of response_a minus that of response_b, response_a shown first.
        gap_rev: Shape (n,). Logit of response_a minus that of response_b, response_a shown second.

    Returns:
        The preferences, each of shape (n,).

    Raises:
        JudgmentFailedError: A gap is not a finite number.
    """
    # Both orders in one array, because a call of NumPy takes as long as 50 of its numbers.
    gaps = np.array([gap_fwd, gap_rev])
    if not np.isfinite(gaps).all():
        raise JudgmentFailedError("a score of the judge is not a finite number")
    p_fwd, p_rev = expit(gaps)
    p_bar = (p_fwd + p_rev) / 2.0
    # 1 - p_bar would round to 0 for a gap above 37, so the other side is averaged separately.
    q_fwd, q_rev = expit(-gaps)
    q_bar = (q_fwd + q_rev) / 2.0
    # Swapped responses must mirror exactly, but the two means are rounded separately. So the
    # smaller mean is kept and the larger is 1 minus it. If that rounds to 0.5, the judge has no
    # preference.
    smaller = np.minimum(p_bar, q_bar)
    undecided = (p_bar == q_bar) | (1.0 - smaller <= 0.5)
    smaller = np.where(undecided, 0.5, smaller)
    larger = 1.0 - smaller
    p_bar = np.where(p_bar < q_bar, smaller, larger)
    return Preferences(p_fwd, p_rev, p_bar, _entropy_of_sides(smaller, larger))


def gaps_in_reverse(gap_fwd: FloatArray, gap_rev: FloatArray) -> FloatArray:
    """Returns the gaps of the reverse order, given the numbers of scores (`Score.numbers`).

    Args:
        gap_fwd: Shape (n,). Logit of response_a minus that of response_b, response_a shown first.
        gap_rev: Shape (n,). The same, response_a shown second; NaN where the judge sees no order.

    Returns:
        Shape (n,), without NaN: a judge that sees no order has the same gap in both.
    """
    gaps: FloatArray = np.where(np.isnan(gap_rev), gap_fwd, gap_rev)
    return gaps


def binary_entropy(p: FloatArray, q: FloatArray) -> FloatArray:
    """Entropy of a preference, exact even where it is nearly certain.

    Args:
        p: Shape (n,). Probability that response A is preferred, in [0, 1].
        q: Shape (n,). Probability that response B is preferred: 1 - p, passed in because
            computing it here would round to 0 for p above 1 - 1e-16.

    Returns:
        Shape (n,), in nats, within [0, ln 2].
    """
    return _entropy_of_sides(np.minimum(p, q), np.maximum(p, q))


def _entropy_of_sides(smaller: FloatArray, larger: FloatArray) -> FloatArray:
    # Near larger = 1, its logarithm is exact through the other side.
    terms = larger * np.log1p(-smaller) + xlogy(smaller, smaller)
    entropy: FloatArray = np.minimum(np.abs(terms), LN2)
    return entropy
