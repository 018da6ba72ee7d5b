"""JSON requests and answers about audits: drawn judgments and their labels."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import Field

from app.core.comparison import Guarantee, Label, Turn
from app.service.auditing.alarms import Alarm
from app.service.auditing.auditor import LabelReport, SentLabel, TrailEntry
from app.service.auditing.entries import (
    AlarmEntry,
    AuditLabel,
    Draw,
    DrawId,
    LabelEntry,
    written,
    written_span,
)
from app.service.auditing.ledger import Audit, AuditPage, Status
from app.service.auditing.periods import Period
from app.service.auditing.text_keeper import PairsToLabel
from app.service.auditing.texts import DrawnTexts
from app.wire.answers import Out
from app.wire.requests import NOT_BLANK, Strict

# Labels of people arrive in small numbers; this bounds the work on the event loop.
MOST_LABELS = 1000
# The texts of one audit may have 128 KiB.
MOST_TEXTS = 20


# Reasons are for people who read the trail; the log of audits keeps them.
Reason = Annotated[str, Field(min_length=1, max_length=200, pattern=NOT_BLANK)]


class AuditLabelIn(Strict):
    """The label of one drawn judgment."""

    id: DrawId
    label: Label


class AuditClosingIn(Strict):
    """A drawn judgment that nobody can label."""

    id: DrawId
    label: Literal["none"]
    reason: Reason


class AuditLabelsIn(Strict):
    """Labels of drawn judgments."""

    labels: Annotated[
        list[AuditLabelIn | AuditClosingIn],
        Field(min_length=1, max_length=MOST_LABELS, fail_fast=True),
    ]

    @property
    def sent(self) -> list[SentLabel]:
        """The labels as the service takes them."""
        return [
            SentLabel(
                id=sent.id,
                label=sent.label,
                reason=sent.reason if isinstance(sent, AuditClosingIn) else None,
            )
            for sent in self.labels
        ]


class EarlierLabelOut(Out):
    """A pair that somebody else has labeled first."""

    id: str
    labeler: str


class AuditLabelsOut(Out):
    """Effect of the labels, and the ids whose labels were not taken.

    `earlier` names the pairs that somebody else has labeled first: that label stays.
    """

    labelled: int
    closed: int
    updated: int
    unchanged: int
    unknown: int
    expired: int
    unknown_ids: list[str]
    expired_ids: list[str]
    earlier: list[EarlierLabelOut]

    @classmethod
    def of(cls, report: LabelReport) -> "AuditLabelsOut":
        """Converts a report."""
        return cls(
            labelled=report.labelled,
            closed=report.closed,
            updated=report.updated,
            unchanged=report.unchanged,
            unknown=len(report.unknown),
            expired=len(report.expired),
            unknown_ids=list(report.unknown),
            expired_ids=list(report.expired),
            earlier=[
                EarlierLabelOut(id=each, labeler=name) for each, name in report.earlier.items()
            ],
        )


class PairTextsOut(Out):
    """The texts of a drawn comparison, in the order of the audit's id."""

    question: str | tuple[Turn, ...]
    response_a: str | tuple[str, ...]
    response_b: str | tuple[str, ...]

    @classmethod
    def of(cls, texts: DrawnTexts) -> "PairTextsOut":
        """Converts texts."""
        return cls(
            question=texts.question, response_a=texts.response_a, response_b=texts.response_b
        )


class AuditOut(Out):
    """One drawn comparison, without the verdict.

    `texts` is null unless the request asks for them.
    """

    id: str
    calibration: str
    status: Status
    rate: float
    drawn_at: str
    drawn_by: str
    expires_at: str
    label: AuditLabel | None
    labelled_at: str | None
    labelled_by: str | None
    texts: PairTextsOut | None

    @classmethod
    def of(cls, audit: Audit, *, at: float, texts: DrawnTexts | None = None) -> "AuditOut":
        """Converts an audit as it was at a time, in seconds since 1970.

        Args:
            audit: The audit.
            at: The time.
            texts: Its texts, with the id of their order; None without texts.
        """
        return cls(
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
            texts=None if texts is None else PairTextsOut.of(texts),
        )


