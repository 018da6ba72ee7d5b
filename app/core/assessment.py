"""Whether a judge is good enough: figures of labeled pairs, and one recommendation in words.

The module imports no numpy: `scope-judge calibrate` makes an assessment of a service's answer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.core.comparison import Guarantee

if TYPE_CHECKING:
    from scope_judge.records import Infeasible, Threshold

# 95% of a normal distribution lie within so many standard deviations.
_Z = 1.959963984540054
# With fewer labels the interval of an accuracy is wider than 10 points to each side.
_FEWEST_LABELS = 100
# A rule that answers fewer pairs is recommended only if there is no other.
_USEFUL_COVERAGE = 0.5
_USUAL_ALPHA = 0.10

_LOOKING_NOTE = (
    "Choosing alpha from this table is a look at the labels, and the promise does not cover it: in "
    "simulations with delta 0.10, some alpha of 0.02 to 0.30 was exceeded in up to 29% of "
    "calibrations, and the smallest feasible of five in up to 11%. Decide on an alpha first, or "
    "divide delta by {count}: then all of them hold together."
)
_LABELING_NOTE = (
    "Labels that are added until an alpha is feasible break its promise: it was exceeded in up to "
    "19% of simulated calibrations, with delta 0.10. Calibrate a new set on the new labels alone, "
    "and decide their number now."
)


# Measured shares of unanimous pairs at which votes lose coverage (docs/design/guarantees.md).
_MOST_UNANIMOUS, _FEWEST_UNANIMOUS = 0.4, 0.1


# The smallest and the largest of feasible alphas without a gap, in steps of 0.001.
AlphaInterval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Assessment:
    """The figures of a judge on labeled pairs.

    Args:
        n: Number of labeled pairs.
        accuracy, auroc, position_flips, unanimous: As of `Calibration`.
        rows: One for each guarantee and alpha, in this order.
        feasible: All feasible alphas of each guarantee.
        infeasible: For alphas of the rows at which nothing is accepted, the examples that are
            missing.
    """

    n: int
    accuracy: float | None
    auroc: float | None
    position_flips: float | None
    rows: "Sequence[Threshold]"
    feasible: Mapping[Guarantee, Sequence[AlphaInterval]]
    infeasible: "Sequence[Infeasible]" = ()
    unanimous: float | None = None

    @property
    def pac_rows(self) -> "Sequence[Threshold]":
        """The rows of "pac"."""
        return [row for row in self.rows if row.guarantee == "pac"]

    def more_examples(self, row: "Threshold") -> int | None:
        """Fewest further labels with which a row can be feasible; None if that is unknown."""
        missing = {(each.guarantee, each.alpha): each.more_examples for each in self.infeasible}
        return missing.get((row.guarantee, row.alpha))

    @property
    def accuracy_interval(self) -> tuple[float, float] | None:
        """The 95% interval of the accuracy; None without pairs."""
        return None if self.accuracy is None else share_interval(self.accuracy, self.n)


def share_interval(share: float, n: int) -> tuple[float, float]:
    """The 95% interval by Wilson (1927) of a share of n >= 1 observations, within [0, 1]."""
    center = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2)) / (1 + _Z**2 / n)
    # Rounding must not leave 1.0 out where all are right, or 0.0 where all are wrong.
    low = 0.0 if share == 0.0 else max(0.0, center - half)
    return low, 1.0 if share == 1.0 else min(1.0, center + half)


def recommendation(assessment: Assessment) -> str:
    """One recommendation in plain words."""
    interval = assessment.accuracy_interval
    if interval is None or assessment.accuracy is None:
        return "There are no labeled pairs yet: label some."
    low, high = interval
    share = f"{assessment.accuracy:.0%} ({low:.0%} to {high:.0%})"
    if high < 0.5:
        return (
            f"Your judge agrees with people on {share} of the pairs: it is wrong more often than a "
            "coin. Check that labels and responses are not swapped, or use another judge or prompt."
        )
    if low <= 0.5:
        return _of_a_coin(assessment, share)
    best = _best(assessment)
    if best is not None:
        return _use(best, assessment)
    helped = [
        (row.alpha != _USUAL_ALPHA, more, row.alpha)
        for row in assessment.pac_rows
        if (more := assessment.more_examples(row))
    ]
    if not helped:
        return (
            f"Your judge agrees with people on {share} of the pairs, but it is wrong too often "
            "where it is most certain: more labels will hardly make one of these alphas feasible "
            "with pac. Use another judge or prompt, or a larger alpha."
        )
    _, more, alpha = min(helped)
    return (
        f"Label at least {more} more pairs: with fewer, alpha {_alpha(alpha)} with pac cannot be "
        "feasible."
    )


def advice_on_unanimous(share: float | None) -> str | None:
    """Advice on the temperature of votes, by the share of pairs whose votes all agree.

    None if it is right, or the judge does not vote.
    """
    if share is None or _FEWEST_UNANIMOUS <= share <= _MOST_UNANIMOUS:
        return None
    change = "raise" if share > _MOST_UNANIMOUS else "lower"
    return (
        f"{share:.0%} of the pairs are unanimous: {change} SCOPE_TEMPERATURE until 10% to 40% are, "
        "and calibrate again. This needs no labels"
    )


def note_on_looking(assessment: Assessment) -> str | None:
    """The price of a choice from the table; None where nothing can be chosen from it."""
    feasible = [row for row in assessment.rows if row.threshold is not None]
    if not any(row.guarantee == "pac" for row in feasible):
        return _LABELING_NOTE if any(map(assessment.more_examples, assessment.pac_rows)) else None
    count = len({row.alpha for row in assessment.pac_rows})
    return _LOOKING_NOTE.format(count=count) if count > 1 else None


def alphas_in_words(feasible: Sequence[AlphaInterval]) -> str:
    """A set of alphas, e.g. "0.08-0.171, from 0.174"."""
    return ", ".join(map(_interval, feasible)) or "none"


def _of_a_coin(assessment: Assessment, share: str) -> str:
    best = _best(assessment)
    if assessment.n < _FEWEST_LABELS:
        return (
            f"Your judge agrees with people on {share} of {assessment.n} pairs: these are too few "
            f"labels to tell it from a coin. Label at least {_FEWEST_LABELS} pairs."
        )
    coin = f"Your judge agrees with people on {share} of the pairs: this is no better than a coin."
    if best is None:
        return f"{coin} More labels will not help; use another judge or prompt."
    return f"{coin} Only its most certain verdicts are better. {_use(best, assessment)}"


def _best(assessment: Assessment) -> "Threshold | None":
    """The smallest alpha under "pac" that answers half of the pairs, or else the most pairs."""
    rows = [row for row in assessment.pac_rows if row.coverage > 0.0]
    useful = [row for row in rows if row.coverage >= _USEFUL_COVERAGE]
    if useful:
        return min(useful, key=lambda row: row.alpha)
    return max(rows, key=lambda row: (row.coverage, -row.alpha), default=None)


def _use(row: "Threshold", assessment: Assessment) -> str:
    alpha = _alpha(row.alpha)
    chosen = (
        f"Use alpha {alpha} with pac"
        if len(assessment.pac_rows) == 1
        else f"If alpha {alpha} was your choice before you saw this table, use it with pac"
    )
    return (
        f"{chosen}: it answers {row.coverage:.0%} of pairs like these, and at most "
        f"{100 * row.alpha:.3g}% of the answers are wrong, except with probability "
        f"{_alpha(row.delta or 0.0)}."
    )


def _alpha(alpha: float) -> str:
    """Two decimals where they are exact: 0.10, but 0.125."""
    return f"{alpha:.2f}" if round(alpha, 2) == alpha else f"{alpha:g}"


def _interval(interval: AlphaInterval) -> str:
    low, high = interval
    if high >= 0.999:
        return f"from {low:g}"
    return f"{low:g}" if low == high else f"{low:g}-{high:g}"
