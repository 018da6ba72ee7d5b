"""Audits of a set as rows: drawn comparisons with their labels, and the entries of their trail.

The store keeps each row as one JSON object, and the position of its last change. Positions grow
with each change of the set's audits, and follow the clock: a position is a time in microseconds
since 1970, or one more than the position before. A draw keeps its place in the order of draws,
which is a position, too, though rows change later.

The digest of a comparison ignores the order of its two responses, and so must a draw. The id of a
draw is 127 bits for the comparison, and one last bit for the order. So a label is understood in the
order that its sender judged, whichever order was judged first.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from app.core.comparison import MIRRORED, Criterion
from app.core.fingerprint import drawn_pair
from app.core.preference import Score
from app.ports import StoredRow
from scope_judge import records
from scope_judge.records import AuditLabel as AuditLabel
from scope_judge.records import Status

DrawId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# No number is read from a text, or a truth value from a number.
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
# Thousands of rows share these names, which are kept once.
_Name = Annotated[str, AfterValidator(sys.intern)]
# A number that every store keeps.
_Version = Annotated[int, Field(ge=0, lt=2**63)]
_Count = Annotated[int, Field(ge=0)]


# Thousands of rows share a criterion.
@lru_cache(maxsize=1024)
def _with_alpha(criterion: Criterion) -> Criterion:
    for share in (criterion.alpha, 0.5 if criterion.delta is None else criterion.delta):
        if share is None or not 0.0 < share < 1.0:
            raise ValueError("alpha and delta must be in (0, 1)")
    return criterion


_Criterion = Annotated[Criterion, AfterValidator(_with_alpha)]


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelEntry:
    """A label by a key for a draw, in the order of the id; "none" closes the draw with a reason."""

    id: DrawId
    label: AuditLabel
    by: str
    at: float
    reason: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Use:
    """One drawn judgment of a comparison, the first one by its criterion and version.

    Args:
        position: Its place in the order of draws.
        write_id: Write id of the version of the set that decided it.
    """

    __pydantic_config__ = _STRICT

    position: Annotated[int, Field(gt=0, lt=2**63)]
    criterion: _Criterion
    write_id: _Name
    version: _Version
    accepted: bool
    by: _Name
    at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """One drawn comparison with its label, in the order of its first judgment.

    Args:
        digest: Digest of the comparison, from `core.fingerprint.example_digest`.
        question: Digest of the question, from `core.fingerprint.question_digest`.
        wait_s: Seconds after its last use until which it waits for its label.
        uses: Its drawn judgments, one for each criterion and version, in the order of the draws.
        label: Its present label; "none" if it was closed without one.
        labelled_at: Time of its first label, or at which it was closed first.
        labelled_by: Name of the key that sent its present label, or closed it.
    """

    __pydantic_config__ = _STRICT

    id: DrawId
    fingerprint: Annotated[_Digest, AfterValidator(sys.intern)]
    digest: _Digest
    question: _Digest
    score: Score
    rate: Annotated[float, Field(gt=0.0, le=1.0)]
    wait_s: Annotated[float, Field(gt=0.0)]
    uses: Annotated[tuple[Use, ...], Field(min_length=1)]
    label: AuditLabel | None = None
    labelled_at: float | None = None
    labelled_by: str | None = None
    label_changes: _Count = 0
    has_texts: bool = False

    @property
    def key(self) -> str:
        """Key of its row, which both orders of the pair share."""
        return pair_of(self.id)

    @property
    def calibration(self) -> str:
        """Name of the calibration set."""
        return self.uses[0].criterion.calibration

    @property
    def position(self) -> int:
        """Its place in the order of draws."""
        return self.uses[0].position

    @property
    def place(self) -> tuple[int, str]:
        """The same without ties: draws of two replicas may have one position."""
        return self.position, self.id

    @property
    def expires_at(self) -> float:
        """Time until which it waits for its label; each new use prolongs it."""
        return max(use.at for use in self.uses) + self.wait_s

    @property
    def last_change(self) -> float:
        """Time of its last use or first label, in seconds since 1970."""
        return max(self.labelled_at or 0.0, *(use.at for use in self.uses))

    def has_use(self, criterion: Criterion, write_id: str) -> bool:
        """Whether it was drawn under a criterion by a version."""
        return any(use.criterion == criterion and use.write_id == write_id for use in self.uses)

    def label_of(self, identifier: str) -> AuditLabel | None:
        """Returns the label in the order of an id of this draw."""
        return None if self.label is None else self._turned(self.label, identifier)

    def _turned(self, label: AuditLabel, identifier: str) -> AuditLabel:
        """Turns a label between the order of this draw and that of an id of it."""
        return label if self.id == identifier or label == "none" else MIRRORED[label]

    def status(self, now: float) -> Status:
        """Returns the status at a time, in seconds since 1970."""
        if self.label is not None:
            return "closed" if self.label == "none" else "labelled"
        return "open" if now <= self.expires_at else "expired"

    def used(self, use: Use) -> "Audit":
        """Returns the audit with one more use."""
        return replace(self, uses=(*self.uses, use))

    def labelled(self, entry: LabelEntry) -> "Audit":
        """Returns the audit with a label, and without texts."""
        label = self._turned(entry.label, entry.id)
        return replace(
            self,
            label=label,
            labelled_at=entry.at if self.labelled_at is None else self.labelled_at,
            labelled_by=entry.by,
            label_changes=self.label_changes + (self.label not in (None, label)),
            has_texts=False,
        )

    def record(self, now: float) -> records.Audit:
        """Returns what callers see of it at a time, without its texts."""
        return records.Audit(
            id=self.id,
            calibration=self.calibration,
            status=self.status(now),
            rate=self.rate,
            drawn_at=written(self.uses[0].at),
            drawn_by=self.uses[0].by,
            expires_at=written(self.expires_at),
            label=self.label,
            labelled_at=None if self.labelled_at is None else written(self.labelled_at),
            labelled_by=self.labelled_by,
            texts=None,
        )


@dataclass(frozen=True, kw_only=True)
class TrailEntry(records.AuditEvent):
    """An entry of the trail of a set's audits, as it is stored and shown.

    Args:
        write_id: Write id of the version whose labels have proved more errors; for an alarm only.
        follows: The place behind which it belongs, so that only the first of two equal entries is
            kept. For an alarm it is the position at which the alarm before ended, for an end the
            position of its alarm, for a label the number of changes that the draw's label had.
        position: Its place in the trail, which is the position of its row.
    """

    __pydantic_config__ = _STRICT

    id: DrawId | None
    version: _Version | None
    write_id: str | None = None
    follows: _Version = 0
    position: Annotated[int, Field(exclude=True)] = 0

    @classmethod
    def of(cls, **known: Any) -> "TrailEntry":
        """Makes an entry; fields that its kind does not have are None."""
        fields: dict[str, Any] = dict.fromkeys(_EVENT_FIELDS)
        return cls(**fields | known)

    @property
    def times(self) -> dict[str, Any]:
        """The fields of `AlarmTimes`."""
        return {"rang_at": self.at, "rang_version": self.version}

    @property
    def ended_alarm(self) -> records.EndedAlarm:
        """The alarm with its end, as callers see it."""
        return records.EndedAlarm(**in_fields(self), rang_at=self.at)


_EVENT_FIELDS = [field.name for field in fields(records.AuditEvent)]
Row = Audit | TrailEntry


def key_of_row(row: Row) -> str:
    """The key of a row in the store; that of an audit is the key of both orders of its pair."""
    if isinstance(row, Audit):
        return row.key
    if row.id is not None:
        return f"label {row.follows} of {pair_of(row.id)}"
    if row.event == "alarm":
        return f"alarm after {row.follows} of {row.guarantee} {row.alpha!r} {row.delta!r}"
    return f"end of {row.follows}"


def pair_of(identifier: str) -> str:
    """The key of the row of an id in either order."""
    return f"{drawn_pair(identifier):032x}"


def to_text(row: Row) -> str:
    """Writes a row for the store."""
    return _ROW.dump_json(row).decode()


def read_row(stored: StoredRow) -> Row | None:
    """Reads a row; None for a text that is none. One such text must not hide the other rows."""
    try:
        row = _ROW.validate_json(stored.text)
    except ValueError:
        return None
    return replace(row, position=stored.position) if isinstance(row, TrailEntry) else row


def written(at: float) -> str:
    """Writes the time of an entry in ISO 8601, UTC, to the second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# The fields of `AlarmTimes` without an alarm.
NO_ALARM: Mapping[str, Any] = {"rang_at": None, "rang_version": None}


def in_fields(criterion: Criterion | records.AuditEvent) -> dict[str, Any]:
    """Returns alpha, guarantee and delta of a criterion, which has an alpha."""
    return {"alpha": criterion.alpha, "guarantee": criterion.guarantee, "delta": criterion.delta}


_ROW: TypeAdapter[Row] = TypeAdapter(Audit | TrailEntry)
