"""The order-averaged preference and its entropy, from label logits in both orders (SCOPE, BPE)."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, xlogy

from app.core.comparison import Side
from app.core.errors import JudgmentFailedError

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

    @property
    def position_flips(self) -> float:
        """Share of comparisons in which the two orders prefer different responses; n > 0."""
        return float(((self.p_fwd - 0.5) * (self.p_rev - 0.5) < 0.0).mean())


def preference_from_logits(
    logit_a_fwd: ArrayLike, logit_b_fwd: ArrayLike, logit_a_rev: ArrayLike, logit_b_rev: ArrayLike
) -> Preferences:
    """Averages the two orders, exact even where the judge is nearly certain.

    The reverse prompt shows response_b first, so that label B means response_a there.

    Args:
        logit_a_fwd: Shape (n,). Logit of label A in the forward prompt; any finite number. A
            constant added to both logits of a prompt changes nothing.
        logit_b_fwd: Shape (n,). Logit of label B in the forward prompt.
        logit_a_rev: Shape (n,). Logit of label A in the reverse prompt.
        logit_b_rev: Shape (n,). Logit of label B in the reverse prompt.

    Returns:
        The preferences, each of shape (n,).

    Raises:
        JudgmentFailedError: A logit is not a finite number.
    """
    a_fwd, b_fwd = np.asarray(logit_a_fwd, np.float64), np.asarray(logit_b_fwd, np.float64)
    a_rev, b_rev = np.asarray(logit_a_rev, np.float64), np.asarray(logit_b_rev, np.float64)
    # Infinite logits give a gap that is not finite; the error below reports it, not a warning.
    with np.errstate(invalid="ignore", over="ignore"):
        return preference_from_gaps(a_fwd - b_fwd, b_rev - a_rev)


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
    if not (np.isfinite(gap_fwd).all() and np.isfinite(gap_rev).all()):
        raise JudgmentFailedError("the judge's label logits are not finite numbers")
    p_fwd, p_rev = expit(gap_fwd), expit(gap_rev)
    p_bar = (p_fwd + p_rev) / 2.0
    # 1 - p_bar would round to 0 for a gap above 37, so the other side is averaged separately.
    q_bar = (expit(-gap_fwd) + expit(-gap_rev)) / 2.0
    # Swapped responses must mirror exactly, but the two means are rounded separately. So the
    # smaller mean is kept and the larger is 1 minus it. If that rounds to 0.5, the judge has no
    # preference.
    smaller = np.minimum(p_bar, q_bar)
    undecided = (p_bar == q_bar) | (1.0 - smaller <= 0.5)
    smaller = np.where(undecided, 0.5, smaller)
    prefers_b = p_bar < q_bar
    p_bar = np.where(prefers_b, smaller, 1.0 - smaller)
    q_bar = np.where(prefers_b, 1.0 - smaller, smaller)
    return Preferences(p_fwd, p_rev, p_bar, binary_entropy(p_bar, q_bar))


def binary_entropy(p: FloatArray, q: FloatArray) -> FloatArray:
    """Entropy of a preference, exact even where it is nearly certain.

    Args:
        p: Shape (n,). Probability that response A is preferred, in [0, 1].
        q: Shape (n,). Probability that response B is preferred: 1 - p, passed in because
            computing it here would round to 0 for p above 1 - 1e-16.

    Returns:
        Shape (n,), in nats, within [0, ln 2].
    """
    # Near p = 1, p ln p is exact through the other side: ln p = log1p(-q).
    p_term = np.where(p > 0.5, p * np.log1p(-np.minimum(q, 0.5)), xlogy(p, p))
    q_term = np.where(q > 0.5, q * np.log1p(-np.minimum(p, 0.5)), xlogy(q, q))
    entropy: FloatArray = np.minimum(np.abs(p_term + q_term), LN2)
    return entropy


def preferred_side(p_bar: float) -> Side | None:
    """The preferred side; None at exactly 0.5, where every threshold abstains."""
    if p_bar == 0.5:
        return None
    return "A" if p_bar > 0.5 else "B"
