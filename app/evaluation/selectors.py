"""Every selection rule that the paper compares: labelled scores in, a threshold in nats out."""

import math
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.core.pac import allowable_errors, pac_threshold
from app.core.preference import LN2, FloatArray, binary_entropy
from app.core.thresholds import ThresholdCurve, accepted_and_errors

SelectorName = Literal["vanilla", "heuristic", "naive", "scope", "trust_or_escalate", "pac"]

# Confidences are decimals: 1 - 0.8 is not 0.2 in floating point, and a vote share of 0.8 must pass
# at alpha = 0.2. The entropy then is off by 1e-16, and no two levels are as close as this.
_SAME_LEVEL = 1.0 + 1e-12
# Of the code of Jung et al.: so that with delta 0.1 no alpha below 0.074 accepts anything; from the
# definition's single most confident point on, none below 0.9 would.
_FEWEST = 30


class Selector(Protocol):
    """A rule that chooses which judgments to accept: those at or below its threshold."""

    def __call__(
        self, uncertainty: ArrayLike, error: ArrayLike, *, alpha: float, delta: float
    ) -> float:
        """Chooses from calibration points; their order does not matter.

        Args:
            uncertainty: Shape (n,). s(x) of each calibration point, in nats; n may be 0.
            error: Shape (n,). True where the judge disagrees with the label or has no preference.
            alpha: In (0, 1).
            delta: In (0, 1). Only `trust_or_escalate` and `pac` look at it.

        Returns:
            In nats: -inf accepts nothing, ln 2 everything.
        """
        ...


def vanilla(uncertainty: ArrayLike, error: ArrayLike, *, alpha: float, delta: float) -> float:
    """Accepts everything, whatever the points (SCOPE, selective prediction baselines)."""
    return LN2


def heuristic(uncertainty: ArrayLike, error: ArrayLike, *, alpha: float, delta: float) -> float:
    """Accepts a confidence of 1 - alpha or more and looks at no point (SCOPE, the same section).

    The paper says "uncertainty score exceeds 1 - alpha", where only confidence can be meant.
    """
    if alpha >= 0.5:
        return LN2
    entropy = binary_entropy(np.array([alpha]), np.array([1.0 - alpha]))
    return min(float(entropy[0]) * _SAME_LEVEL, LN2)


def naive(uncertainty: ArrayLike, error: ArrayLike, *, alpha: float, delta: float) -> float:
    """Accepts up to the largest score with an empirical risk of at most alpha, uncorrected."""
    scores, accepted, errors = accepted_and_errors(uncertainty, error)
    return _last(scores, np.flatnonzero(errors / accepted <= alpha))


def scope(
    uncertainty: ArrayLike,
    error: ArrayLike,
    *,
    alpha: float,
    delta: float,
    label_noise: float = 0.0,
) -> float:
    """Gives lambda_hat: the largest score with (errors + 1) / accepted <= alpha.

    SCOPE, eq. scope_condition. `label_noise` is the share of flipped labels, in [0, 0.5), that is
    corrected for; the paper corrects for none (docs/design/guarantees.md, section 4).
    """
    return ThresholdCurve.fit(uncertainty, error, label_noise).threshold(alpha)


def trust_or_escalate(
    uncertainty: ArrayLike,
    error: ArrayLike,
    *,
    alpha: float,
    delta: float,
    fewest: int = _FEWEST,
) -> float:
    """Gives the last score, from the most confident upwards, before the bound exceeds alpha.

    The rule of Jung et al. (2025), section 2: fixed-sequence testing of Clopper-Pearson bounds,
    lambda_hat = inf {lambda: R+(lambda') <= alpha for all lambda' >= lambda}, where R+(lambda) is
    sup {R: P[Bin(n(lambda), R) <= n(lambda) R_hat(lambda)] >= delta}, lambda a confidence. The
    first test needs `fewest` points.

    Deviation: the authors' code tests 5,000 evenly spaced lambdas, this every distinct score, which
    is what a finer grid comes to. Where the first test fails theirs accepts its block nevertheless,
    unproven; this accepts nothing.
    """
    scores, accepted, errors = accepted_and_errors(uncertainty, error)
    if not len(scores):
        return -math.inf
    first = int(np.searchsorted(accepted, fewest, side="left"))
    allowable = _allowable(int(accepted[-1]), alpha, delta)[accepted[first:]]
    failed = np.flatnonzero(errors[first:] > allowable)
    passed = int(failed[0]) if len(failed) else len(allowable)
    return _last(scores, np.arange(first, first + passed))


def pac(
    uncertainty: ArrayLike,
    error: ArrayLike,
    *,
    alpha: float,
    delta: float,
    label_noise: float = 0.0,
) -> float:
    """Ours: the same promise as Trust-or-Escalate's, started where the test has power.

    docs/design/guarantees.md, section 3; `label_noise` as for `scope`.
    """
    return pac_threshold(uncertainty, error, alpha=alpha, delta=delta, label_noise=label_noise)


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


def _last(scores: FloatArray, feasible: NDArray[np.int64]) -> float:
    """The largest feasible score; -inf where there is none, ln 2 where it is the largest of all."""
    if not len(feasible):
        return -math.inf
    return LN2 if feasible[-1] == len(scores) - 1 else float(scores[feasible[-1]])


@lru_cache(maxsize=256)
def _allowable(n: int, alpha: float, delta: float) -> FloatArray:
    """Shape (n + 1,). Errors among k points up to which R+ is at most alpha; -1 where not even 0.

    R+ <= alpha exactly where P[Bin(k, alpha) <= e] <= delta: the test needs no root finding.
    """
    allowable = np.append(-1.0, allowable_errors(np.arange(1, n + 1), alpha, delta))
    allowable.setflags(write=False)
    return allowable