class AuditsOut(Out):
    """Some drawn comparisons.

    `open` counts all open audits, and `without_texts` those of them whose texts the service does
    not have. Both are null unless the request asks for texts.
    """

    audits: list[AuditOut]
    open: int | None = None
    without_texts: int | None = None
    next_after: int | None = Field(
        description="Value of `after` for the next page; null on the last one."
    )

    @classmethod
    def of(cls, page: AuditPage) -> "AuditsOut":
        """Converts a page."""
        audits = [AuditOut.of(audit, at=page.at) for audit in page.audits]
        return cls(audits=audits, next_after=page.next_after)

    @classmethod
    def with_texts(cls, found: PairsToLabel) -> "AuditsOut":
        """Converts open audits with their texts; long work for long texts."""
        return cls(
            audits=[AuditOut.of(pair.audit, at=found.at, texts=pair.texts) for pair in found.pairs],
            open=found.open,
            without_texts=found.without_texts,
            next_after=found.next_after,
        )


class ResumeIn(Strict):
    """The reason why judgments of a set are accepted again after an alarm."""

    reason: Reason


class ResumedOut(Out):
    """A criterion whose alarm was ended."""

    alpha: float
    guarantee: Guarantee
    delta: float | None
    rang_at: str

    @classmethod
    def of(cls, alarm: Alarm) -> "ResumedOut":
        """Converts an alarm."""
        criterion = alarm.entry.criterion
        assert criterion.alpha is not None, "an alarm has an alpha"
        return cls(
            alpha=criterion.alpha,
            guarantee=criterion.guarantee,
            delta=criterion.delta,
            rang_at=written(alarm.entry.at),
        )


class ResumeOut(Out):
    """The alarms of a set that were ended; none if there was none."""

    name: str
    resumed: list[ResumedOut]

    @classmethod
    def of(cls, name: str, ended: Sequence[Alarm]) -> "ResumeOut":
        """Converts the alarms that were ended."""
        return cls(name=name, resumed=[ResumedOut.of(alarm) for alarm in ended])


Event = Literal["closed", "label_changed", "alarm", "alarm_ended", "resumed"]


class AuditEventOut(Out):
    """One entry of the trail of a set's audits.

    `closed` and `label_changed` have `id`, `before` and `after`, in the order of that id. `alarm`,
    `alarm_ended` and `resumed` have the criterion and the current version. `alarm` has `audits`,
    too: the number of audits from then on that replace all examples by an absorption.
    """

    event: Event
    at: str
    by: str
    reason: str | None = None
    id: str | None = None
    before: AuditLabel | None = None
    after: AuditLabel | None = None
    alpha: float | None = None
    guarantee: Guarantee | None = None
    delta: float | None = None
    version: int | None = None
    errors: int | None = None
    audited: int | None = None
    suspended: bool | None = None
    first_judged_at: str | None = None
    last_judged_at: str | None = None
    audits: int | None = None

    @classmethod
    def of(cls, item: TrailEntry) -> "AuditEventOut":
        """Converts an entry of the trail."""
        entry = item.entry
        assert not isinstance(entry, Draw), "draws are not part of the trail"
        at, by = written(entry.at), entry.by
        if isinstance(entry, LabelEntry):
            return cls(
                event="closed" if item.before is None else "label_changed",
                at=at,
                by=by,
                reason=entry.reason,
                id=entry.id,
                before=item.before,
                after=entry.label,
            )
        criterion = asdict(entry.criterion)
        del criterion["calibration"]
        if isinstance(entry, AlarmEntry):
            return cls(
                event="alarm",
                at=at,
                by=by,
                version=entry.decider.version,
                errors=entry.errors,
                audited=entry.audited,
                suspended=entry.suspends,
                audits=entry.needed,
                **written_span(entry.ringing.span),
                **criterion,
            )
        return cls(
            event="alarm_ended" if entry.because == "version" else "resumed",
            at=at,
            by=by,
            reason=entry.reason,
            version=entry.version,
            **criterion,
        )


class PeriodOut(Out):
    """The judgments that were drawn in one period."""

    since: str
    until: str
    accepted: int
    abstentions: int

    @classmethod
    def of(cls, period: Period) -> "PeriodOut":
        """Converts a period."""
        return cls(
            since=written(period.since),
            until=written(period.until),
            accepted=period.accepted,
            abstentions=period.abstentions,
        )


class AuditTrailOut(Out):
    """Entries of the trail of a set's audits, newest first."""

    name: str
    entries: list[AuditEventOut]
    periods: list[PeriodOut]
    next_before: int | None = Field(
        description="Value of `before` for the next page; null on the last one."
    )

    @classmethod
    def of(
        cls, name: str, entries: Sequence[TrailEntry], periods: Sequence[Period], *, limit: int
    ) -> "AuditTrailOut":
        """Converts a page of at most `limit` entries."""
        return cls(
            name=name,
            entries=[AuditEventOut.of(entry) for entry in entries],
            periods=[PeriodOut.of(period) for period in periods],
            next_before=entries[-1].position if len(entries) == limit else None,
        )
