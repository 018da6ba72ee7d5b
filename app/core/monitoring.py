"""The error of accepted verdicts after the first day: alarm, certificate and interval from labels.

The labels are those of accepted judgments that were drawn at random. Draws of one question succeed
and fail together, so they make one bet, on their mean error. The bets are in the order of the first
draws of their questions. All three figures are right at every time, so they may be looked at after
each label (docs/design/guarantees.md, section 6).

A closed or expired draw counts as right for the alarm, as an error for the certificate, and as
both for the interval: right at its lower end, an error at its upper end. So the promises hold
whatever is closed or left, even if somebody chooses by the labels that the draws would have:

- Alarm: compare each bet with the same bet on the true labels, where ties are left out, and a
  question of ties alone has the factor 1. That wealth is the one of Ville's inequality. A draw
  that counts as right makes the mean error of its question at most as large as the true label
  does, right, wrong or tied. So the wealth is never above that of the true labels, and reaches
  1 / `false_alarms` no more often.
- Certificate: the same with an error, which makes the mean at least as large.
- Interval: the log of `error_interval`'s wealth against a rate p is convex in the sum of the
  mean errors, because a beta function is log-convex, and at most 0 where the mean is p. So a
  rate that is excluded as too small stays so with more errors: the lower end rises with them,
  and the upper end is its mirror image. So the interval includes that of the true labels.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, xlog1py, xlogy

from app.core.betting import (
    finite,
    first_at,
    restart_log_weights,
    restarted_log_wealth,
    share_of,
)
from app.core.binomial import root
from app.core.examples import question_numbers
from app.core.preference import FloatArray

# False alarms of a version of a set, over all time and all its criteria; false certificates of one
# criterion.
MONITOR_DELTA = 0.05
# A question counts once a day, by the draws of the first hour after its first one. Both are fixed
# here and do not depend on labels, so nobody can choose by the labels which draws count.
QUESTION_S, AGAIN_S = 3600.0, 86400.0
# Share of expired draws from which on the service asks for labels. From here on the certificate
# needs twice as many labels (docs/design/guarantees.md, section 6).
MANY_EXPIRED = 0.02
# Number of a draw that belongs to no bet.
LEFT_OUT = -1
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

    `MonitoredCriterion` of the client's records says what each number means; here they are those of
    the draws of one call, so that `alarm` and `certified` know nothing of earlier versions.
    """

    audited: int
    errors: int
    questions: int
    error_interval: tuple[float, float]
    evidence: float
    alarm_evidence: float
    alarm: bool
    alarm_at: int | None
    certificate: float
    certified: bool
    certified_at: int | None


def bets_of(questions: NDArray[np.uint8], at: FloatArray) -> NDArray[np.int64]:
    """Assigns draws to bets: a question counts once a day, by the draws of its first hour.

    Later draws of that day are left out. A draw after the day begins another bet, so that traffic
    whose questions come again and again stays under watch. Labels have no part in this.

    Args:
        questions: Shape (n, 32). Digest of each draw's question, in the order of the log.
        at: Shape (n,). Time of each judgment, in seconds.

    Returns:
        Shape (n,). Number of each bet, from 0 in the order of their first draws, or `LEFT_OUT`.
    """
    numbers, bets = question_numbers(questions), np.full(len(at), LEFT_OUT, dtype=np.int64)
    left, count = np.arange(len(at)), 0
    while len(left):
        _, first, question = np.unique(numbers[left], return_index=True, return_inverse=True)
        since_first = at[left] - at[left[first]][question]
        joins = since_first < QUESTION_S
        bets[left[joins]] = count + question[joins]
        count += len(first)
        left = left[since_first >= AGAIN_S]
    counted = bets != LEFT_OUT
    _, first, bet = np.unique(bets[counted], return_index=True, return_inverse=True)
    bets[counted] = np.argsort(np.argsort(first))[bet]
    return bets


