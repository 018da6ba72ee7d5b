"""The effects of a change of a calibration set, shown before somebody is asked about it."""

from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.console import print_cells, say, threshold_cell

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge.records import (
        AbsorbReport,
        AuditEvent,
        CalibrationChange,
        CalibrationReport,
        Deletion,
        Effect,
        EndedAlarm,
        MonitoredCriterion,
        Threshold,
    )

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
EvenIfInfeasible = Annotated[
    bool,
    typer.Option(
        "--even-if-infeasible",
        help="Change the set even if an alpha in use gets no more verdicts.",
    ),
]

_CRITERION = ("alpha", "guarantee", "delta")
_BEFORE_AND_AFTER = (
    "threshold before",
    "threshold after",
    "coverage before",
    "coverage after",
    "labels missing",
)
_PRESENT = ("threshold", "coverage")


def show_change(name: str, would: "AbsorbReport | CalibrationReport | CalibrationChange") -> None:
    """Prints what a change would do: a sentence, and a row for each alpha in use."""
    say(f"{name}, version {would.version}: {would.note}.")
    if would.effects:
        rows = map(_effect_cells, would.effects)
        print_cells((*_CRITERION, *_BEFORE_AND_AFTER), rows, right={"alpha", *_BEFORE_AND_AFTER})
    for alarm in would.ends_alarms or ():
        say(f"It ends the alarm of {alarm.rang_at} under {criterion_in_words(alarm)}.")


def show_deletion(name: str, would: "Deletion") -> None:
    """Prints what the deletion of a set would do."""
    version = "which cannot be read" if would.version is None else f"version {would.version}"
    say(f"{name}, {version}: {would.note}.")
    if would.in_use:
        rows = ([*_criterion_cells(row), *_row_cells(row)] for row in would.in_use)
        print_cells((*_CRITERION, *_PRESENT), rows, right={"alpha", *_PRESENT})


def criterion_in_words(of: "AuditEvent | EndedAlarm | MonitoredCriterion") -> str:
    """The criterion of an alarm in words."""
    delta = "" if of.delta is None else f", delta {of.delta:g}"
    return f"alpha {of.alpha:g} ({of.guarantee}{delta})"


def _effect_cells(effect: "Effect") -> list[str]:
    missing = "not known to help" if effect.more_labels is None else str(effect.more_labels or "")
    if effect.after.labels_missing:
        missing = ""
    pairs = zip(_row_cells(effect.before), _row_cells(effect.after), strict=True)
    return [*_criterion_cells(effect.after), *chain.from_iterable(pairs), missing]


def _criterion_cells(row: "Threshold") -> list[str]:
    return [f"{row.alpha:g}", row.guarantee, "" if row.delta is None else f"{row.delta:g}"]


def _row_cells(row: "Threshold") -> list[str]:
    return [threshold_cell(row), f"{row.coverage:.3f}"]
