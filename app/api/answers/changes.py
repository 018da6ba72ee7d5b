"""Builds the records of changes of calibration sets: what they do to the alphas in use."""

from collections.abc import Sequence
from typing import Any

from app.api.answers.audits import ended_alarm
from app.api.answers.calibrations import calibration_fields, threshold
from app.api.answers.records import usage_of_request
from app.audits.absorption import Chosen
from app.audits.changes import ChangeReport, Deletion
from app.sets.effects import Effect, criterion_of, missing_labels
from scope_judge import records


def change_fields(report: ChangeReport, *, dry_run: bool) -> dict[str, Any]:
    """The fields of `CalibrationChange`; the last three are None if nobody looked at the change."""
    batch, effects = report.batch, report.effects
    return {
        **calibration_fields(batch.calibration),
        "dry_run": dry_run,
        "added": batch.added,
        "updated": batch.updated,
        "removed": batch.removed,
        "effects": tuple(map(_effect, effects)) if effects is not None else None,
        "ends_alarms": tuple(map(ended_alarm, report.ended)) if effects is not None else None,
        "note": f"{_examples(report)}; {effects_note(effects)}" if effects is not None else None,
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


def rollback_report(report: ChangeReport, *, dry_run: bool) -> records.RollbackReport:
    """Converts the report of a rollback."""
    return records.RollbackReport(**change_fields(report, dry_run=dry_run))


def absorb_report(report: ChangeReport, chosen: Chosen, *, dry_run: bool) -> records.AbsorbReport:
    """Converts the report of an absorption."""
    return records.AbsorbReport(
        **change_fields(report, dry_run=dry_run),
        replaced=chosen.replaces,
        ties=report.batch.ties,
        unlabelled_audits=chosen.unlabelled,
        waiting=chosen.waiting,
        other_judge=chosen.other_judge,
        rates=chosen.rates,
    )


def calibration_report(
    report: ChangeReport, errors: Sequence[records.ExampleError], *, dry_run: bool
) -> records.CalibrationReport:
    """Converts the report of a batch.

    Args:
        report: The new version and the counts of the batch.
        errors: All failed examples: those in the report, and those that could not be parsed.
        dry_run: Whether nothing has changed.
    """
    return records.CalibrationReport(
        **change_fields(report, dry_run=dry_run),
        ties=report.batch.ties,
        failed=len(errors),
        errors=tuple(errors),
        usage=usage_of_request(),
    )


def deletion(preview: Deletion, *, limited_keys: int) -> records.Deletion:
    """Converts a preview.

    Args:
        preview: The preview.
        limited_keys: Number of keys that may use this set and only certain others.
    """
    present = preview.present
    return records.Deletion(
        name=preview.name,
        version=None if present is None else present.version,
        n=None if present is None else present.n,
        in_use=tuple(map(threshold, preview.in_use)),
        audits=preview.audits,
        open_audits=preview.open_audits,
        alarms=tuple(map(ended_alarm, preview.alarms)),
        limited_keys=limited_keys,
        note=_deletion_note(preview, limited_keys),
    )


def _deletion_note(deletion: Deletion, limited_keys: int) -> str:
    """Says in a sentence what a deletion ends, and what stays."""
    lost = [criterion_of(row) for row in deletion.in_use if row.feasible]
    verdicts = (
        f"{', '.join(lost)} {'has' if len(lost) == 1 else 'have'} verdicts, and will get 404 "
        "calibration_not_found"
        if lost
        else "no alpha in use has verdicts"
    )
    back = "its trail stays, but it cannot be read, so a rollback cannot restore this version"
    if deletion.present is not None:
        back = (
            f"its trail stays, so a rollback to version {deletion.present.version} restores its "
            f"{deletion.present.n} examples"
        )
    stay = (
        f"audits ({deletion.audits}, {deletion.open_audits} of them open), active alarms "
        f"({len(deletion.alarms)}) and keys that are limited to it ({limited_keys}) stay"
    )
    return f"{verdicts}; {back}; {stay}"


def _examples(report: ChangeReport) -> str:
    batch = report.batch
    ties = f"{batch.ties} ties, " if batch.ties else ""
    changes = f"{batch.added} added, {batch.updated} updated, {ties}{batch.removed} removed"
    return f"{batch.n_before} examples become {batch.calibration.n} ({changes})"


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
