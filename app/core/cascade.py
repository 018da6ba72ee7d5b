"""One promise for two judges: a small one answers first, and a large one answers the rest.

docs/design/guarantees.md explains the procedure. One number q says how much is accepted: the small
judge answers the r q pairs of which it is surest, and the large one answers what is left if that is
among the q of which the large one is surest.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.core.binomial import binomial_cdf
from app.core.pac import ranks_to_test
from app.core.preference import (
    LN2,
    FloatArray,
    Preferences,
    gaps_in_reverse,
    preference_from_gaps,
)
from app.core.thresholds import accepted_and_errors

Bools = NDArray[np.bool_]

PAC_ONLY = (
    'a cascade has the guarantee "pac" or none: "marginal" would need one order of all pairs, '
    "and each judge of a cascade has its own"
)
# The small judge gets no pairs unless its surest ones are this many, and never more than this share
# of all: beyond it the two judges are hardly different.
_FEWEST_SURE = 40
_LARGEST_SHARE = 0.8
# Pairs without labels that a plan needs: the share of contradictions has a standard error of 0.01.
FEWEST_PAIRS = 1000
# Distribution functions are kept at so many of their points; any fixed function keeps the promise.
_MOST_KNOTS = 1000
# Interpolating back and forth must not lose the pair whose position was asked for.
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class CascadePlan:
    """The values that are fixed before the first label: F1, F2 and r.

    Args:
        small: Some sorted uncertainties of the small judge on unlabeled pairs, and the share of the
            pairs at or below each: the points of F1.
        large: The same of the large judge: F2.
        share: r, the share of the pairs that the small judge may answer, in [0, 1].
        slack: The cascade serves if its coverage is within this of the large judge's.
    """

    small: tuple[tuple[float, float], ...]
    large: tuple[tuple[float, float], ...]
    share: float
    slack: float

    @cached_property
    def _functions(self) -> tuple[FloatArray, FloatArray]:
        return np.array(self.small).reshape(-1, 2).T, np.array(self.large).reshape(-1, 2).T

    @cached_property
    def largest_first(self) -> float:
        """The uncertainty up to which the small judge answers at most."""
        return self.thresholds(1.0)[0]

    def positions(self, small: FloatArray, large: FloatArray) -> FloatArray:
        """The smallest q at which each pair is accepted, of shape (n,); infinite if none is."""
        of_small, of_large = (
            np.where(np.isfinite(u), np.interp(u, *function), np.inf)
            for u, function in zip((small, large), self._functions, strict=True)
        )
        within = (of_small <= self.share) & (self.share > 0.0)
        of_small = np.divide(of_small, self.share, out=np.full_like(of_small, np.inf), where=within)
        positions: FloatArray = np.minimum(of_small, of_large)
        return positions

    def thresholds(self, q: float) -> tuple[float, float]:
        """The largest accepted uncertainty of each judge at a q in (0, 1]."""
        small, large = self._functions
        first = _inverse(small, self.share * q) if self.share else -math.inf
        return first, _inverse(large, q)


def _inverse(function: FloatArray, share: float) -> float:
    uncertainty, shares = function
    share += _ROUNDING
    if share < shares[0]:
        return -math.inf
    return float(np.interp(share, shares, uncertainty))


def _function(uncertainty: FloatArray) -> tuple[tuple[float, float], ...]:
    """The points of a distribution function that is linear between them, and 1 at ln 2."""
    known = np.sort(uncertainty[np.isfinite(uncertainty)])
    if len(known) > _MOST_KNOTS:
        known = known[np.linspace(0, len(known) - 1, _MOST_KNOTS).round().astype(int)]
    weight = np.isfinite(uncertainty).mean() / (len(known) + 1)
    values, counts = np.unique(known, return_counts=True)
    points = dict(zip(values.tolist(), (weight * np.cumsum(counts)).tolist(), strict=True))
    points.setdefault(0.0, 0.0)
    points[LN2] = 1.0
    return tuple(sorted(points.items()))


def usable_uncertainty(
    preferences: Preferences, label_mass: FloatArray, min_label_mass: float
) -> FloatArray:
    """The uncertainty of one judge for each pair; infinite where it cannot decide.

    It cannot without a score or a preference, and off task.
    """
    unable = (label_mass < min_label_mass) | (preferences.p_bar == 0.5)
    unable |= np.isnan(preferences.p_bar)
    return np.where(unable, np.inf, preferences.entropy)


def _read(numbers: ArrayLike, min_label_mass: float) -> tuple[FloatArray, FloatArray]:
    """Uncertainty and p_bar of each score; infinite and 0.5 where there is none."""
    gap_fwd, gap_rev, label_mass = np.array(numbers, dtype=np.float64).reshape(-1, 3).T
    gap_rev = gaps_in_reverse(gap_fwd, gap_rev)
    found = preference_from_gaps(np.nan_to_num(gap_fwd), np.nan_to_num(gap_rev))
    return usable_uncertainty(found, label_mass, min_label_mass), found.p_bar


class PlannedPairs(NamedTuple):
    """Pairs without labels, with what a plan needs of them.

    Args:
        small: Shape (n,). Uncertainties of the small judge; infinite where it cannot answer.
        large: Shape (n,). The same of the large judge.
        contradicts: Shape (n,). True where the two prefer different responses.
    """

    small: FloatArray
    large: FloatArray
    contradicts: Bools

    @classmethod
    def of(cls, small: ArrayLike, large: ArrayLike, min_label_mass: float) -> "PlannedPairs":
        """Reads the scores of both judges on the same pairs, of shape (n, 3); see `Score`."""
        (u1, p1), (u2, p2) = (_read(numbers, min_label_mass) for numbers in (small, large))
        return cls(small=u1, large=u2, contradicts=(p1 - 0.5) * (p2 - 0.5) < 0.0)

    def contradictions_within(self, plan: CascadePlan) -> float | None:
        """Share of contradictions among the pairs within r; None if there are none."""
        within = self.small <= plan.largest_first
        return float(self.contradicts[within].mean()) if within.any() else None


def plan_cascade(
    small: ArrayLike,
    large: ArrayLike,
    contradicts: ArrayLike,
    *,
    alpha: float,
    slack: float,
    share: float | None = None,
) -> CascadePlan:
    """Fixes a cascade without labels, on pairs that are not the labeled ones; see `PlannedPairs`.

    r is the largest share of which the small judge is surest and contradicts the large one in at
    most alpha of the pairs; 0 if there is none.

    Args:
        alpha: The alpha that the cascade is for, in (0, 1).
        slack: As of the plan.
        share: r, if somebody chooses it; None for the rule.
    """
    u1, u2 = np.asarray(small, dtype=np.float64), np.asarray(large, dtype=np.float64)
    if share is None:
        _, accepted, contradictions = accepted_and_errors(u1, contradicts)
        least, most = _FEWEST_SURE, _LARGEST_SHARE * len(u1)
        most = min(most, int(np.isfinite(u1).sum()))
        allowed = (contradictions <= alpha * accepted) & (accepted >= least) & (accepted <= most)
        share = float(accepted[allowed].max(initial=0) / len(u1))
    return CascadePlan(small=_function(u1), large=_function(u2), share=share, slack=slack)


class Chosen(NamedTuple):
    """The thresholds that serve, and what they did on the labeled pairs.

    Args:
        first: Largest accepted uncertainty of the small judge; -inf if the large one is always
            asked.
        threshold: Largest accepted uncertainty of the large judge; -inf if alpha is infeasible.
        coverage: Share of the pairs that are accepted.
        escalated: Share of the pairs that the large judge is asked about.
        errors: Number of errors among the accepted pairs.
        why: Why the cascade serves, or the large judge alone, in a sentence.
    """

    first: float
    threshold: float
    coverage: float
    escalated: float
    errors: int
    why: str

    @property
    def is_cascade(self) -> bool:
        """Whether the small judge answers any pair."""
        return self.first > -math.inf


@dataclass(frozen=True, kw_only=True)
class CascadePairs:
    """Labeled pairs with the scores of both judges.

    Args:
        small, large: As of `PlannedPairs`.
        small_wrong, large_wrong: Shape (n,). True where the judge disagrees with the label.
        drawn: Number of pairs that were drawn before labels were seen; larger than n if people
            found pairs equal.
    """

    small: FloatArray
    large: FloatArray
    small_wrong: Bools
    large_wrong: Bools
    drawn: int

    def counts(self, first: float, threshold: float) -> tuple[int, int, int]:
        """The numbers of accepted pairs, of errors among them, and of escalated pairs."""
        by_small = self.small <= first
        by_large = ~by_small & (self.large <= threshold)
        errors = (by_small & self.small_wrong) | (by_large & self.large_wrong)
        return int((by_small | by_large).sum()), int(errors.sum()), int((~by_small).sum())


def choose(plan: CascadePlan, pairs: CascadePairs, *, alpha: float, delta: float) -> Chosen:
    """Tests the cascade and the large judge alone, each with delta / 2, and chooses one.

    Both promises hold together, so whichever is chosen holds. The cascade serves if its coverage is
    within the plan's slack of the large judge's. With r = 0 the large judge has all of delta.
    """
    each = delta / 2 if plan.share else delta
    # With r = 0 the small judge answers nothing.
    both, alone = (
        cascade_thresholds(replace(plan, share=share), pairs, alpha=alpha, delta=each)
        for share in (plan.share, 0.0)
    )
    n = max(1, len(pairs.small))
    of_both, of_alone = (pairs.counts(*thresholds)[0] / n for thresholds in (both, alone))
    first, threshold = both if of_both and of_both >= of_alone - plan.slack else alone
    if not of_both and not of_alone:
        why = "Neither the cascade nor the large judge alone accepts anything."
    elif not plan.share:
        why = "Every pair goes to the large judge: the plan gives the small one none."
    else:
        is_cascade = first > -math.inf
        who = (
            "The small judge answers first" if is_cascade else "Every pair goes to the large judge"
        )
        why = (
            f"{who}: the cascade accepts {of_both:.1%} of the labeled pairs, and the large judge "
            f"alone {of_alone:.1%}."
        )
    accepted, errors, escalated = pairs.counts(first, threshold)
    return Chosen(first, threshold, accepted / n, escalated / n, errors, why)


def cascade_thresholds(
    plan: CascadePlan, pairs: CascadePairs, *, alpha: float, delta: float
) -> tuple[float, float]:
    """The thresholds of both judges at the last q that passes; -inf if none does.

    q rises through the ranks of "pac", in the order of the pairs' positions, and the errors are
    those of whoever answers. Accepted sets are nested, so this is fixed-sequence testing.
    """
    positions = plan.positions(pairs.small, pairs.large)
    positions = np.sort(positions[np.isfinite(positions)])
    n = len(positions)
    thresholds = -math.inf, -math.inf
    for rank in ranks_to_test(alpha, delta, n, drawn=pairs.drawn - len(pairs.small) + n):
        tested = plan.thresholds(1.0 if rank == n else float(positions[rank - 1]))
        accepted, errors, _ = pairs.counts(*tested)
        if binomial_cdf(errors, accepted, alpha) > delta:
            break
        if tested[1] > -math.inf:
            thresholds = tested
    return thresholds
