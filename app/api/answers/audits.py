"""Builds the records of audits: drawn judgments, their labels and the trail."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from app.audits.alarms import Alarm
from app.audits.auditor import AuditPage, LabelReport
from app.audits.entries import (
    AlarmEntry,
    Audit,
    LabelEntry,
    TrailEntry,
    written,
    written_span,
)
from app.audits.text_keeper import PairsToLabel
from app.audits.texts import DrawnTexts
from scope_judge import records


def audit_labels(report: LabelReport) -> records.AuditLabels:
    """Converts a report."""
    return records.AuditLabels(
        labelled=report.labelled,
        closed=report.closed,
        updated=report.updated,
        unchanged=report.unchanged,
        unknown=len(report.unknown),
        expired=len(report.expired),
        unknown_ids=tuple(report.unknown),
        expired_ids=tuple(report.expired),
        earlier=tuple(
            records.EarlierLabel(id=audit, labeler=name) for audit, name in report.earlier.items()
        ),
    )


def audit_page(page: AuditPage) -> records.AuditPage:
    """Converts a page of audits."""
    return records.AuditPage(
        audits=tuple(_audit(audit, at=page.at) for audit in page.audits),
        open=None,
        without_texts=None,
        next_after=page.next_after,
    )


def audit_page_with_texts(pairs: PairsToLabel) -> records.AuditPage:
    """Converts open audits with their texts; long work for long texts."""
    return records.AuditPage(
        audits=tuple(_audit(pair.audit, at=pairs.at, texts=pair.texts) for pair in pairs.pairs),
        open=pairs.open,
        without_texts=pairs.without_texts,
        next_after=pairs.next_after,
    )


def _audit(audit: Audit, *, at: float, texts: DrawnTexts | None = None) -> records.Audit:
    """Converts an audit as it was at a time, in seconds since 1970."""
    return records.Audit(
        id=audit.draw.id if texts is None else texts.id,
        calibration=audit.draw.calibration,
        status=audit.status(at),
        rate=audit.draw.rate,
        drawn_at=written(audit.draw.at),
        drawn_by=audit.draw.by,
        expires_at=written(audit.expires_at),
        label=audit.label,
        labelled_at=None if audit.labelled_at is None else written(audit.labelled_at),
        labelled_by=audit.labelled_by,
        texts=None if texts is None else _pair_texts(texts),
    )


def _pair_texts(texts: DrawnTexts) -> records.PairTexts:
    asked = texts.question
    return records.PairTexts(
        question=asked
        if isinstance(asked, str)
        else tuple(records.Turn(role=turn.role, content=turn.content) for turn in asked),
        response_a=texts.response_a,
        response_b=texts.response_b,
    )


def ended_alarm(alarm: Alarm) -> records.EndedAlarm:
    """Converts an alarm."""
    criterion = alarm.entry.criterion
    assert criterion.alpha is not None, "an alarm has an alpha"
    return records.EndedAlarm(
        alpha=criterion.alpha,
        guarantee=criterion.guarantee,
        delta=criterion.delta,
        rang_at=written(alarm.entry.at),
    )


def resumed(name: str, ended: Sequence[Alarm]) -> records.Resumed:
    """Converts the alarms that were ended."""
    return records.Resumed(name=name, resumed=tuple(map(ended_alarm, ended)))


def audit_trail(name: str, entries: Sequence[TrailEntry], *, limit: int) -> records.AuditTrail:
    """Converts a page of at most `limit` entries."""
    return records.AuditTrail(
        name=name,
        entries=tuple(map(_event, entries)),
        next_before=entries[-1].position if len(entries) == limit else None,
    )


_EVENT_FIELDS = [field.name for field in dataclasses.fields(records.AuditEvent)]


def _event(item: TrailEntry) -> records.AuditEvent:
    """Converts an entry of the trail; fields that its kind does not have are None."""
    entry = item.entry
    of_kind: dict[str, Any]
    if isinstance(entry, LabelEntry):
        of_kind = {
            "event": "closed" if item.before is None else "label_changed",
            "reason": entry.reason,
            "id": entry.id,
            "before": item.before,
            "after": entry.label,
        }
    else:
        criterion = entry.criterion
        of_kind = {
            "alpha": criterion.alpha,
            "guarantee": criterion.guarantee,
            "delta": criterion.delta,
        }
        if isinstance(entry, AlarmEntry):
            of_kind |= {
                "event": "alarm",
                "version": entry.decider.version,
                "errors": entry.errors,
                "audited": entry.audited,
                "suspended": entry.suspends,
                "audits": entry.needed,
                **written_span(entry.raised.span),
            }
        else:
            of_kind |= {
                "event": "alarm_ended" if entry.because == "version" else "resumed",
                "reason": entry.reason,
                "version": entry.version,
            }
    fields: dict[str, Any] = dict.fromkeys(_EVENT_FIELDS)
    return records.AuditEvent(**fields | {"at": written(entry.at), "by": entry.by} | of_kind)
