"""The selection rules that the paper compares: calibration points in, a threshold in nats out."""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.core.binomial import most_successes
from app.core.pac import pac_threshold
from app.core.preference import LN2, FloatArray, binary_entropy
from app.core.thresholds import ThresholdCurve, accepted_and_errors

SelectorName = Literal["vanilla", "heuristic", "naive", "scope", "trust_or_escalate", "pac"]

BoolArray = NDArray[np.bool_]
IndexArray = NDArray[np.int64]

# Confidences are decimals: 1 - 0.8 is not 0.2 in floating point, and a vote share of 0.8 must pass
# at alpha = 0.2. The entropy is then off by 1e-16; no two levels are that close.
_SAME_LEVEL = 1.0 + 1e-12
# Points below the first tested threshold, as in the code of Jung et al. With delta 0.1 the rule
# then accepts nothing at an alpha below 0.074. The definition starts at the single most confident
# point, and would accept nothing at an alpha below 0.9.
_FEWEST = 30


class Points(NamedTuple):
    """Labeled pairs as a rule sees them.

    Args:
        uncertainty: Shape (n,). s(x) in nats; n may be 0.
        error: Shape (n,). True where the judge disagrees with the label or has no preference.
    """

    uncertainty: FloatArray
    error: BoolArray

    @classmethod
    def of(cls, uncertainty: ArrayLike, error: ArrayLike) -> "Points":
        """Sorts the points by uncertainty, and tied points by error.

        Sorting once makes every split sorted, and makes the result independent of the input order.
        """
        score, wrong = np.asarray(uncertainty, dtype=np.float64), np.asarray(error, dtype=bool)
        order = np.lexsort((wrong, score))
        return cls(score[order], wrong[order])

    def at(self, places: IndexArray) -> "Points":
        """The points at some places, in the order of all points."""
        picked = np.zeros(len(self.error), dtype=bool)
        picked[places] = True
        return Points(self.uncertainty[picked], self.error[picked])


class RiskTarget(NamedTuple):
    """The risk that a rule must keep.

    Args:
        alpha: Largest share of errors among the accepted, in (0, 1).
        delta: Probability with which a calibration of `trust_or_escalate` or `pac` may miss alpha.
    """

    alpha: float
    delta: float


# A rule chooses a threshold in nats; judgments at or below it are accepted. -inf accepts nothing,
# ln 2 accepts everything. The order of the points does not matter.
Selector = Callable[[Points, RiskTarget], float]


def vanilla(points: Points, target: RiskTarget) -> float:
    """Accepts everything (SCOPE, selective prediction baselines)."""
    return LN2


def heuristic(points: Points, target: RiskTarget) -> float:
    """Accepts a confidence of at least 1 - alpha (SCOPE, selective prediction baselines).

    The rule ignores the points. The paper says "uncertainty score exceeds 1 - alpha", which can
    only mean the confidence.
    """
    alpha = target.alpha
    if alpha >= 0.5:
        return LN2
    entropy = binary_entropy(np.array([alpha]), np.array([1.0 - alpha]))
    return min(float(entropy[0]) * _SAME_LEVEL, LN2)


def naive(points: Points, target: RiskTarget) -> float:
    """Accepts up to the largest score with an empirical risk of at most alpha (SCOPE)."""
    scores, accepted, errors = accepted_and_errors(*points)
    return _largest(scores, np.flatnonzero(errors / accepted <= target.alpha))


def scope(points: Points, target: RiskTarget, *, label_noise: float = 0.0) -> float:
    """lambda_hat: the largest score with (errors + 1) / accepted <= alpha.

    SCOPE, section 2.3, eq. 5 (scope_condition).

    Args:
        points: Calibration points.
        target: Supplies alpha.
        label_noise: Share of flipped labels to correct for, in [0, 0.5). The paper corrects for
            none (docs/design/guarantees.md, section 4).
    """
    return ThresholdCurve.fit(*points, label_noise).threshold(target.alpha)


def trust_or_escalate(points: Points, target: RiskTarget) -> float:
    """The last score, from the most confident upwards, before the error bound exceeds alpha.

    The rule of Jung et al. (2025), section 2: fixed-sequence testing of Clopper-Pearson bounds,
    lambda_hat = inf {lambda: R+(lambda') <= alpha for all lambda' >= lambda}, where R+(lambda) is
    sup {R: P[Bin(n(lambda), R) <= n(lambda) R_hat(lambda)] >= delta} and lambda is a confidence.

    Deviation: the authors' code tests 5,000 evenly spaced lambdas. This function tests every
    distinct score, the limit of a finer grid. If the first test fails, their code still accepts its
    block without proof; this function accepts nothing.
    """
    scores, accepted, errors = accepted_and_errors(*points)
    if not len(scores):
        return -math.inf
    first = int(np.searchsorted(accepted, _FEWEST, side="left"))
    allowable = _allowable(int(accepted[-1]), *target)[accepted[first:]]
    failed = np.flatnonzero(errors[first:] > allowable)
    passed = int(failed[0]) if len(failed) else len(allowable)
    return _largest(scores, np.arange(first, first + passed))


def pac(points: Points, target: RiskTarget, *, label_noise: float = 0.0) -> float:
    """The guarantee of Trust-or-Escalate, with a start rank at which the test has power.

    docs/design/guarantees.md, section 3. `label_noise` is as in `scope`.
    """
    return pac_threshold(*points, alpha=target.alpha, delta=target.delta, label_noise=label_noise)


SELECTORS: Mapping[SelectorName, Selector] = MappingProxyType(
    {
        "vanilla": vanilla,
        "heuristic": heuristic,
        "naive": naive,
        "scope": scope,
        "trust_or_escalate": trust_or_escalate,
        "pac": pac,
    }
)


def _largest(scores: FloatArray, feasible: IndexArray) -> float:
    """The largest feasible score; -inf if none is feasible, ln 2 if the last score is."""
    if not len(feasible):
        return -math.inf
    return LN2 if feasible[-1] == len(scores) - 1 else float(scores[feasible[-1]])


@lru_cache(maxsize=256)
def _allowable(n: int, alpha: float, delta: float) -> FloatArray:
    """Largest number of errors among k points with R+ <= alpha, for k from 0 to n.

    R+ <= alpha exactly where P[Bin(k, alpha) <= e] <= delta: the test needs no root finding.

    Returns:
        Shape (n + 1,); -1 where even 0 errors are too many.
    """
    allowable = np.append(-1.0, most_successes(delta, np.arange(1, n + 1), alpha))
    allowable.setflags(write=False)
    return allowable
