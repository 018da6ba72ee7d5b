"""Scores of comparisons, and the order-averaged preference and its entropy (SCOPE, BPE).

A score has the label logits of both orders; a preference is made of it.
"""

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, xlogy

from app.core.comparison import Orders, Side, Unscored
from app.core.errors import JudgmentFailedError

FloatArray = NDArray[np.float64]

# The largest entropy of two outcomes, in nats: the threshold that accepts everything.
LN2 = math.log(2.0)
# The gap of a response that has all votes of an order: its sigmoid is exactly 1, and that of the
# other response exactly 0.
CERTAIN_GAP = 800.0
_FIELDS = ("gap_fwd", "gap_rev", "label_mass")


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """One judge's preference between two responses; it holds no text.

    Args:
        gap_fwd: Logit of response_a minus logit of response_b, with response_a shown first; any
            finite number.
        gap_rev: The same with response_a shown second; None for a kind of judge that sees each
            response alone, and so sees no order.
        label_mass: Share of the whole vocabulary's probability on the two labels, in [0, 1]; the
            smaller one of the two orders. None where the judge has no labels, or does not say it.
        cached: Whether an earlier call made it; nothing keeps this.
        small: The small judge's result in a cascade, where this is the large judge's score;
            None for a judge alone, and where the small judge decides.
    """

    gap_fwd: float
    gap_rev: float | None
    label_mass: float | None
    cached: bool = field(default=False, compare=False)
    small: "Score | NoScore | None" = None

    @property
    def orders(self) -> Orders:
        """Number of orders that the judge has seen."""
        return 1 if self.gap_rev is None else 2

    @property
    def gaps(self) -> tuple[float, float]:
        """The gaps of both orders, which are equal if the judge sees no order."""
        return self.gap_fwd, self.gap_fwd if self.gap_rev is None else self.gap_rev

    @property
    def swapped(self) -> "Score":
        """The score of the comparison with the responses in the other order."""
        small = None if self.small is None else self.small.swapped
        # `0.0 - x`, because `-x` makes -0.0 of a tie.
        if self.gap_rev is None:
            return replace(self, gap_fwd=0.0 - self.gap_fwd, small=small)
        return replace(self, gap_fwd=0.0 - self.gap_rev, gap_rev=0.0 - self.gap_fwd, small=small)

    @property
    def fields(self) -> dict[str, float | None]:
        """The first three fields by their names, as records and stores have them."""
        numbers = (self.gap_fwd, self.gap_rev, self.label_mass)
        return dict(zip(_FIELDS, numbers, strict=True))

    @property
    def numbers(self) -> tuple[float, float, float]:
        """The first three fields as numbers; NaN in place of None."""
        return self.gap_fwd, _number(self.gap_rev), _number(self.label_mass)


@dataclass(frozen=True, kw_only=True, slots=True)
class NoScore:
    """The judge looked at a comparison and has no preference to give; the service abstains.

    This is an outcome and not an error. The same comparison has `thought_unfinished` whenever it is
    judged: sets keep such an example, and thresholds leave it out. `escalation_unavailable` passes,
    and nothing keeps it.
    """

    reason: Unscored
    small: "Score | NoScore | None" = None

    @property
    def swapped(self) -> "NoScore":
        """The same outcome with the responses in the other order."""
        return self if self.small is None else replace(self, small=self.small.swapped)

    @property
    def fields(self) -> dict[str, float | None]:
        """The `fields` of a score, all of them None."""
        return dict.fromkeys(_FIELDS)

    @property
    def numbers(self) -> tuple[float, float, float]:
        """The `numbers` of a score, all of them missing."""
        return math.nan, math.nan, math.nan


def score_of_numbers(
    gap_fwd: float, gap_rev: float, label_mass: float, *small: float
) -> Score | NoScore:
    """The score with these `numbers`, and those of a small judge's score if it has one."""
    first = score_of_numbers(*small) if small and not math.isnan(small[0]) else None
    if math.isnan(gap_fwd):
        return NoScore(reason="thought_unfinished", small=first)
    mass = _known(label_mass)
    return Score(gap_fwd=gap_fwd, gap_rev=_known(gap_rev), label_mass=mass, small=first)


