"""JSON about changes of calibration sets: what they do to the alphas in use."""

from collections.abc import Sequence
from typing import Any

from app.core.comparison import Guarantee
from app.service.auditing.changes import ChangeReport, Deletion
from app.service.calibration.effects import Effect, criterion_of, missing_labels
from app.wire.answers import Out, RequestUsageOut
from app.wire.audits import ResumedOut
from app.wire.calibrations import (
    CalibrationOut,
    ExampleErrorOut,
    ThresholdOut,
    calibration_fields,
)


class EffectOut(Out):
    """The effect of a change on one criterion in use.

    `more_labels` is the number of further labels that make an infeasible alpha feasible after the
    change if the error rates stay the same; 0 if it is feasible, null if no number does.
    """

    alpha: float
    guarantee: Guarantee
    delta: float | None
    before: ThresholdOut
    after: ThresholdOut
    becomes_infeasible: bool
    more_labels: int | None

    @classmethod
    def of(cls, effect: Effect) -> "EffectOut":
        """Converts an effect."""
        return cls(
            alpha=effect.after.alpha,
            guarantee=effect.after.guarantee,
            delta=effect.after.delta,
            before=ThresholdOut.of(effect.before),
            after=ThresholdOut.of(effect.after),
            becomes_infeasible=effect.becomes_infeasible,
            more_labels=effect.more_labels,
        )


class ChangeOut(CalibrationOut):
    """The calibration set after a change, with its effects on the criteria in use."""

    dry_run: bool
    added: int
    updated: int
    removed: int
    effects: list[EffectOut]
    ends_alarms: list[ResumedOut]
    note: str


def change_fields(report: ChangeReport, *, dry_run: bool) -> dict[str, Any]:
    """The fields of `ChangeOut`; the last three are None if nobody looked at the change."""
    batch, found = report.batch, report.consequences
    return {
        **calibration_fields(batch.calibration),
        "dry_run": dry_run,
        "added": batch.added,
        "updated": batch.updated,
        "removed": batch.removed,
        "effects": None if found is None else [EffectOut.of(each) for each in found.effects],
        "ends_alarms": None if found is None else [ResumedOut.of(each) for each in found.ended],
        "note": None if found is None else f"{_examples(report)}; {effects_note(found.effects)}",
    }


class RollbackOut(ChangeOut):
    """The calibration set after a rollback, with its effects on the criteria in use.

    `removed` and `updated` count the examples of the current version that leave it or get their
    earlier label back. With `dry_run` nothing has changed: the set is described as it would be,
    with the number of its last change.
    """

    @classmethod
    def of(cls, report: ChangeReport, *, dry_run: bool) -> "RollbackOut":
        """Converts a report."""
        return cls(**change_fields(report, dry_run=dry_run))


class CalibrateOut(CalibrationOut):
    """The calibration set after a batch was added, with the counts and errors of that batch.

    With `dry_run` nothing has changed: the set is described as it would be, with the number of the
    current version. `effects`, `ends_alarms` and `note` are null without `dry_run` and `replace`.
    """

    added: int
    updated: int
    ties: int
    removed: int
    failed: int
    errors: list[ExampleErrorOut]
    dry_run: bool
    effects: list[EffectOut] | None
    ends_alarms: list[ResumedOut] | None
    note: str | None
    usage: RequestUsageOut

    @classmethod
    def of(
        cls, report: ChangeReport, errors: list[ExampleErrorOut], *, dry_run: bool
    ) -> "CalibrateOut":
        """Converts a report.

        Args:
            report: The new version and the counts of the batch.
            errors: All failed examples: those in the report, and those that could not be parsed.
            dry_run: Whether nothing has changed.
        """
        return cls(
            **change_fields(report, dry_run=dry_run),
            ties=report.batch.ties,
            failed=len(errors),
            errors=errors,
            usage=RequestUsageOut.of_request(),
        )


class DeletionOut(Out):
    """The consequences of the deletion of a calibration set, which is still there.

    Judgments under each alpha of `in_use` get 404 `calibration_not_found` after it. Trail, audits,
    alarms and keys stay. `version` and `n` are null if the set cannot be read.
    """

    name: str
    version: int | None
    n: int | None
    in_use: list[ThresholdOut]
    audits: int
    open_audits: int
    alarms: list[ResumedOut]
    limited_keys: int
    note: str

    @classmethod
    def of(cls, deletion: Deletion, *, limited_keys: int) -> "DeletionOut":
        """Converts a preview.

        Args:
            deletion: The preview.
            limited_keys: Number of keys that may use this set and only certain others.
        """
        present = deletion.present
        return cls(
            name=deletion.name,
            version=None if present is None else present.version,
            n=None if present is None else present.n,
            in_use=[ThresholdOut.of(row) for row in deletion.in_use],
            audits=deletion.audits,
            open_audits=deletion.open_audits,
            alarms=[ResumedOut.of(alarm) for alarm in deletion.alarms],
            limited_keys=limited_keys,
            note=_deletion_note(deletion, limited_keys),
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
