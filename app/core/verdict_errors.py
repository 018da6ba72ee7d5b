"""Wrong verdicts by the labels of people."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from app.core.preference import gaps_in_reverse, preference_from_gaps
from app.core.score import Side
from app.core.shares import Share, weighted_share

_LEVEL = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class LabeledVerdict:
    """An accepted verdict, and the side that a person prefers.

    Args:
        alpha: The alpha of the verdict.
        unit: Verdicts of one unit, such as a question, may be wrong together.
        probability: Probability with which the comparison was drawn for labeling.
    """

    verdict: Side
    label: Side
    alpha: float
    unit: Hashable
    probability: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ContradictedVerdicts:
    """The verdicts of one alpha that labels contradict.

    Args:
        contradicted: Share of them that the labels contradict, with its 95% interval.
    """

    alpha: float
    verdicts: int
    contradicted: Share

    @property
    def exceeds_alpha(self) -> bool:
        """Whether alpha lies below the interval."""
        return self.contradicted.low > self.alpha


def contradicted_verdicts(verdicts: Iterable[LabeledVerdict]) -> list[ContradictedVerdicts]:
    """Returns how many verdicts of each alpha labels contradict, in ascending order of alpha."""
    by_alpha: dict[float, list[LabeledVerdict]] = defaultdict(list)
    for labeled in verdicts:
        by_alpha[labeled.alpha].append(labeled)
    return [
        _of_alpha(alpha, those)
        for alpha, those in sorted(by_alpha.items())
        # One unit shows no variance.
        if len({labeled.unit for labeled in those}) > 1
    ]


def _of_alpha(alpha: float, verdicts: list[LabeledVerdict]) -> ContradictedVerdicts:
    units: dict[Hashable, int] = {}
    share = weighted_share(
        np.array([float(labeled.verdict != labeled.label) for labeled in verdicts]),
        np.array([1.0 / labeled.probability for labeled in verdicts]),
        np.array([units.setdefault(labeled.unit, len(units)) for labeled in verdicts]),
        level=_LEVEL,
    )
    return ContradictedVerdicts(alpha=alpha, verdicts=len(verdicts), contradicted=share)


def accepted_and_wrong(
    gaps: Sequence[tuple[float, float | None]],
    prefers_a: Sequence[bool],
    thresholds: Sequence[float],
    *,
    temperature: float = 1.0,
) -> list[tuple[int, int]]:
    """The verdicts that each threshold gives on labeled pairs, and how many of them are wrong.

    Args:
        gaps: `gap_fwd` and `gap_rev` of each pair.
        prefers_a: Whether the label of each pair is A.
        thresholds: Thresholds in nats.
        temperature: Number by which the gaps are divided.
    """
    numbers = np.array(gaps, dtype=np.float64).reshape(-1, 2) / temperature
    forward, reverse = numbers.T
    preferences = preference_from_gaps(forward, gaps_in_reverse(forward, reverse))
    wrong = preferences.wrong(prefers_a)
    verdicts = [preferences.accepted(threshold) for threshold in thresholds]
    return [(int(given.sum()), int((given & wrong).sum())) for given in verdicts]
