"""Builds the records of the trail of audits."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from app.audits.entries import AlarmEntry, LabelEntry, TrailEntry, written
from scope_judge import records


def audit_trail(name: str, entries: Sequence[TrailEntry], *, limit: int) -> records.AuditTrail:
    """A page of at most `limit` entries."""
    return records.AuditTrail(
        name=name,
        entries=tuple(map(_event, entries)),
        next_before=entries[-1].position if len(entries) == limit else None,
    )


_NOTHING: dict[str, Any] = dict.fromkeys(
    field.name for field in dataclasses.fields(records.AuditEvent)
)


def _event(item: TrailEntry) -> records.AuditEvent:
    """An entry of the trail; fields that its kind does not have are None."""
    entry = item.entry
    fields: dict[str, Any] = {"at": written(entry.at), "by": entry.by}
    if isinstance(entry, LabelEntry):
        fields |= {
            "event": "closed" if item.before is None else "label_changed",
            "reason": entry.reason,
            "id": entry.id,
            "before": item.before,
            "after": entry.label,
        }
        return records.AuditEvent(**_NOTHING | fields)
    criterion = entry.criterion
    fields |= {"alpha": criterion.alpha, "guarantee": criterion.guarantee, "delta": criterion.delta}
    if isinstance(entry, AlarmEntry):
        fields |= {
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
        fields |= {
            "event": "alarm_ended" if entry.because == "version" else "resumed",
            "reason": entry.reason,
            "version": entry.version,
        }
    return records.AuditEvent(**_NOTHING | fields)
