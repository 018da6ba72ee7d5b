"""JSON requests and answers about audits: drawn judgments and their labels."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

from app.core.comparison import Label
from app.service.auditing.absorption import AbsorbReport, Period
from app.service.auditing.auditor import AuditPage, LabelReport
from app.service.auditing.ledger import Draw, Status
from app.wire.answers import Out
from app.wire.calibrations import CalibrationOut, calibration_fields
from app.wire.requests import Strict

# Labels of people arrive in small numbers; this bounds the work on the event loop.
MOST_LABELS = 1000

AuditId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class AuditLabelIn(Strict):
    """The label of one drawn judgment."""

    id: AuditId
    label: Label


class AuditLabelsIn(Strict):
    """Labels of drawn judgments."""

    labels: Annotated[
        list[AuditLabelIn], Field(min_length=1, max_length=MOST_LABELS, fail_fast=True)
    ]


class AuditLabelsOut(Out):
    """Effect of the labels, and the ids whose labels were not taken."""

    labelled: int
    updated: int
    unchanged: int
    unknown: int
    expired: int
    unknown_ids: list[str]
    expired_ids: list[str]

    @classmethod
    def of(cls, report: LabelReport) -> "AuditLabelsOut":
        """Converts a report."""
        return cls(
            labelled=report.labelled,
            updated=report.updated,
            unchanged=report.unchanged,
            unknown=len(report.unknown),
            expired=len(report.expired),
            unknown_ids=list(report.unknown),
            expired_ids=list(report.expired),
        )


class AuditOut(Out):
    """One drawn comparison, without texts and without the verdict."""

    id: str
    calibration: str
    status: Status
    rate: float
    drawn_at: str
    expires_at: str
    label: Label | None
    labelled_at: str | None
    labelled_by: str | None

    @classmethod
    def of(cls, draw: Draw, status: Status, *, expires_s: float) -> "AuditOut":
        """Converts a draw."""
        return cls(
            id=draw.id,
            calibration=draw.calibration,
            status=status,
            rate=draw.rate,
            drawn_at=_written(draw.first_at),
            expires_at=_written(draw.last_at + expires_s),
            label=draw.label,
            labelled_at=None if draw.labelled_at is None else _written(draw.labelled_at),
            labelled_by=draw.labelled_by,
        )


class AuditsOut(Out):
    """Some drawn comparisons, oldest first."""

    audits: list[AuditOut]
    next_after: int | None = Field(
        description="Value of `after` for the next page; null on the last one."
    )

    @classmethod
    def of(cls, page: AuditPage, *, expires_s: float) -> "AuditsOut":
        """Converts a page."""
        audits = [AuditOut.of(draw, status, expires_s=expires_s) for draw, status in page.draws]
        return cls(audits=audits, next_after=page.next_after)


def _text(value: object) -> object:
    """The value itself; raises ValueError for a number, which pydantic would take for a time."""
    if not isinstance(value, str):
        raise ValueError("a time is a text in ISO 8601")
    return value


def _in_range(moment: datetime) -> datetime:
    """The moment itself; raises ValueError for one that no clock can have."""
    try:
        moment.astimezone(UTC).timestamp()
    except (OverflowError, ValueError):
        raise ValueError("the time is out of range") from None
    return moment


Time = Annotated[
    AwareDatetime, Field(strict=False), BeforeValidator(_text), AfterValidator(_in_range)
]


class AbsorbIn(Strict):
    """The labelled audits that become examples of a calibration set."""

    since: Time | None = Field(
        None, description="Only comparisons that were first judged at this time or later."
    )
    until: Time | None = Field(
        None,
        description="Only comparisons that were first judged before this time. Choose it without a "
        "look at the labels.",
    )
    replace: bool = Field(False, description="Remove all other examples of the set.")
    unlabelled: Literal["refuse", "leave_out"] = Field(
        "refuse",
        description="If audits of that time have no label: `refuse`, or `leave_out` these.",
    )

    @property
    def period(self) -> Period:
        """The time of the audits."""
        moments = (None if each is None else each.timestamp() for each in (self.since, self.until))
        return Period(*moments)


class AbsorbOut(CalibrationOut):
    """The calibration set after labelled audits were absorbed, with their counts."""

    added: int
    updated: int
    ties: int
    removed: int
    unlabelled_audits: int
    other_judge: int
    rates: list[float]

    @classmethod
    def of(cls, report: AbsorbReport) -> "AbsorbOut":
        """Converts a report."""
        batch = report.batch
        return cls(
            **calibration_fields(batch.calibration),
            added=batch.added,
            updated=batch.updated,
            ties=batch.ties,
            removed=batch.removed,
            unlabelled_audits=report.unlabelled,
            other_judge=report.other_judge,
            rates=list(report.rates),
        )


def _written(at: float) -> str:
    """A time in ISO 8601, to the second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
