"""Wrong verdicts by the labels of people, as shares with intervals."""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from app.core.preference import FloatArray, gaps_in_reverse, preference_from_gaps

_LEVEL = 0.95


class Share(NamedTuple):
    """A share with its interval."""

    value: float
    low: float
    high: float


def weighted_share(
    cases: FloatArray, weight: FloatArray, unit: NDArray[np.int64], *, level: float
) -> Share:
    """A share by Wilson's interval with the effective number of observations.

    Args:
        cases: Shape (n,), n at least 1. 1 where the observation is a case, otherwise 0.
        weight: Shape (n,). One over the probability with which each was drawn.
        unit: Shape (n,). Observations of one unit may depend on each other.
        level: Probability that the interval covers the true share.
    """
    value = float(weight @ cases / weight.sum())
    variance = variance_of_mean(cases - value, weight, unit)
    kish = float(weight.sum() ** 2 / (weight @ weight))
    # If all observations are cases, or none is, they show no variance.
    shows_variance = 0.0 < variance < math.inf
    effective = min(kish, value * (1.0 - value) / variance) if shows_variance else kish
    z = float(ndtri(0.5 + level / 2.0))
    center = (value + z**2 / (2 * effective)) / (1 + z**2 / effective)
    reach = z * np.sqrt(value * (1 - value) / effective + z**2 / (4 * effective**2))
    reach = float(reach) / (1 + z**2 / effective)
    return Share(value, max(center - reach, 0.0), min(center + reach, 1.0))


def variance_of_mean(residual: FloatArray, weight: FloatArray, unit: NDArray[np.int64]) -> float:
    """The variance of a weighted mean over dependent units; infinite with one unit."""
    names, places = np.unique(unit, return_inverse=True)
    units = len(names)
    if units == 1:
        return math.inf
    total = np.bincount(places, weight * residual)
    return float(total @ total / weight.sum() ** 2) * units / (units - 1)


class LabeledVerdict(NamedTuple):
    """An accepted verdict on a pair of which a person prefers one side.

    Args:
        is_wrong: Whether the person prefers the other side.
        unit: Verdicts of one unit, such as a question, may be wrong together.
        probability: Probability with which the comparison was drawn for labeling.
    """

    alpha: float
    is_wrong: bool
    unit: Hashable
    probability: float = 1.0


def contradicted_verdicts(verdicts: Iterable[LabeledVerdict]) -> list[tuple[float, int, Share]]:
    """Each alpha, ascending, with its number of verdicts and the share that labels contradict."""
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
        thresholds: In nats.
        temperature: Number by which the gaps are divided.
    """
    numbers = np.array(gaps, dtype=np.float64).reshape(-1, 2) / temperature
    forward, reverse = numbers.T
    preferences = preference_from_gaps(forward, gaps_in_reverse(forward, reverse))
    wrong = preferences.wrong(prefers_a)
    verdicts = [preferences.accepted(threshold) for threshold in thresholds]
    return [(int(given.sum()), int((given & wrong).sum())) for given in verdicts]