def alarm_delta(place: int) -> float:
    """The probability of a false alarm of a criterion over all time.

    The criteria of a version share 5% in the order in which they came into use, from place 1 on. So
    the alarms of all of them keep 5% together, and none has to be known before.
    """
    return MONITOR_DELTA * share_of(place)


def monitor(
    errors: ArrayLike,
    *,
    alpha: float,
    questions: ArrayLike | None = None,
    unlabeled: ArrayLike | None = None,
    false_alarms: float = MONITOR_DELTA,
) -> MonitorFigures:
    """Tests at all times whether the error of accepted verdicts is still at most alpha.

    The error is that of a random question: the mean error of its draws, in expectation given the
    questions before. If it is at most alpha all along, there is ever an alarm with probability at
    most `false_alarms`. If it is at least alpha all along, there is ever a certificate with
    probability at most `MONITOR_DELTA`.

    A bet's factor 1 + lambda (e - bound) is linear in the mean error e of a question and positive,
    so its mean is at most 1 wherever the mean of e is at most the bound: how the draws of one
    question depend on each other does not matter. The module says what closed and expired draws do.

    Args:
        errors: Shape (n,). True where verdict and label differ, in the order of the draws; n may
            be 0.
        alpha: In (0, 1).
        questions: Shape (n,). Number of each draw's bet; the bets are in the order of their
            numbers. None if each draw has its own question.
        unlabeled: Shape (n,). True for a draw that was closed or has expired, whose entry of
            `errors` is ignored; None without such draws.
        false_alarms: In (0, 1).

    Raises:
        ValueError: An argument is out of range, or the arrays have no common shape (n,).
    """
    if not (0.0 < alpha < 1.0 and 0.0 < false_alarms < 1.0):
        raise ValueError(f"alpha and false_alarms must be in (0, 1): {alpha}, {false_alarms}")
    wrong = np.asarray(errors, dtype=bool)
    missing = np.zeros_like(wrong) if unlabeled is None else np.asarray(unlabeled, dtype=bool)
    numbers = np.arange(wrong.size) if questions is None else np.asarray(questions)
    if wrong.ndim != 1 or not wrong.shape == missing.shape == numbers.shape:
        raise ValueError(f"errors {wrong.shape}, questions and unlabeled need one shape (n,)")
    fewest, most = _means(wrong & ~missing, numbers), _means(wrong | missing, numbers)
    count = len(fewest)
    evidence, certificate = _log_evidence(fewest, alpha), _log_certificate(most, alpha)
    alarm_at = first_at(evidence, 1 / false_alarms)
    certified_at = first_at(certificate, 1 / MONITOR_DELTA) if alarm_at is None else None
    low, _ = error_interval(float(fewest.sum()), count)
    _, high = error_interval(float(most.sum()), count)
    return MonitorFigures(
        audited=len(wrong) - int(missing.sum()),
        errors=int((wrong & ~missing).sum()),
        questions=count,
        error_interval=(low, high),
        evidence=finite(float(evidence[-1])) if count else 0.0,
        alarm_evidence=1 / false_alarms,
        alarm=alarm_at is not None,
        alarm_at=alarm_at,
        certificate=finite(float(certificate[-1])) if count else 1.0,
        certified=certified_at is not None,
        certified_at=certified_at,
    )


def _means(wrong: NDArray[np.bool_], numbers: NDArray[np.int64]) -> FloatArray:
    """Shape (questions,). Mean error of the draws of each question, in the order of the numbers."""
    _, question, draws = np.unique(numbers, return_inverse=True, return_counts=True)
    means: FloatArray = np.bincount(question, weights=wrong, minlength=len(draws)) / draws
    return means


def share_interval(flags: ArrayLike, questions: ArrayLike) -> tuple[float, float]:
    """An interval of the share of flagged draws of a random question; see `error_interval`."""
    means = _means(np.asarray(flags, dtype=bool), np.asarray(questions))
    return error_interval(float(means.sum()), len(means))


