"""Builds the records of changes of calibration sets: what they do to the alphas in use."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from app.api.answers.calibrations import calibration_fields, threshold
from app.api.answers.records import usage_of_request
from app.audits.absorption import Chosen
from app.audits.book import Book
from app.core.calibration import Calibration
from app.core.threshold_rows import ThresholdRow
from app.sets.effects import Effect, criterion_of, missing_labels
from app.sets.trail import SetChange
from scope_judge import records


def change_fields(change: SetChange, *, dry_run: bool) -> dict[str, Any]:
    """The fields of `CalibrationChange`; the last three are None if nobody looked at the change."""
    effects = change.effects
    return {
        **calibration_fields(change.calibration),
        "dry_run": dry_run,
        "added": change.added,
        "updated": change.updated,
        "removed": change.removed,
        "effects": tuple(map(_effect, effects)) if effects is not None else None,
        "ends_alarms": change.ended if effects is not None else None,
        "note": f"{_examples(change)}; {effects_note(effects)}" if effects is not None else None,
    }


def _effect(effect: Effect) -> records.Effect:
    return records.Effect(
        alpha=effect.after.alpha,
        guarantee=effect.after.guarantee,
        delta=effect.after.delta,
        before=threshold(effect.before),
        after=threshold(effect.after),
        becomes_infeasible=effect.becomes_infeasible,
        more_labels=effect.more_labels,
    )


def rollback_report(change: SetChange, *, dry_run: bool) -> records.RollbackReport:
    """Converts the report of a rollback."""
    return records.RollbackReport(**change_fields(change, dry_run=dry_run))


def absorb_report(change: SetChange, chosen: Chosen, *, dry_run: bool) -> records.AbsorbReport:
    """Converts the report of an absorption."""
    return records.AbsorbReport(
        **change_fields(change, dry_run=dry_run),
        replaced=chosen.replaces,
        ties=change.ties,
        unlabelled_audits=chosen.unlabelled,
        waiting=chosen.waiting,
        other_judge=chosen.other_judge,
        rates=chosen.rates,
    )


def calibration_report(
    change: SetChange, errors: Sequence[records.ExampleError], *, dry_run: bool
) -> records.CalibrationReport:
    """Converts the report of a batch.

    Args:
        change: The new version and the counts of the batch.
        errors: All failed examples: those of the change, and those that could not be parsed.
        dry_run: Whether nothing has changed.
    """
    return records.CalibrationReport(
        **change_fields(change, dry_run=dry_run),
        ties=change.ties,
        failed=len(errors),
        errors=tuple(errors),
        usage=usage_of_request(),
    )


def deletion(
    name: str,
    present: Calibration | None,
    in_use: Sequence[ThresholdRow],
    book: Book,
    *,
    now: float,
    limited_keys: int,
) -> records.Deletion:
    """Says what the deletion of a set ends.

    Args:
        name: Name of the set.
        present: The set; None if it cannot be read.
        in_use: The row of each criterion in use.
        book: Its audits, which stay with their active alarms.
        now: The time in seconds since 1970.
        limited_keys: Number of keys that may use this set and only certain others.
    """
    made = records.Deletion(
        name=name,
        version=None if present is None else present.version,
        n=None if present is None else present.n,
        in_use=tuple(map(threshold, in_use)),
        audits=len(book.audits),
        open_audits=len(book.open(now)),
        alarms=tuple(alarm.record for alarm in book.alarms.standing()),
        limited_keys=limited_keys,
        note="",
    )
    lost = [criterion_of(row) for row in in_use if row.feasible]
    return replace(made, note=_deletion_note(made, lost))


def _deletion_note(deletion: records.Deletion, lost: Sequence[str]) -> str:
    """Says in a sentence what a deletion ends, and what stays."""
    verdicts = (
        f"{', '.join(lost)} {'has' if len(lost) == 1 else 'have'} verdicts, and will get 404 "
        "calibration_not_found"
        if lost
        else "no alpha in use has verdicts"
    )
    back = "its trail stays, but it cannot be read, so a rollback cannot restore this version"
    if deletion.version is not None:
        back = (
            f"its trail stays, so a rollback to version {deletion.version} restores its "
            f"{deletion.n} examples"
        )
    stay = (
        f"audits ({deletion.audits}, {deletion.open_audits} of them open), active alarms "
        f"({len(deletion.alarms)}) and keys that are limited to it ({deletion.limited_keys}) stay"
    )
    return f"{verdicts}; {back}; {stay}"


def _examples(change: SetChange) -> str:
    ties = f"{change.ties} ties, " if change.ties else ""
    changes = f"{change.added} added, {change.updated} updated, {ties}{change.removed} removed"
    return f"{change.before.n} examples become {change.calibration.n} ({changes})"


def effects_note(effects: Sequence[Effect]) -> str:
    """Says in a sentence what a change does to the criteria in use."""
    lost = [effect for effect in effects if effect.becomes_infeasible]
    if lost:
        one = min(lost, key=lambda effect: effect.after.alpha)
        others = f", and so have {len(lost) - 1} others" if len(lost) > 1 else ""
        return f"{one.criterion} gets no more verdicts{others}: {missing_labels(one)}"
    feasible = [effect for effect in effects if effect.after.feasible]
    if not feasible:
        return "no alpha in use is feasible, before or after" if effects else "no alpha is in use"
    one = min(feasible, key=lambda effect: effect.after.coverage - effect.before.coverage)
    return (
        f"no alpha in use loses its verdicts; at {one.criterion} the share of accepted examples "
        f"goes from {one.before.coverage:.0%} to {one.after.coverage:.0%}"
    )
