"""Whether the judgments of one run are like the labeled pairs of their set.

The run is over, so a test of two samples fits: that of Kolmogorov and Smirnov. It sees a change of
the spread, too, and needs fewer judgments than the martingale of `conformal`, which may be looked
at after each judgment (docs/design/decisions.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import ks_2samp

from app.core.preference import FloatArray, gaps_in_reverse, preference_from_gaps

# Names of the values that are compared.
VALUES = ("uncertainty", "position_gap", "label_mass")
# Probability of a false alarm in one run, over all its tests together.
RUN_DELTA = 0.01
# The asymptotic distribution is too inexact for smaller samples.
_FEWEST = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The clearest difference between the judgments of a run and the labeled pairs.

    Args:
        value: Name of the value that differs.
        above: Number at which the distributions are the furthest apart.
        share, expected: Share of the judgments, and of the labeled pairs, whose value is above it.
        p_value: Probability of a difference as large as this one between samples of one kind.
    """

    value: str
    above: float
    share: float
    expected: float
    p_value: float


def difference(
    judged: Mapping[str, ArrayLike], expected: Mapping[str, FloatArray], *, tests: int = 1
) -> Difference | None:
    """Returns how judgments differ from labeled pairs; None if that may be chance.

    Args:
        judged: Name of a value -> its numbers, of one judgment of each question; NaN where it is
            unknown.
        expected: The same for the labeled pairs.
        tests: Number of calls that share the false alarms of a run.
    """
    compared = [
        _compared(name, _known(judged[name]), _known(numbers))
        for name, numbers in expected.items()
        if name in judged
    ]
    largest = min(filter(None, compared), key=lambda one: one.p_value, default=None)
    if largest is None or largest.p_value > RUN_DELTA / (len(expected) * tests):
        return None
    return largest


def values_of(
    numbers: Sequence[tuple[float | None, float | None, float | None]], *, temperature: float
) -> dict[str, FloatArray]:
    """The values of labeled pairs by name, without those that their judge does not have.

    Args:
        numbers: `gap_fwd`, `gap_rev` and label mass of each pair; None where there is none.
        temperature: Number by which the gaps are divided.
    """
    forward, reverse, mass = np.array(numbers, dtype=np.float64).reshape(-1, 3).T
    preferences = preference_from_gaps(
        forward / temperature, gaps_in_reverse(forward, reverse) / temperature
    )
    gap = np.where(np.isnan(reverse), np.nan, np.abs(preferences.p_fwd - preferences.p_rev))
    columns = zip(VALUES, (preferences.entropy, gap, mass), strict=True)
    return {name: column for name, column in columns if not np.isnan(column).all()}


def _known(numbers: ArrayLike) -> FloatArray:
    values = np.asarray(numbers, dtype=np.float64)
    known: FloatArray = values[~np.isnan(values)]
    return known


def _compared(name: str, judged: FloatArray, expected: FloatArray) -> Difference | None:
    """Compares two samples of one value; None if one of them is too small."""
    if min(len(expected), len(judged)) < _FEWEST:
        return None
    # The exact distribution fails for samples of thousands, and takes seconds.
    test = ks_2samp(judged, expected, method="asymp")
    above = float(test.statistic_location)
    return Difference(
        value=name,
        above=above,
        share=float((judged > above).mean()),
        expected=float((expected > above).mean()),
        p_value=float(test.pvalue),
    )
