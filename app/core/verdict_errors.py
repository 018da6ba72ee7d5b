"""Wrong verdicts by the labels of people."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from app.core.preference import gaps_in_reverse, preference_from_gaps
from app.core.shares import Share, weighted_share

_LEVEL = 0.95


class LabeledVerdict(NamedTuple):
    """An accepted verdict on a pair of which a person prefers one side.

    Args:
        alpha: The alpha of the verdict.
        is_wrong: Whether the person prefers the other side.
        unit: Verdicts of one unit, such as a question, may be wrong together.
        probability: Probability with which the comparison was drawn for labeling.
    """

    alpha: float
    is_wrong: bool
    unit: Hashable
    probability: float = 1.0


def contradicted_verdicts(verdicts: Iterable[LabeledVerdict]) -> list[tuple[float, int, Share]]:
    """Counts the verdicts of each alpha that labels contradict.

    Returns:
        Each alpha in ascending order, its number of verdicts, and the share that labels contradict,
        with a 95% interval.
    """
    by_alpha: dict[float, list[LabeledVerdict]] = defaultdict(list)
    for labeled in verdicts:
        by_alpha[labeled.alpha].append(labeled)
    found = []
    for alpha, those in sorted(by_alpha.items()):
        units: dict[Hashable, int] = {}
        unit = [units.setdefault(labeled.unit, len(units)) for labeled in those]
        # One unit shows no variance.
        if len(units) > 1:
            wrong = np.array([float(labeled.is_wrong) for labeled in those])
            weight = np.array([1.0 / labeled.probability for labeled in those])
            share = weighted_share(wrong, weight, np.array(unit), level=_LEVEL)
            found.append((alpha, len(those), share))
    return found


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
