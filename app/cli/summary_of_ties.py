"""Says how many pairs of a set are ties: the promise of a threshold leaves them out."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge import CalibrationDetail
    from scope_judge.records import Threshold


def labeled_and_ties(detail: "CalibrationDetail") -> str:
    """Says how many pairs are labeled, and how many of these are ties."""
    labeled = detail.labelled + detail.pool_ties
    return f"{labeled} pairs labeled, of these {detail.pool_ties} ties"


def ties_of_row(row: "Threshold") -> str | None:
    """Says the share of ties among the pairs that a threshold accepts; None if it accepts none."""
    if row.tie_share is None or row.tie_interval is None:
        return None
    low, high = row.tie_interval
    return f"{row.tie_share:.1%} of the accepted ones are ties ({low:.1%} to {high:.1%})"


def ties_in_lines(detail: "CalibrationDetail") -> Iterator[str]:
    """Yields a line about the labels, and one about each guarantee that accepts ties."""
    yield f"{labeled_and_ties(detail)}, {detail.unlabelled} without a label."
    for row in detail.thresholds:
        told = ties_of_row(row)
        if row.tie_share and told is not None:
            delta = "" if row.delta is None else f", delta {row.delta:g}"
            yield f"alpha {row.alpha:g} ({row.guarantee}{delta}): {told}; no promise is about them."
