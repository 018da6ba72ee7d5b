"""The error of accepted verdicts after the first day: alarm, certificate and interval from labels.

The labels are those of accepted judgments that were drawn at random, in the order of the draws.
All three figures are right at every time, so they may be looked at after each label
(docs/design/guarantees.md, section 6).
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import betaln, xlog1py, xlogy

from app.core.betting import finite, first_at, restart_log_weights, restarted_log_wealth
from app.core.pac import observed_error
from app.core.preference import LN2, FloatArray
from app.core.thresholds import exact_noise

# False alarms of one version of a set and one criterion, over all time.
MONITOR_DELTA = 0.05
# Each bet is on one error rate, as a multiple of the bound. Small multiples find small changes.
_ALARM_BETS = (1.2, 1.4, 1.7, 2.0, 2.5, 3.0, 4.0)
_CERTIFICATE_BETS = (0.5, 0.7, 0.8, 0.9)
# A bet on almost only errors loses everything with the first right verdict.
_LARGEST_RATE = 0.95
# Jeffreys' prior.
_PRIOR = 0.5
_LARGEST_SURPLUS = 1e6


class MonitorFigures(NamedTuple):
    """The state of the monitor after all labels.

    Args:
        labelled: Number of labels.
        errors: Number of errors that they show.
        interval: Confidence interval of the true error, (low, high) within [0, 1]: it covers a
            constant error at all times at once with probability 1 - delta.
        evidence: Wealth of the bets that the error is above alpha, at most 1e300.
        alarm: Whether the evidence was at least 1 / delta after any label.
        alarm_at: Number of the label, from 1, at which it was first; None without an alarm.
        certificate: Wealth of the bets that the error is below alpha, at most 1e300.
        certified: Whether the certificate was at least 1 / delta after any label, and there is no
            alarm.
        certified_at: Number of the label, from 1, at which it was first; None if not certified.
    """

    labelled: int
    errors: int
    interval: tuple[float, float]
    evidence: float
    alarm: bool
    alarm_at: int | None
    certificate: float
    certified: bool
    certified_at: int | None


def monitor(
    errors: ArrayLike, *, alpha: float, label_noise: float = 0.0, delta: float = MONITOR_DELTA
) -> MonitorFigures:
    """Tests at all times whether the error of accepted verdicts is still at most alpha.

    If the error is at most alpha all along, there is ever an alarm with probability at most delta.
    If it is at least alpha all along, there is ever a certificate with probability at most delta.

    Args:
        errors: Shape (n,). True where verdict and label differ, in the order of the draws; n may
            be 0.
        alpha: In (0, 1).
        label_noise: In [0, 0.5); labels flipped independently of the score. One version of a set
            has one label noise.
        delta: In (0, 1).

    Raises:
        ValueError: An argument is out of range, or errors has no shape (n,).
    """
    if not (0.0 < alpha < 1.0 and 0.0 < delta < 1.0):
        raise ValueError(f"alpha and delta must be in (0, 1), got {alpha} and {delta}")
    wrong = np.asarray(errors, dtype=bool)
    if wrong.ndim != 1:
        raise ValueError(f"errors {wrong.shape} needs a shape (n,)")
    bound, count = observed_error(alpha, label_noise), int(wrong.sum())
    evidence = _log_evidence(wrong, bound)
    certificate = _log_certificate(wrong, bound)
    alarm_at, certified_at = first_at(evidence, 1 / delta), first_at(certificate, 1 / delta)
    return MonitorFigures(
        labelled=len(wrong),
        errors=count,
        interval=error_interval(count, len(wrong), label_noise=label_noise, delta=delta),
        evidence=finite(float(evidence[-1])) if len(wrong) else 0.0,
        alarm=alarm_at is not None,
        alarm_at=alarm_at,
        certificate=finite(float(certificate[-1])) if len(wrong) else 1.0,
        certified=certified_at is not None and alarm_at is None,
        certified_at=certified_at if alarm_at is None else None,
    )


def error_interval(
    errors: int, labelled: int, *, label_noise: float = 0.0, delta: float = MONITOR_DELTA
) -> tuple[float, float]:
    """Returns a confidence interval of the true error that may be looked at after each label.

    It holds the rates p whose bets have not reached 1 / delta: the wealth is the likelihood under
    a beta-binomial mixture with Jeffreys' prior, over that under p. With probability 1 - delta the
    intervals of all times hold a constant error at once. If the error changes, the interval of a
    time fixed in advance holds the mean error until then with probability 1 - delta.

    Args:
        errors: Number of errors that the labels show.
        labelled: Number of labels; may be 0.
        label_noise: In [0, 0.5).
        delta: In (0, 1).

    Returns:
        (low, high) within [0, 1].
    """
    right = labelled - errors
    mixture = betaln(_PRIOR + errors, _PRIOR + right) - betaln(_PRIOR, _PRIOR)

    def surplus(rate: float) -> float:
        """The log of the wealth against this rate, minus that of an exclusion."""
        log_wealth = float(mixture - xlogy(errors, rate) - xlog1py(right, -rate))
        # The search needs a finite number where the labels exclude the rate.
        return min(log_wealth + math.log(delta), _LARGEST_SURPLUS)

    # The wealth is convex in the rate, and at most 1 at the observed rate.
    seen = errors / labelled if labelled else 0.5
    low = float(brentq(surplus, 0.0, seen)) if errors else 0.0
    high = float(brentq(surplus, seen, 1.0)) if right else 1.0
    noise = float(exact_noise(label_noise))
    share = 1.0 - 2.0 * noise
    low, high = (min(max((each - noise) / share, 0.0), 1.0) for each in (low, high))
    return low, high


class _Bet(NamedTuple):
    """A bet on one error rate: the log of its factor after an error and after a right verdict.

    The factors are the likelihoods of the label under that rate, over those under the bound:
    1 + lambda (E - bound) with lambda = (rate - bound) / (bound (1 - bound)).
    """

    wrong: float
    right: float

    @classmethod
    def on(cls, ratio: float, bound: float) -> "_Bet":
        """Makes the bet on a rate of `ratio` times the bound."""
        return cls(math.log(ratio), math.log1p(-ratio * bound) - math.log1p(-bound))

    def log_factors(self, wrong: NDArray[np.bool_]) -> FloatArray:
        """Logs of the factors, of shape (n,)."""
        return np.where(wrong, self.wrong, self.right)


def _log_evidence(wrong: NDArray[np.bool_], bound: float) -> FloatArray:
    """Log of the wealth after each label, of bets on a larger error that begin at every label."""
    bets = [_Bet.on(ratio, bound) for ratio in _ALARM_BETS if ratio * bound < _LARGEST_RATE]
    if not bets:
        # The rate in the middle between the bound and 1.
        bets = [_Bet(math.log((1.0 + bound) / (2.0 * bound)), -LN2)]
    weights = restart_log_weights(1, len(wrong))
    wealth = np.full(len(wrong), -math.inf)
    # One bet at a time: a million labels need 8 MB.
    for bet in bets:
        wealth = np.logaddexp(wealth, restarted_log_wealth(bet.log_factors(wrong), weights))
    return wealth - math.log(len(bets))


def _log_certificate(wrong: NDArray[np.bool_], bound: float) -> FloatArray:
    """Log of the wealth after each label, of bets on a smaller error that begin at the first."""
    wealth = np.full(len(wrong), -math.inf)
    for ratio in _CERTIFICATE_BETS:
        factors = _Bet.on(ratio, bound).log_factors(wrong)
        wealth = np.logaddexp(wealth, np.cumsum(factors))
    return wealth - math.log(len(_CERTIFICATE_BETS))
