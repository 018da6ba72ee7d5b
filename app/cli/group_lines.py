"""The groups of a calibration set in lines: their pairs, and their error at each alpha in use."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge.records import CalibrationDetail, GroupPairs, GroupRow


def lines_of_groups(detail: "CalibrationDetail") -> Iterator[str]:
    """Yields the lines of each group of a set."""
    for group in detail.groups:
        yield f"group {group.group}: {group.n} pairs{_whose(group, by_group=detail.by_group)}"
        for row in detail.group_rows:
            if row.group == group.group:
                yield f"  {_criterion(row)}: {_effect(row)}"


def _whose(group: "GroupPairs", *, by_group: bool) -> str:
    """Says whose thresholds judge a group of a set by group."""
    if not by_group:
        return ""
    if group.threshold_of == group.group:
        return ", with separate thresholds"
    return f", {group.more_pairs} too few for separate thresholds: judged by those of the set"


def _criterion(row: "GroupRow") -> str:
    delta = "" if row.delta is None else f", delta {row.delta:g}"
    return f"alpha {row.alpha:g} ({row.guarantee}{delta})"


def _effect(row: "GroupRow") -> str:
    if row.errors is None:
        return "pairs of the group have no label yet"
    if row.error is None or row.error_interval is None:
        return "no pair gets a verdict"
    low, high = (f"{share:.1%}" for share in row.error_interval)
    return (
        f"{row.coverage:.0%} of the pairs get a verdict, {row.error:.1%} of these are wrong "
        f"({low} to {high})"
    )
