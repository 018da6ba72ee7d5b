"""Refuses changes of a set that its planned looks do not allow.

The looks keep their promise because sizes, pairs, alpha, delta and the coverage that suffices are
fixed before the first label.
"""

from collections.abc import Sequence

from app.core.calibration import Calibration, LabelledExample
from app.core.errors import InvalidRequestError


def refuse_unplanned(
    after: Calibration, before: Calibration | None, new: Sequence[LabelledExample]
) -> None:
    """Raises InvalidRequestError if a change breaks the plan of a set.

    Args:
        after: The set after the change.
        before: The set before it; None if the change replaces all pairs.
        new: The pairs that the change adds.
    """
    has_labels = before is not None and before.unlabelled < before.n
    if before is not None and has_labels and after.looks != before.looks:
        raise _refused(
            "the set has labels, and its looks are fixed with the first one: plan looks for a new "
            "set"
        )
    if after.looks is None:
        return
    if after.by_group:
        raise _refused("groups have no separate thresholds in a set with planned looks")
    if before is not None and new and (has_labels or _brings_labels(before, new)):
        raise _refused(
            "a set with planned looks takes pairs before its first label only, and takes them from "
            'its pool: use a new set, or replace all its pairs ("replace": true)'
        )
    missing = after.looks.last - after.n
    if missing > 0 and after.unlabelled < after.n:
        raise _refused(
            f"the last look has {after.looks.last} pairs, and the pool has {after.n}: add "
            f"{missing} more before the first label"
        )


def _brings_labels(before: Calibration, new: Sequence[LabelledExample]) -> bool:
    """Whether labelled pairs join a set that has pairs; a set that is imported whole may."""
    return before.n > 0 and any(example.label is not None for example in new)


def _refused(reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"looks: {reason}", faults=(("looks", reason),))
