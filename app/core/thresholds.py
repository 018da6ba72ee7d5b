"""SCOPE's threshold for every alpha, and its inverse, the risk level of a judgment.

Symbols of the SCOPE paper, for a comparison x and a threshold lambda:

    s(x)          Its uncertainty: the bidirectional preference entropy (BPE), which is the entropy
                  of the preference averaged over both orders; section 2.2. `core/preference.py`
                  computes it in nats.
    S(x, lambda)  1 if s(x) <= lambda, so that the judgment is accepted, else 0; section 2.1.
    E(x)          1 if the judgment differs from the label, else 0; section 2.1.

"Eq. scope_condition" is equation 5 of the paper, in section 2.3: sum S (E - alpha) <= -1.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.core.assessment import share_interval
from app.core.comparison import Guarantee
from app.core.preference import LN2, FloatArray
from scope_judge.records import Threshold

# Largest denominator of a label noise. The integers below stay exact for up to 1e9 points.
_NOISE_DENOMINATOR = 10**6


@dataclass(frozen=True, slots=True, eq=False)
class ThresholdCurve:
    """Every lambda_hat(alpha) of one calibration set (SCOPE, section 2.3, eq. 5, scope_condition).

    Eq. scope_condition, sum S (E - alpha) <= -1, holds at the j-th distinct score exactly when
    (e_j + 1) / k_j <= alpha, where k_j is the number of points at or below that score and e_j is
    the number of errors among those points. The running minimum from the right is the smallest
    alpha whose threshold reaches the j-th score.

    Args:
        scores: Shape (m,). Distinct uncertainties, ascending, in nats.
        accepted: Shape (m,). Number of points at or below each score.
        errors: Shape (m,). Number of observed errors among the accepted points.
        risk_levels: Shape (m,). Smallest alpha that accepts the score; non-decreasing.
        label_noise: Share of flipped labels that the curve corrects for, in [0, 0.5).
    """

    scores: FloatArray
    accepted: NDArray[np.int64]
    errors: NDArray[np.int64]
    risk_levels: FloatArray
    label_noise: float

    @classmethod
    def fit(
        cls, uncertainty: ArrayLike, error: ArrayLike, label_noise: float = 0.0
    ) -> "ThresholdCurve":
        """Fits the curve with one sort and two passes.

        Args:
            uncertainty: Shape (n,). s(x) of each calibration point, in nats; n may be 0.
            error: Shape (n,). True where the judge disagrees with the label.
            label_noise: Probability in [0, 0.5) that a label was flipped, independently of the
                score. The observed error rate among the accepted is eps + (1 - 2 eps) FDR, so the
                curve is that of (observed - eps) / (1 - 2 eps) (docs/design/guarantees.md, section
                4).

        Raises:
            ValueError: Shapes differ, a score is NaN, or label_noise is outside [0, 0.5).
        """
        scores, accepted, errors = accepted_and_errors(uncertainty, error)
        # Compare (e + 1) / k with alpha, not e - alpha k with -1: the latter is wrong in floating
        # point (e = 28, k = 100, alpha = 0.29). The noise is a ratio of integers for the same
        # reason, so that each score has a single, correctly rounded division.
        noise = exact_noise(label_noise)
        p, q = noise.numerator, noise.denominator
        risks = ((errors + 1) * q - p * accepted) / (accepted * (q - 2 * p))
        risk_levels = np.minimum.accumulate(risks[::-1])[::-1]
        return cls(scores, accepted, errors, np.maximum(risk_levels, 0.0), label_noise)

    @property
    def n(self) -> int:
        """Number of calibration points."""
        return int(self.accepted[-1]) if len(self.accepted) else 0

    @overload
    def threshold(self, alpha: float) -> float: ...
    @overload
    def threshold(self, alpha: FloatArray) -> FloatArray: ...
    def threshold(self, alpha: float | FloatArray) -> float | FloatArray:
        """lambda_hat: the largest score whose acceptance is feasible at alpha.

        Args:
            alpha: In (0, 1), a number or shape (m,).

        Returns:
            In nats, of alpha's shape; -inf if no score is feasible, ln 2 (the largest entropy) if
            every score is.
        """
        feasible = np.searchsorted(self.risk_levels, alpha, side="right")
        last = self.scores[np.maximum(feasible, 1) - 1] if len(self.scores) else -np.inf
        thresholds = np.where(
            feasible == 0, -np.inf, np.where(feasible == len(self.scores), LN2, last)
        )
        return float(thresholds) if np.ndim(thresholds) == 0 else thresholds

    @overload
    def risk_level(self, uncertainty: float) -> float: ...
    @overload
    def risk_level(self, uncertainty: FloatArray) -> FloatArray: ...
    def risk_level(self, uncertainty: float | FloatArray) -> float | FloatArray:
        """The smallest alpha that accepts a judgment with this uncertainty.

        Args:
            uncertainty: In nats, a number or shape (m,).

        Returns:
            Array of the same shape, or a number, within [0, 1); inf if no alpha below 1 accepts
            the judgment.
        """
        if isinstance(uncertainty, float):
            # Single judgments take this path: it costs a tenth of the array path below.
            place = bisect_left(self.scores, uncertainty)
            level = float(self.risk_levels[min(place, len(self.scores) - 1)]) if self.n else 1.0
            return level if level < 1.0 else np.inf
        if not len(self.scores):
            smallest = np.full(np.shape(uncertainty), np.inf)
        else:
            rank = np.searchsorted(self.scores, uncertainty, side="left")
            levels = self.risk_levels[np.minimum(rank, len(self.scores) - 1)]
            smallest = np.where(levels < 1.0, levels, np.inf)
        return float(smallest) if np.ndim(smallest) == 0 else smallest

    def accepted_at(self, threshold: float, *, undecided: int = 0) -> tuple[int, int]:
        """Number of calibration points accepted at a threshold in nats, and of errors among them.

        Args:
            undecided: Number of points without a preference. The threshold counts them as errors at
                ln 2, but they are never accepted, even if all other points are.
        """
        rank = int(np.searchsorted(self.scores, threshold, side="right"))
        if rank == 0:
            return 0, 0
        never = undecided if self.scores[rank - 1] >= LN2 else 0
        return int(self.accepted[rank - 1]) - never, int(self.errors[rank - 1]) - never


def accepted_and_errors(
    uncertainty: ArrayLike, error: ArrayLike
) -> tuple[FloatArray, NDArray[np.int64], NDArray[np.int64]]:
    """Counts, for each distinct score, the points at or below it and the errors among them.

    Only the last point of a block of tied scores is a candidate threshold.

    Args:
        uncertainty: Shape (n,), in nats.
        error: Shape (n,), bool.

    Returns:
        Shape (m,) each: distinct ascending scores, numbers of points, and numbers of errors.

    Raises:
        ValueError: Shapes differ or a score is NaN.
    """
    score = np.asarray(uncertainty, dtype=np.float64)
    wrong = np.asarray(error, dtype=bool)
    if score.ndim != 1 or score.shape != wrong.shape:
        raise ValueError(f"uncertainty {score.shape} and error {wrong.shape} need one shape (n,)")
    if np.isnan(score).any():
        raise ValueError("uncertainty holds NaN")
    # The order within ties does not matter: only the counts at the end of a tied block are kept.
    order = np.argsort(score)
    score, cumulative = score[order], np.cumsum(wrong[order], dtype=np.int64)
    index = np.flatnonzero(np.append(score[1:] != score[:-1], True)[: len(score)])
    return score[index], index + 1, cumulative[index]


def exact_noise(label_noise: float) -> Fraction:
    """The label noise as the exact decimal that Python prints, rounded to a denominator of 1e6.

    Raises:
        ValueError: The label noise is outside [0, 0.5).
    """
    if not 0.0 <= label_noise < 0.5:
        raise ValueError(f"label_noise must be in [0, 0.5), got {label_noise}")
    noise = Fraction(repr(float(label_noise))).limit_denominator(_NOISE_DENOMINATOR)
    # Rounding must not reach 1/2: at 1/2 the labels carry no information.
    return min(noise, Fraction(_NOISE_DENOMINATOR // 2 - 1, _NOISE_DENOMINATOR))


def row_of(
    threshold: float,
    *,
    alpha: float,
    guarantee: Guarantee,
    delta: float | None,
    accepted: int,
    errors: int,
    n: int,
) -> Threshold:
    """The row of a threshold in nats, which accepts so many of n pairs with such errors."""
    feasible = threshold > -math.inf
    return Threshold(
        alpha=alpha,
        guarantee=guarantee,
        delta=delta,
        threshold=threshold if feasible else None,
        coverage=accepted / n if n else 0.0,
        empirical_risk=errors / accepted if accepted else None,
        feasible=feasible,
        labels_missing=False,
        tie_share=None,
        tie_interval=None,
    )


def with_ties(row: Threshold, *, ties: int, sided: int) -> Threshold:
    """Adds the share of ties among the pairs with a label that the threshold accepts."""
    labeled = ties + sided
    if not labeled:
        return row
    share = ties / labeled
    return replace(row, tie_share=share, tie_interval=share_interval(share, labeled))
