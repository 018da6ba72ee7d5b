"""Changes of a calibration set, and their entries in its trail.

Each change makes a version. The trail is the list of all changes; the store keeps the last versions
themselves.
"""

import json
import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal

from pydantic import ConfigDict, TypeAdapter

from app.core.calibration import Calibration
from app.core.errors import ScopeJudgeError
from app.ports import Entry
from app.sets.codec import thresholds_of
from scope_judge import records

logger = logging.getLogger("app.calibrations")

Action = Literal["absorb", "calibrate", "delete", "import", "plan", "pool", "rollback"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SetChange:
    """A change of a set: made, or only looked at.

    Args:
        before: The set before it; one without examples and write id if there was none, or if it
            could not be read.
        after: The set after it, `before` itself if nothing changes; None for a deletion.
        updated: Number of examples that the set already had or that the batch repeats. The last
            label counts.
        ties: Number of examples without a preferred side; the set keeps them for their scores.
        removed: Number of examples removed from the set; None if the set could not be read.
        changed_labels: Digests of the pairs whose label is another one than before.
        unread: Number of posted examples that could not be parsed.
        failed: (index in the batch, error) of each example that could not be judged.
        rolled_back_to: The version that a rollback restores; None for other actions.
        effects: The effect on each criterion in use; None if nobody looked at it.
        ended: The active alarms that it ends.
    """

    action: Action
    by: str
    at: datetime
    before: Calibration
    after: Calibration | None
    added: int = 0
    updated: int = 0
    ties: int = 0
    removed: int | None = 0
    changed_labels: tuple[str, ...] = ()
    unread: int = 0
    failed: tuple[tuple[int, ScopeJudgeError], ...] = ()
    rolled_back_to: int | None = None
    effects: tuple[records.Effect, ...] | None = None
    ended: tuple[records.EndedAlarm, ...] = ()

    @property
    def calibration(self) -> Calibration:
        """The set after a change that is no deletion."""
        assert self.after is not None, "a deletion leaves no set"
        return self.after

    @property
    def present(self) -> Calibration | None:
        """The set before the change; None if there was none or it could not be read."""
        return self.before if self.before.write_id else None


class Change(records.Version):
    """An entry of a trail, as it is stored and shown."""

    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False)

    @classmethod
    def of(cls, number: int, change: SetChange) -> "Change":
        """Makes the entry of a change with this number."""
        after, present = change.after, change.present
        subject = after or present
        return cls(
            version=number,
            write_id=after.write_id if after else None,
            action=change.action,
            at=change.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            by=change.by,
            added=change.added,
            updated=change.updated,
            ties=change.ties,
            removed=change.removed,
            failed=len(change.failed) + change.unread,
            n=after.n if after else 0,
            min_label_mass=subject.min_label_mass if subject else None,
            judge=subject.judge if subject else None,
            fingerprint=subject.fingerprint if subject else None,
            rolled_back_to=change.rolled_back_to,
            thresholds_before=thresholds_of(present) if present else None,
            thresholds_after=thresholds_of(after) if after else None,
            unlabelled=after.unlabelled if after else 0,
        )

    @property
    def record(self) -> str:
        """The entry as the store keeps it: JSON without spaces."""
        return json.dumps(asdict(self), separators=(",", ":"))


_CHANGE = TypeAdapter(Change)


def readable_changes(name: str, entries: Iterable[Entry]) -> list[Change]:
    """Reads entries of a trail, without fields that a later release added.

    Entries that this version did not write are logged and left out, so that they do not hide the
    others.
    """
    changes = list[Change]()
    for entry in entries:
        try:
            changes.append(_CHANGE.validate_json(entry.record))
        except ValueError:
            logger.warning(
                "entry %d of the trail of calibration %r is left out: this version cannot read it",
                entry.head.number,
                name,
            )
    return changes
