"""The error of accepted verdicts after the first day: alarm, certificate and interval from labels.

The labels are those of accepted judgments that were drawn at random, in the order of the draws.
All three figures are right at every time, so they may be looked at after each label
(docs/design/guarantees.md, section 6).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import betaln, xlog1py, xlogy

from app.core.betting import finite, first_at, restart_log_weights, restarted_log_wealth
from app.core.comparison import Criterion
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


@dataclass(frozen=True, kw_only=True, slots=True)
class MonitorFigures:
    """The state of the monitor after all labels.

    Args:
        audited: Number of labels.
        errors: Number of errors that they show.
        closed: Number of draws that were closed without a label.
        error_interval: Confidence interval of the true error, (low, high) within [0, 1]: it covers
            a constant error at all times at once with probability 1 - delta.
        evidence: Wealth of the bets that the error is above alpha, at most 1e300.
        alarm: Whether the evidence was at least 1 / delta after any label.
        alarm_at: Number of the label or closed draw, from 1, at which it was first; None without an
            alarm.
        certificate: Wealth of the bets that the error is below alpha, at most 1e300.
        certified: Whether the certificate was at least 1 / delta after any label, and there is no
            alarm.
        certified_at: Number of the label or closed draw, from 1, at which it was first; None if not
            certified.
    """

    audited: int
    errors: int
    closed: int
    error_interval: tuple[float, float]
    evidence: float
    alarm: bool
    alarm_at: int | None
    certificate: float
    certified: bool
    certified_at: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class MonitoredKey:
    """The audits of one criterion that one key asked for.

    Args:
        key: Name of the key that was the first to ask for the judgments; None for draws of earlier
            releases.
        audited: Number of its labels among those that count.
        errors: Number of errors that they show.
        evidence: Wealth of the bets that the error of its judgments is above alpha.
        open: Number of its accepted draws that have no label and are not closed.
    """

    key: str | None
    audited: int
    errors: int
    evidence: float
    open: int


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenDraw:
    """An accepted draw that waits for its label.

    Args:
        id: Id of the draw.
        key: Name of the key that asked for the judgment; None in draws of earlier releases.
        at: Time of the judgment, in seconds since 1970.
    """

    id: str
    key: str | None
    at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedSpan:
    """The times of the first and of the last judgment that led to an alarm, in seconds since 1970.

    Both are None for alarms of earlier releases.
    """

    first_judged_at: float | None = None
    last_judged_at: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ringing:
    """When an active alarm rang.

    Args:
        at: Time of the alarm, in seconds since 1970.
        version: Number of the version that rang.
        span: The judgments that led to it.
    """

    at: float
    version: int
    span: JudgedSpan


@dataclass(frozen=True, kw_only=True, slots=True)
class MonitoredCriterion:
    """The audits of one criterion under one version of its set.

    Args:
        criterion: The criterion, which has an alpha.
        figures: Evidence, certificate and error from the labels that count, without ties.
        label_noise: Label noise of the version.
        bound: Largest share of labels that differ from the verdicts, if the error is alpha: the
            label noise adds to alpha.
        ties: Number of labels "tie" among those that count.
        waiting: Number of labels and closed draws that wait for an earlier draw.
        open: Number of accepted draws that have no label and are not closed.
        expired: Number of accepted draws that got no label in time.
        abstentions: Number of drawn abstentions, which have no part in the error.
        keys: The same by the keys that asked; those with the most errors come first.
        further_keys: Number of keys that are not in `keys`.
        oldest: The first open draw, for which the waiting labels wait; None without an open draw.
        alarm_span: The judgments whose labels let the figures ring; None without an alarm in them.
        rang: The active alarm. It may have rung under an earlier version, and figures of
            corrected labels may have no alarm any more.
    """

    criterion: Criterion
    figures: MonitorFigures
    label_noise: float
    bound: float
    ties: int
    waiting: int
    open: int
    expired: int
    abstentions: int
    keys: tuple[MonitoredKey, ...]
    further_keys: int
    oldest: OpenDraw | None = None
    alarm_span: JudgedSpan | None = None
    rang: Ringing | None = None

    @property
    def alarm(self) -> bool:
        """Whether the figures have an alarm, or an alarm is active."""
        return self.figures.alarm or self.rang is not None


def monitor(
    errors: ArrayLike,
    *,
    alpha: float,
    closed: ArrayLike | None = None,
    label_noise: float = 0.0,
    delta: float = MONITOR_DELTA,
) -> MonitorFigures:
    """Tests at all times whether the error of accepted verdicts is still at most alpha.

    If the error is at most alpha all along, there is ever an alarm with probability at most delta.
    If it is at least alpha all along, there is ever a certificate with probability at most delta.

    A closed draw counts as right for the alarm, as an error for the certificate, and as both for
    the interval: right at its lower end, an error at its upper end. So the promises hold whatever
    is closed, even if somebody chooses by the labels that the draws would have had:

    - Alarm: compare each bet with the same bet on the true labels, where a tie has the factor 1.
      That wealth is the one of Ville's inequality: the factor has a mean of at most 1 given the
      draws before. A closed draw multiplies the wealth by the factor of a right verdict, which is
      the smallest of the three. So the wealth is never above that of the true labels, and reaches
      1 / delta no more often.
    - Certificate: the same with an error, whose factor is the smallest of the three here.
    - Interval: both ends rise with the number of errors among n labels. The lower end is the
      smaller root of f(errors, p) = 0, where f is `surplus` below and falls in p. There,
      f(errors + 1, p) - f(errors, p) = ln((errors + 1/2) / (n - errors - 1/2)) - ln(p / (1 - p)),
      which is positive because p is at most errors / n, so the root moves up; the upper end is its
      mirror image. So the interval includes that of the true labels.

    Args:
        errors: Shape (n,). True where verdict and label differ, in the order of the draws; n may
            be 0.
        alpha: In (0, 1).
        closed: Shape (n,). True for a draw without a label, whose entry of `errors` is ignored;
            None if all of them have a label.
        label_noise: In [0, 0.5); labels flipped independently of the score. One version of a set
            has one label noise.
        delta: In (0, 1).

    Raises:
        ValueError: An argument is out of range, or errors and closed have no common shape (n,).
    """
    if not (0.0 < alpha < 1.0 and 0.0 < delta < 1.0):
        raise ValueError(f"alpha and delta must be in (0, 1), got {alpha} and {delta}")
    wrong = np.asarray(errors, dtype=bool)
    missing = np.zeros_like(wrong) if closed is None else np.asarray(closed, dtype=bool)
    if wrong.ndim != 1 or missing.shape != wrong.shape:
        raise ValueError(f"errors {wrong.shape} and closed {missing.shape} need one shape (n,)")
    fewest, most = wrong & ~missing, wrong | missing
    bound, n = observed_error(alpha, label_noise), len(wrong)
    evidence = _log_evidence(fewest, bound)
    certificate = _log_certificate(most, bound)
    alarm_at, certified_at = first_at(evidence, 1 / delta), first_at(certificate, 1 / delta)
    low, _ = error_interval(int(fewest.sum()), n, label_noise=label_noise, delta=delta)
    _, high = error_interval(int(most.sum()), n, label_noise=label_noise, delta=delta)
    return MonitorFigures(
        audited=n - int(missing.sum()),
        errors=int(fewest.sum()),
        closed=int(missing.sum()),
        error_interval=(low, high),
        evidence=finite(float(evidence[-1])) if n else 0.0,
        alarm=alarm_at is not None,
        alarm_at=alarm_at,
        certificate=finite(float(certificate[-1])) if n else 1.0,
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
    low, high = (min(max((bound - noise) / share, 0.0), 1.0) for bound in (low, high))
    return low, high


@dataclass(frozen=True, kw_only=True, slots=True)
class _Bet:
    """A bet on one error rate: the log of its factor after an error and after a right verdict.

    The factors are the likelihoods of the label under that rate, over those under the bound:
    1 + lambda (E - bound) with lambda = (rate - bound) / (bound (1 - bound)).
    """

    wrong: float
    right: float

    @classmethod
    def on(cls, ratio: float, bound: float) -> "_Bet":
        """Makes the bet on a rate of `ratio` times the bound."""
        return cls(wrong=math.log(ratio), right=math.log1p(-ratio * bound) - math.log1p(-bound))

    def log_factors(self, wrong: NDArray[np.bool_]) -> FloatArray:
        """Logs of the factors, of shape (n,)."""
        return np.where(wrong, self.wrong, self.right)


def _log_evidence(wrong: NDArray[np.bool_], bound: float) -> FloatArray:
    """Log of the wealth after each label, of bets on a larger error that begin at every label."""
    bets = [_Bet.on(ratio, bound) for ratio in _ALARM_BETS if ratio * bound < _LARGEST_RATE]
    if not bets:
        # The rate in the middle between the bound and 1.
        bets = [_Bet(wrong=math.log((1.0 + bound) / (2.0 * bound)), right=-LN2)]
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