def error_interval(
    errors: float, questions: int, *, delta: float = MONITOR_DELTA
) -> tuple[float, float]:
    """A confidence interval of the true error that may be looked at after each label.

    It holds the rates p whose bets have not reached 1 / delta: the wealth is the likelihood under
    a beta-binomial mixture with Jeffreys' prior, over that under p. With probability 1 - delta the
    intervals of all times hold a constant error at once. If the error changes, the interval of a
    time fixed in advance holds the mean error until then with probability 1 - delta.

    The mean error e of a question may be a fraction. For each rate q of the mixture, the factors
    (1 - e) (1 - q) / (1 - p) + e q / p have a mean of 1 where e has the mean p, so their products
    make a martingale, and so does the mixture. By the inequality of the arithmetic and geometric
    means, each factor is at least ((1 - q) / (1 - p))^(1 - e) (q / p)^e, and the mixture of the
    products of these is the beta function here, with fractions for counts. So its wealth is at most
    that of the martingale, and excludes the true error no more often.

    Args:
        errors: Sum of the mean errors of the questions that the labels show.
        questions: Number of questions; may be 0.
        delta: In (0, 1).
    """
    right = questions - errors
    mixture = betaln(_PRIOR + errors, _PRIOR + right) - betaln(_PRIOR, _PRIOR)

    def surplus(rate: float) -> float:
        """The log of the wealth against this rate, minus that of an exclusion."""
        log_wealth = float(mixture - xlogy(errors, rate) - xlog1py(right, -rate))
        # The search needs a finite number where the labels exclude the rate.
        return min(log_wealth + math.log(delta), _LARGEST_SURPLUS)

    # The wealth is convex in the rate, and at most 1 at the observed rate.
    seen = errors / questions if questions else 0.5
    low = root(surplus, 0.0, seen) if errors else 0.0
    high = root(surplus, seen, 1.0) if right else 1.0
    return low, high


@dataclass(frozen=True, kw_only=True, slots=True)
class _Bet:
    """A bet on one error rate: its factor after an error and after a right verdict.

    The factors are the likelihoods of the label under that rate, over those under the bound:
    1 + lambda (e - bound) with lambda = (rate - bound) / (bound (1 - bound)). A question with the
    mean error e lies between them.
    """

    wrong: float
    right: float

    @classmethod
    def on(cls, ratio: float, bound: float) -> "_Bet":
        """Makes the bet on a rate of `ratio` times the bound."""
        return cls(wrong=ratio, right=math.exp(math.log1p(-ratio * bound) - math.log1p(-bound)))

    def log_factors(self, means: FloatArray) -> FloatArray:
        """Logs of the factors, of shape (questions,)."""
        return np.log((1.0 - means) * self.right + means * self.wrong)


def _log_evidence(means: FloatArray, bound: float) -> FloatArray:
    """Log of the wealth after each question, of bets on a larger error that begin at each."""
    bets = [_Bet.on(ratio, bound) for ratio in _ALARM_BETS if ratio * bound < _LARGEST_RATE]
    if not bets:
        # The rate in the middle between the bound and 1.
        bets = [_Bet(wrong=(1.0 + bound) / (2.0 * bound), right=0.5)]
    weights = restart_log_weights(1, len(means))
    wealth = np.full(len(means), -math.inf)
    # One bet at a time: a million questions need 8 MB.
    for bet in bets:
        wealth = np.logaddexp(wealth, restarted_log_wealth(bet.log_factors(means), weights))
    return wealth - math.log(len(bets))


def _log_certificate(means: FloatArray, bound: float) -> FloatArray:
    """Log of the wealth after each question, of bets on a smaller error that begin at the first."""
    wealth = np.full(len(means), -math.inf)
    for ratio in _CERTIFICATE_BETS:
        factors = _Bet.on(ratio, bound).log_factors(means)
        wealth = np.logaddexp(wealth, np.cumsum(factors))
    return wealth - math.log(len(_CERTIFICATE_BETS))
