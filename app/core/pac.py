"""The PAC guarantee: error among accepted is at most alpha with probability 1 - delta.

Fixed-sequence testing comes first, then the rank at which it starts, which depends on no label.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from app.core.binomial import binomial_cdf, most_successes
from app.core.comparison import Criterion, Guarantee
from app.core.examples import MOST_PAIRS
from app.core.preference import LN2, FloatArray
from app.core.thresholds import ThresholdCurve, accepted_and_errors, exact_noise

_STEP_SHARE = 0.01
# A probability that equals delta may be rounded to either side of it.
_CLEARLY_BELOW = 1.0 - 1e-12
# Power is the probability that the test passes if the true error is _ASSUMED_ERROR_SHARE * alpha.
# Trust-or-Escalate starts at the most confident points, where a test has no power.
_ASSUMED_ERROR_SHARE = 0.6
_FAIR_POWER, _GOOD_POWER = 0.5, 0.8
# Good power pays for its later start if that is within this share of the points, and within this
# multiple of alpha: a judge's accepted share falls with alpha. Measured for six judges and alphas
# from 0.02 to 0.4 (docs/design/guarantees.md, section 3).
_LATEST_START_SHARE, _LATEST_START_ALPHAS = 0.5, 2.5
_LARGEST_CHUNK = 1024
# No realistic number of labels distinguishes two error rates that are closer than this.
_SMALLEST_GAP = 1e-12


def pac_threshold(
    uncertainty: ArrayLike,
    error: ArrayLike,
    *,
    alpha: float,
    delta: float,
    label_noise: float = 0.0,
) -> float:
    """The largest threshold that fixed-sequence testing passes (Bauer 1991).

    Tests the ranks of `rank_sequence` in ascending order and stops at the first failure; returns
    the score at the last rank that passed. s_(k) is the k-th smallest score, e_k the number of
    errors up to it. H_k, "the error up to s_(k) exceeds alpha", is rejected if
    P[Bin(k, alpha) <= e_k] <= delta. Ties are tested as one block. A larger alpha can give a
    smaller threshold, because the start rank changes with alpha (docs/design/guarantees.md, section
    3).

    Args:
        uncertainty: Shape (n,). s(x) of each calibration point, in nats.
        error: Shape (n,). True where the judge disagrees with the label.
        alpha, delta: In (0, 1).
        label_noise: In [0, 0.5); labels flipped independently of the score.

    Returns:
        In nats; -inf if no rank passes, ln 2 if the test at rank n passes.

    Raises:
        ValueError: An argument is out of range, shapes differ, or a score is NaN.
    """
    counted = accepted_and_errors(uncertainty, error)
    threshold, _ = pac_tests(*counted, alpha=alpha, delta=delta, label_noise=label_noise)
    assert threshold is not None, "every pair has a label"
    return threshold


def pac_tests(
    scores: FloatArray,
    accepted: NDArray[np.int64],
    errors: NDArray[np.int64],
    *,
    alpha: float,
    delta: float,
    label_noise: float = 0.0,
    labelled: int | None = None,
    drawn: int | None = None,
) -> tuple[float | None, float | None]:
    """Tests the ranks in ascending order, as far as labels reach.

    Fixed-sequence testing looks at no label beyond the first test that fails. So the threshold of
    partly labeled pairs is the one of the same pairs with all labels, for the alpha and delta that
    were chosen in advance.

    Args:
        scores: Shape (m,). Distinct uncertainties, ascending, in nats.
        accepted: Shape (m,). Number of pairs at or below each score, without those that people
            found equal; pairs without a label count.
        errors: Shape (m,). Number of errors among those pairs.
        alpha, delta: In (0, 1).
        label_noise: In [0, 0.5).
        labelled: Number of leading scores up to which all pairs have a label; None for all.
        drawn: Number of pairs that were drawn before labels were seen, which fixes the ranks;
            larger than `accepted[-1]` if people found pairs equal. None if no pair was left out
            since then.

    Returns:
        The threshold in nats: -inf if no rank passes, ln 2 if the test at the last rank passes,
        None while a test that may change it lacks labels. And the score up to which the next test
        needs the labels of all pairs; None once the threshold is known.

    Raises:
        ValueError: An argument is out of range.
    """
    if not (0.0 < alpha < 1.0 and 0.0 < delta < 1.0):
        raise ValueError(f"alpha and delta must be in (0, 1), got {alpha} and {delta}")
    bound = observed_error(alpha, label_noise)
    n = int(accepted[-1]) if len(accepted) else 0
    ranks = ranks_to_test(alpha, delta, n, label_noise=label_noise, drawn=drawn)
    blocks = np.unique(np.searchsorted(accepted, ranks, side="left"))
    ready = blocks[blocks < (len(scores) if labelled is None else labelled)]
    failed = np.flatnonzero(binomial_cdf(errors[ready], accepted[ready], bound) > delta)
    if not len(failed) and len(ready) < len(blocks):
        return None, float(scores[blocks[len(ready)]])
    passed = int(failed[0]) if len(failed) else len(ready)
    if passed == 0:
        return -math.inf, None
    last = ready[passed - 1]
    return LN2 if last == len(scores) - 1 else float(scores[last]), None


def ranks_to_test(
    alpha: float, delta: float, n: int, *, label_noise: float = 0.0, drawn: int | None = None
) -> tuple[int, ...]:
    """The ranks to test of n pairs that are left of those that were drawn.

    Pairs that people found equal are left out. The ranks below n stay, so that no label moves them.
    """
    ranks = rank_sequence(alpha, delta, label_noise, n if drawn is None else drawn)
    if ranks and n < ranks[-1]:
        return (*(rank for rank in ranks if rank < n), n) if ranks[0] <= n else ()
    return ranks


@lru_cache(maxsize=4096)
def rank_sequence(alpha: float, delta: float, label_noise: float, n: int) -> tuple[int, ...]:
    """The ranks to test, in ascending order: the start rank first, n last; empty if n is below it.

    The ranks are fixed before any label is seen, which makes fixed-sequence testing valid. Each
    further rank is the first, at least 1% of n later, at which one more error is allowed. Ranks in
    between allow no more errors and would only add chances to fail.

    Coverage at alpha = delta = 0.1, n = 1000, for (accuracy, AUROC) = (0.807, 0.744),
    (0.766, 0.777), (0.874, 0.809): 0.424, 0.397, 0.890. From rank 91 on, these tests give 0.399,
    0.382, 0.890, and tests at every 1% of n 0.371, 0.361, 0.888 (8,000 calibrations, seed 7).
    """
    start = start_rank(alpha, delta, label_noise, n)
    if start is None:
        return ()
    bound = observed_error(alpha, label_noise)
    step = max(1, round(_STEP_SHARE * n))
    ranks = _walk(start, step, bound, delta, n)
    return (*ranks, n) if ranks[-1] < n else tuple(ranks)


def _walk(start: int, step: int, bound: float, delta: float, n: int) -> list[int]:
    """The start rank, and ranks below n at which one more error becomes allowable.

    Each is the first such rank that is at least `step` after the rank before it.
    """
    ranks = [start]
    window, z = math.ceil(4 / bound), float(ndtri(delta))
    while (low := ranks[-1] + step) < n:
        before = low - 1
        # The normal approximation is less than two errors off.
        errors = max(0, int(before * bound + z * math.sqrt(before * bound * (1 - bound))))
        while errors > 0 and not _is_allowable(errors, before, bound, delta):
            errors -= 1
        while _is_allowable(errors + 1, before, bound, delta):
            errors += 1
        # One more error becomes allowable every 1 / bound ranks.
        later = range(low, min(low + window, n))
        place = bisect_left(
            later, True, key=partial(_is_allowable, errors + 1, bound=bound, delta=delta)
        )
        if place == len(later):
            break
        ranks.append(later[place])
    return ranks


def _is_allowable(errors: int, rank: int, bound: float, delta: float) -> bool:
    """Whether P[Bin(rank, bound) <= errors] is clearly at most delta.

    It only chooses the ranks to test; `pac_tests` compares with delta itself.
    """
    return bool(binomial_cdf(errors, rank, bound) <= delta * _CLEARLY_BELOW)


@dataclass(frozen=True, slots=True, eq=False)
class PacPairs:
    """Sorted pairs of which some may have no label yet.

    Args:
        curve: Counts of all pairs; a pair without a label counts as no error.
        drawn, labelled: As of `pac_tests`.
        unlabelled: Shape (u,). Indices of the pairs without a label, by rising uncertainty.
        unlabeled_scores: Shape (u,). Their uncertainties, ascending.
    """

    curve: ThresholdCurve
    drawn: int
    labelled: int
    unlabelled: NDArray[np.int64]
    unlabeled_scores: FloatArray

    @classmethod
    def fit(
        cls,
        uncertainty: ArrayLike,
        error: ArrayLike,
        labelled: ArrayLike,
        *,
        drawn: int | None = None,
        curve: ThresholdCurve | None = None,
    ) -> "PacPairs":
        """Sorts the pairs.

        Args:
            uncertainty: Shape (n,). s(x) of each pair, in nats.
            error: Shape (n,). True where the judge disagrees with the label; False without a label.
            labelled: Shape (n,). False for pairs without a label.
            drawn: As of `pac_tests`; None for n.
            curve: The curve of these pairs, if it is known.

        Raises:
            ValueError: Shapes differ or a score is NaN.
        """
        score = np.asarray(uncertainty, dtype=np.float64)
        if curve is None:
            curve = ThresholdCurve.fit(score, error)
        missing = np.flatnonzero(~np.asarray(labelled, dtype=bool))
        missing = missing[np.argsort(score[missing], kind="stable")]
        scores = score[missing]
        ready = np.searchsorted(curve.scores, scores[0]) if len(scores) else len(curve.scores)
        return cls(curve, len(score) if drawn is None else drawn, int(ready), missing, scores)

    def tests(self, alpha: float, delta: float) -> tuple[float | None, float | None]:
        """Runs `pac_tests` as far as labels reach."""
        return pac_tests(
            self.curve.scores,
            self.curve.accepted,
            self.curve.errors,
            alpha=alpha,
            delta=delta,
            labelled=self.labelled,
            drawn=self.drawn,
        )

    def needed(self, alpha: float, delta: float) -> tuple[float | None, NDArray[np.int64]]:
        """The threshold, or else the pairs that must be labeled before the next test.

        Labeling exactly these pairs again and again, until there is a threshold, gives the
        threshold that all labels would give. It needs the fewest labels in that order.

        Args:
            alpha, delta: In (0, 1); choose them before the first label is seen.

        Returns:
            The threshold in nats, None while labels are missing; and the indices of the pairs to
            label next, in the order of rising uncertainty.
        """
        threshold, score = self.tests(alpha, delta)
        if score is None:
            return threshold, self.unlabelled[:0]
        last = int(np.searchsorted(self.unlabeled_scores, score, side="right"))
        return None, self.unlabelled[:last]


def threshold_on(
    curve: ThresholdCurve, alpha: float, guarantee: Guarantee, delta: float | None
) -> float:
    """lambda_hat in nats on the curve of pairs that all have labels."""
    if guarantee == "marginal":
        return curve.threshold(alpha)
    assert delta is not None, "pac needs a delta"
    threshold, _ = pac_tests(
        curve.scores,
        curve.accepted,
        curve.errors,
        alpha=alpha,
        delta=delta,
        label_noise=curve.label_noise,
    )
    assert threshold is not None, "every pair has a label"
    return threshold


def observed_error(alpha: float, label_noise: float) -> float:
    """The error rate that noisy labels show if the true error rate is alpha."""
    noise = float(exact_noise(label_noise))
    return noise + (1 - 2 * noise) * alpha


def start_rank(alpha: float, delta: float, label_noise: float, n: int) -> int | None:
    """The first rank to test with n points, which depends on no score and no label; None above n.

    It is the rank with power 0.8 if that is within the share 2.5 alpha of the points, and within
    their half; else the one with power 0.5. For alpha = delta = 0.1 these are 210, from n = 840 on,
    and 91.
    """
    good = good_start_rank(alpha, delta, label_noise, at_most=_latest_good_start(alpha, n))
    if good is not None:
        return good
    return fair_start_rank(alpha, delta, label_noise, at_most=n)


def points_for_good_start(alpha: float, good: int) -> int:
    """The number of points from which on tests start at the rank with good power."""
    n = max(1, math.floor(good / _latest_start_share(alpha)) - 1)
    while _latest_good_start(alpha, n) < good:
        n += 1
    return n


def _latest_good_start(alpha: float, n: int) -> int:
    return math.floor(n * _latest_start_share(alpha))


def _latest_start_share(alpha: float) -> float:
    return min(_LATEST_START_SHARE, _LATEST_START_ALPHAS * alpha)


def fair_start_rank(alpha: float, delta: float, label_noise: float, *, at_most: int) -> int | None:
    """The smallest rank at which the test has power 0.5; None if it is above `at_most`."""
    return _rank_with_power(alpha, delta, label_noise, _FAIR_POWER, at_most)


def good_start_rank(alpha: float, delta: float, label_noise: float, *, at_most: int) -> int | None:
    """The smallest rank at which the test has power 0.8; None if it is above `at_most`."""
    return _rank_with_power(alpha, delta, label_noise, _GOOD_POWER, at_most)


def good_marginal_rank(alpha: float, label_noise: float, *, at_most: int) -> int | None:
    """The smallest rank up to which "marginal" accepts with power 0.8; None above `at_most`.

    It accepts k points with e errors if (e + 1) / k <= alpha, so only the first rank at which one
    more error is allowed can be the smallest one.
    """
    bound = observed_error(alpha, label_noise)
    errors = np.arange(int(at_most * bound))
    ranks = np.ceil((errors + 1) / bound).astype(np.int64)
    ranks += (errors + 1) / ranks > bound
    power = binomial_cdf(errors, ranks, observed_error(_ASSUMED_ERROR_SHARE * alpha, label_noise))
    enough = ranks[(power >= _GOOD_POWER) & (ranks <= at_most)]
    return int(enough[0]) if len(enough) else None


def _rank_with_power(
    alpha: float, delta: float, label_noise: float, power: float, at_most: int
) -> int | None:
    """The smallest rank with that power, at least 0.5; None if it is above `at_most`."""
    bound = observed_error(alpha, label_noise)
    assumed_error = observed_error(_ASSUMED_ERROR_SHARE * alpha, label_noise)
    # Below this rank not even a test without errors passes.
    passable = math.log(delta) / math.log1p(-bound)
    # With gap = bound - assumed_error, the normal approximation of the rank solves
    # k gap = z sqrt(k bound (1 - bound)) + y sqrt(k assumed_error (1 - assumed_error)). Rounding to
    # whole errors, skewness, and the distance between median and mean are less than one error each,
    # so 5 / gap ranks are a safe distance.
    gap = bound - assumed_error
    if gap < _SMALLEST_GAP:
        return None
    spread = -float(ndtri(delta)) * math.sqrt(bound * (1 - bound))
    spread += float(ndtri(power)) * math.sqrt(assumed_error * (1 - assumed_error))
    estimate = (max(0.0, spread) / gap) ** 2
    low = max(1, math.floor(max(passable, estimate - 5 / gap)))
    # The rank is at most as far above that estimate as `low` is below it.
    chunk = math.ceil(min(10 / gap, _LARGEST_CHUNK))
    while low <= at_most:
        high = min(low + chunk, at_most + 1)
        rank = _powerful_rank(bound, assumed_error, delta, power, low, high)
        if rank is not None:
            return rank
        low = high
    return None


@lru_cache(maxsize=4096)
def _powerful_rank(
    bound: float, assumed_error: float, delta: float, power: float, low: int, high: int
) -> int | None:
    """The smallest rank in [low, high) at which the test has that power."""
    ranks = np.arange(low, high)
    allowable = most_successes(delta, ranks, bound)
    passing = np.where(allowable >= 0, binomial_cdf(allowable, ranks, assumed_error), 0.0)
    enough = np.flatnonzero(passing >= power)
    return int(ranks[enough[0]]) if len(enough) else None


def labels_for_verdicts(criterion: Criterion) -> int | None:
    """The number of labels with which a criterion accepts something with probability 0.8.

    That holds if the judge is wrong in at most 0.6 alpha of its most certain pairs: of the share
    2.5 alpha of them, at most half. `pac` then starts its tests at the rank with power 0.8. The
    number depends on no label, so calibrating after exactly so many labels keeps the promise. None
    if a set has no room for so many.
    """
    alpha = criterion.alpha
    assert alpha is not None, "a criterion without alpha needs no labels"
    if criterion.guarantee == "pac":
        assert criterion.delta is not None, "pac needs a delta"
        rank = good_start_rank(alpha, criterion.delta, 0.0, at_most=MOST_PAIRS)
    else:
        rank = good_marginal_rank(alpha, 0.0, at_most=MOST_PAIRS)
    labels = None if rank is None else points_for_good_start(alpha, rank)
    return labels if labels is not None and labels <= MOST_PAIRS else None
