"""Builds the records of audits: drawn judgments, their labels and the trail."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from app.audits.entries import AlarmEntry, LabelEntry, TrailEntry, in_fields, written
from scope_judge import records


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
        of_kind = in_fields(entry.criterion)
        if isinstance(entry, AlarmEntry):
            of_kind |= {
                "event": "alarm",
                "version": entry.decider.version,
                "errors": entry.errors,
                "audited": entry.audited,
                "suspended": entry.suspends,
                "audits": entry.needed,
                "first_judged_at": written(entry.first_judged_at),
                "last_judged_at": written(entry.last_judged_at),
            }
        else:
            of_kind |= {
                "event": "alarm_ended" if entry.because == "version" else "resumed",
                "reason": entry.reason,
                "version": entry.version,
            }
    fields: dict[str, Any] = dict.fromkeys(_EVENT_FIELDS)
    return records.AuditEvent(**fields | {"at": written(entry.at), "by": entry.by} | of_kind)