def all_numbers(score: Score | NoScore) -> tuple[float, ...]:
    """The `numbers` of a score, and those of the small judge's score, which are NaN without one."""
    return (*score.numbers, *((math.nan,) * 3 if score.small is None else score.small.numbers))


def score_of_json(gap_fwd: object, gap_rev: object, label_mass: object) -> Score:
    """The score with these numbers from elsewhere.

    Raises:
        ValueError, TypeError, OverflowError: They are not the numbers of a score.
    """
    mass = _finite(label_mass)
    if mass is not None and not 0.0 <= mass <= 1.0:
        raise ValueError("not a label mass")
    gap = _finite(gap_fwd)
    if gap is None:
        raise ValueError("not a score")
    return Score(gap_fwd=gap, gap_rev=_finite(gap_rev), label_mass=mass)


def _finite(value: object) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
        raise ValueError("not a finite number")
    return float(value)  # type: ignore[arg-type]


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number


@dataclass(frozen=True, kw_only=True, slots=True)
class Preference:
    """The preference of a judge on one comparison.

    Args:
        p_fwd: Probability of response_a when it is shown first.
        p_rev: Probability of response_a when it is shown second.
        p_bar: Mean of p_fwd and p_rev; exactly 0.5 where the judge has no preference.
        uncertainty: s(x), the entropy of p_bar, in nats within [0, ln 2] (SCOPE, section on BPE).
    """

    p_fwd: float
    p_rev: float
    p_bar: float
    uncertainty: float

    @property
    def confidence(self) -> float:
        """max(p_bar, 1 - p_bar), within [0.5, 1]."""
        return max(self.p_bar, 1.0 - self.p_bar)

    @property
    def side(self) -> Side | None:
        """The preferred side; None at exactly 0.5, where every threshold abstains."""
        if self.p_bar == 0.5:
            return None
        return "A" if self.p_bar > 0.5 else "B"

    def accepted(self, threshold: float) -> bool:
        """S(x, lambda): whether a threshold in nats accepts it; never without a side."""
        return self.uncertainty <= threshold and self.side is not None

    @property
    def position_gap(self) -> float:
        """Effect of the order of the responses: |p_fwd - p_rev|."""
        return abs(self.p_fwd - self.p_rev)

    @property
    def orders_disagree(self) -> bool:
        """Whether the two orders prefer different responses; False if one prefers none."""
        return (self.p_fwd - 0.5) * (self.p_rev - 0.5) < 0.0


class Preferences(NamedTuple):
    """The preferences of a judge on n comparisons: each field of `Preference` with shape (n,).

    `entropy` is its `uncertainty`.
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
        """
        wrong: NDArray[np.bool_] = np.where(prefers_a, self.p_bar <= 0.5, self.p_bar >= 0.5)
        return wrong

    def accepted(self, threshold: float) -> NDArray[np.bool_]:
        """Shape (n,). `Preference.accepted` of each comparison; never where it is NaN."""
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
        gap_rev: Shape (n,). The same, response_a shown second.

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
    """The gaps of the reverse order, given the numbers of scores (`Score.numbers`).

    Args:
        gap_fwd: Shape (n,).
        gap_rev: Shape (n,). NaN where the judge sees no order, and so has the same gap in both.
    """
    gaps: FloatArray = np.where(np.isnan(gap_rev), gap_fwd, gap_rev)
    return gaps


def binary_entropy(p: FloatArray, q: FloatArray) -> FloatArray:
    """Entropy of a preference in nats, exact even where it is nearly certain.

    Args:
        p: Shape (n,). Probability that response A is preferred, in [0, 1].
        q: Shape (n,). 1 - p, passed in because it would round to 0 here for p above 1 - 1e-16.
    """
    return _entropy_of_sides(np.minimum(p, q), np.maximum(p, q))


def _entropy_of_sides(smaller: FloatArray, larger: FloatArray) -> FloatArray:
    # Near larger = 1, its logarithm is exact through the other side.
    terms = larger * np.log1p(-smaller) + xlogy(smaller, smaller)
    entropy: FloatArray = np.minimum(np.abs(terms), LN2)
    return entropy
