"""Entries of the trail of a calibration set: who changed the set, when, and with what effect.

Each change makes a version. The trail is the list of all changes; the store keeps the last versions
themselves.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from app.core.calibration import Calibration
from app.core.errors import StoreCorruptError
from app.sets.codec import thresholds_of

# Fields with their usual values, which a record leaves out.
_NOT_WRITTEN: Mapping[str, Any] = {
    "unlabelled": 0,
}

Action = Literal["absorb", "calibrate", "delete", "import", "plan", "pool", "rollback"]
Thresholds = Mapping[str, float | None]
_Count = Annotated[int, Field(ge=0, lt=2**63)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """A requested change of a set, before it has a version number.

    Args:
        action: The requested action.
        by: Name of the key that requested the change, or "service".
        at: Time of the change, in UTC.
        added: Number of new examples.
        updated: Number of examples that the set already had, including repetitions in the batch.
        ties: Number of examples without a preferred side.
        removed: Number of examples removed from the set; None if the set could not be read.
        failed: Number of examples that could not be parsed or judged.
        batch_digest: Digest from `core.fingerprint.batch_digest`; None without a batch.
        rolled_back_to: The version that a rollback restores; None for other actions.
    """

    action: Action
    by: str
    at: datetime
    added: int = 0
    updated: int = 0
    ties: int = 0
    removed: int | None = 0
    failed: int = 0
    batch_digest: str | None = None
    rolled_back_to: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One change of a set: an entry of its trail, as it is stored and shown.

    The fields that `Edit` also has mean the same here.

    Args:
        version: Number of the version that the change made; a deletion takes a number too.
        write_id: Write id of that version; None for a deletion.
        action: An `Action`, or the name of an action that a later release added.
        at: Time of the change in UTC, in ISO 8601 to the second.
        by: Name of the key that requested the change, or "service".
        batch_digest: Digest of the labeled batch; None without a batch.
        added: Number of new examples.
        updated: Number of examples that the set already had.
        ties: Number of examples without a preferred side.
        removed: Number of examples removed from the set; None if the set could not be read.
        failed: Number of examples that could not be parsed or judged.
        n: Number of examples after the change.
        min_label_mass: Setting of the service that made the change. The thresholds before and after
            were computed with it. None if a deleted set could not be read.
        judge: Name of the judge of the set; None if a deleted set could not be read.
        fingerprint: Fingerprint of that judge; None if a deleted set could not be read.
        rolled_back_to: The version that a rollback restored; None for other actions.
        thresholds_before: "guarantee:alpha" -> lambda_hat in nats, None if infeasible. The whole
            mapping is None if there was no set or the set could not be read.
        thresholds_after: The thresholds after the change, in the same form; None for a deletion.
        unlabelled: Number of pairs without a label after the change. Both mappings leave out the
            thresholds that depend on missing labels.
    """

    # No number is read from a text, or a count from a truth value.
    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False)

    version: _Count
    write_id: str | None
    action: str
    at: str
    by: str
    batch_digest: str | None
    added: _Count
    updated: _Count
    ties: _Count
    removed: _Count | None
    failed: _Count
    n: _Count
    min_label_mass: float | None
    judge: str | None
    fingerprint: str | None
    rolled_back_to: _Count | None
    thresholds_before: Thresholds | None
    thresholds_after: Thresholds | None
    unlabelled: _Count = 0

    @classmethod
    def of(
        cls, number: int, before: Calibration | None, after: Calibration | None, edit: Edit
    ) -> "Change":
        """Makes the entry of an edit.

        Args:
            number: Number of the version that the change makes.
            before: The set before the change; None if there was none or it could not be read.
            after: The set after the change; None for a deletion.
            edit: The requested change and its effect on the examples.
        """
        subject = after or before
        return cls(
            **{**asdict(edit), "at": edit.at.strftime("%Y-%m-%dT%H:%M:%SZ")},
            version=number,
            write_id=after.write_id if after else None,
            n=after.n if after else 0,
            min_label_mass=subject.min_label_mass if subject else None,
            judge=subject.judge if subject else None,
            fingerprint=subject.fingerprint if subject else None,
            thresholds_before=thresholds_of(before) if before else None,
            thresholds_after=thresholds_of(after) if after else None,
            unlabelled=after.unlabelled if after else 0,
        )

    @classmethod
    def parse(cls, name: str, record: str) -> "Change":
        """Parses a stored entry; fields that a later release added are ignored.

        Args:
            name: Name of the calibration set, for the error.
            record: The stored JSON.

        Raises:
            StoreCorruptError: The record is not an entry, or a field has an impossible value.
        """
        try:
            return _CHANGE.validate_json(record)
        except ValueError as exc:
            raise StoreCorruptError(
                f"the trail of calibration {name!r} holds an entry that this version did not write"
            ) from exc

    @property
    def record(self) -> str:
        """The entry as the store keeps it: JSON without spaces."""
        fields = asdict(self)
        for name, usual in _NOT_WRITTEN.items():
            if fields[name] == usual:
                del fields[name]
        return json.dumps(fields, separators=(",", ":"))


_CHANGE = TypeAdapter(Change)
