"""The audits of each criterion: an alarm, a certificate, and the error so far.

The figures are a function of the stored audits and the time alone, so replicas agree and a restart
changes nothing. Alarms and their ends are part of the audits (`book`). The labels count by
question, in the order of the first draws: those after the first question with an open draw wait
until that is labeled or has expired, and each waits until the hour is over in which draws of its
question count.
Otherwise people who label hard pairs later would move the errors to the end.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from app.audits.auditor import Auditor
from app.audits.book import Book
from app.audits.entries import TrailEntry, Use, in_fields, written
from app.audits.figures import CriterionAudits, monitored
from app.core.calibration import Calibration
from app.core.comparison import Criterion
from app.core.errors import StoreCorruptError, StoreUnavailableError
from app.core.pac import labels_for_verdicts
from app.flow import off_loop
from app.observability.telemetry import MONITORED, Row, Telemetry
from app.ports import Head
from app.sets.cache import Calibrations
from scope_judge.records import OnAlarm

# Interval at which changes of the audits are looked for. Callers choose the criteria, so a round
# that takes long is followed by a long pause.
_FOLLOW_S = 0.5
_REST = 10.0
_MOST_SETS = 1000
# Criteria of one set that have gauges.
_MOST_SHOWN = 20

logger = logging.getLogger("app.monitor")


@dataclass(frozen=True, kw_only=True, slots=True)
class SetReport:
    """The audits of one version of a set.

    Args:
        position: Position up to which the book was read.
        at: Time of the report, in seconds since 1970.
        until: Time until which only new rows change it.
        by: Name of the key whose label came last before it; "service" if only time has passed.
    """

    write_id: str
    book: Book
    position: int
    at: float
    until: float
    criteria: tuple[CriterionAudits, ...]
    by: str

    @property
    def alarmed(self) -> frozenset[Criterion]:
        """The criteria with an alarm."""
        return frozenset(audits.criterion for audits in self.criteria if audits.shown.alarm)

    @property
    def is_full(self) -> bool:
        """Whether so many draws are open that no more are drawn."""
        return self.book.room(self.at) <= 0

    @property
    def oldest(self) -> Use | None:
        """The oldest open draw that labels wait for; None if there is none."""
        holders = [audits.holder for audits in self.criteria if audits.holder is not None]
        return min(holders, key=lambda use: use.at, default=None)

    def is_current(self, book: Book, now: float) -> bool:
        """Whether nothing has changed since."""
        # The auditor makes another book after the audits of the store were replaced.
        if self.book is not book or self.position != book.position:
            return False
        # A clock that was set back opens draws again that had expired.
        return self.at <= now <= self.until


class Monitor:
    """The monitor of all sets; mutated only on the event loop."""

    def __init__(
        self,
        auditor: Auditor,
        calibrations: Calibrations,
        telemetry: Telemetry,
        *,
        on_alarm: OnAlarm = "report",
    ) -> None:
        self._auditor = auditor
        self._calibrations = calibrations
        self.on_alarm = on_alarm
        # The set that was computed last comes last.
        self._known: OrderedDict[str, SetReport] = OrderedDict()
        # Set -> the alarms that this process has logged.
        self._told: dict[str, frozenset[Criterion]] = {}
        # Position of an alarm -> write id of the version that was last compared with it, and
        # whether that is renewed.
        self._compared: dict[int, tuple[str, bool]] = {}
        telemetry.show(self._rows)

    @property
    def suspends(self) -> bool:
        """Whether judgments under a criterion with an alarm abstain."""
        return self.on_alarm == "abstain"

    async def follow(self) -> None:
        """Computes sets in memory again when their audits change; runs until it is cancelled."""
        rest = _FOLLOW_S
        while True:
            await asyncio.sleep(rest)
            begun = time.monotonic()
            for calibration in self._calibrations.known():
                await self.of(calibration)
            rest = max(_FOLLOW_S, _REST * (time.monotonic() - begun))

    async def of(self, calibration: Calibration) -> SetReport:
        """Returns the audits of a version as they are now, and records alarms and their ends."""
        await self.settle(calibration)
        report = await self._computed(calibration)
        alarms = self._alarms(calibration, report)
        # An alarm that the store does not take now is active already, and recorded later.
        with suppress(StoreUnavailableError, StoreCorruptError):
            if alarms:
                await self._auditor.record(calibration.name, alarms)
                report = await self._computed(calibration)
        book, unrecorded = self._book(calibration.name), self._alarms(calibration, report)
        active = {book.criterion(alarm): alarm for alarm in unrecorded} | book.standing()
        self._tell(book, active)
        return report

    async def _computed(self, calibration: Calibration) -> SetReport:
        """Computes the audits of a version, unless nothing has changed since the last time."""
        book, known, now = (
            self._book(calibration.name),
            self._report(calibration),
            self._auditor.now(),
        )
        position = book.position
        if known is not None and known.is_current(book, now):
            return known
        rows, states = list(book.audits.values()), dict(book.alarms)
        by = book.last_sender
        criteria, until = await off_loop(
            monitored,
            rows,
            calibration.write_id,
            states=states,
            now=now,
            suspends=self.suspends,
        )
        only_time = known is not None and known.book is book and known.position == position
        report = SetReport(
            write_id=calibration.write_id,
            book=book,
            position=position,
            at=now,
            until=until,
            criteria=criteria,
            by="service" if only_time else by,
        )
        self._known[calibration.name] = report
        self._known.move_to_end(calibration.name)
        if len(self._known) > _MOST_SETS:
            self._known.popitem(last=False)
        return report

    async def settle(self, calibration: Calibration) -> None:
        """Ends the alarms that enough new examples of this version end.

        An alarm that earlier examples ended is raised again if this version does not have them.
        A version that is not the newest decides nothing: this process may not have read the version
        that ended the alarm.
        """
        entries = list[TrailEntry]()
        for state in list(self._book(calibration.name).alarms.values()):
            alarm, end = state.last, state.end
            if alarm is None or (end is not None and end.event == "resumed"):
                continue
            with suppress(StoreUnavailableError, StoreCorruptError):
                if await self._is_renewed(alarm, calibration) == (end is not None):
                    continue
                by, at = await self._calibrations.author(calibration), written(self._auditor.now())
                if end is None:
                    entries.append(self._end(alarm, calibration, by=by))
                else:
                    entries.append(replace(alarm, follows=state.ended, by=by, at=at))
        with suppress(StoreUnavailableError, StoreCorruptError):
            if entries and await self._calibrations.is_newest(calibration):
                await self._auditor.record(calibration.name, entries)

    async def _is_renewed(self, alarm: TrailEntry, calibration: Calibration) -> bool:
        """Whether half of the examples are in no version up to the one that raised an alarm."""
        known = self._compared.get(alarm.position)
        if known is not None and known[0] == calibration.write_id:
            return known[1]
        is_renewed = await self._calibrations.is_renewed(calibration, since=_raised_by(alarm))
        self._compared[alarm.position] = (calibration.write_id, is_renewed)
        return is_renewed

    def _end(
        self, alarm: TrailEntry, calibration: Calibration, *, by: str, reason: str | None = None
    ) -> TrailEntry:
        """The end of an alarm, by a version or by somebody with a reason."""
        return TrailEntry.of(
            **in_fields(alarm),
            event="alarm_ended" if reason is None else "resumed",
            follows=alarm.position,
            version=calibration.version,
            reason=reason,
            by=by,
            at=written(self._auditor.now()),
        )

    def _alarms(self, calibration: Calibration, report: SetReport) -> list[TrailEntry]:
        """Returns the alarms of a report that are not recorded."""
        return [
            TrailEntry.of(
                **in_fields(audits.criterion),
                event="alarm",
                version=calibration.version,
                write_id=calibration.write_id,
                errors=audits.shown.errors,
                audited=audits.shown.audited,
                audits=labels_for_verdicts(audits.criterion),
                suspended=self.suspends,
                follows=audits.ended,
                by=report.by,
                at=written(self._auditor.now()),
            )
            for audits in report.criteria
            if audits.alarms and not audits.is_recorded
        ]

    async def ended_by(self, now: Calibration | None, after: Calibration) -> list[TrailEntry]:
        """Returns the alarms that `settle` would end after a change that is not made yet."""
        ended = list[TrailEntry]()
        if after is now:
            return ended
        for alarm in self._book(after.name).standing().values():
            with suppress(StoreUnavailableError, StoreCorruptError):
                if await self._calibrations.is_renewed(after, since=_raised_by(alarm)):
                    ended.append(alarm)
        return ended

    async def resume(self, calibration: Calibration, *, reason: str, by: str) -> list[TrailEntry]:
        """Ends the alarms of a set, so that judgments are accepted again, and returns them.

        The audits of their criteria start over: earlier draws do not count any more.
        """
        await self._auditor.catch_up()
        # An alarm ends by its place in the trail. One that the store has not taken has none yet.
        if unrecorded := self._alarms(calibration, await self.of(calibration)):
            await self._auditor.record(calibration.name, unrecorded)
        standing = list(self._book(calibration.name).standing().values())
        ends = [self._end(alarm, calibration, by=by, reason=reason) for alarm in standing]
        await self._auditor.record(calibration.name, ends)
        await self.of(calibration)
        return standing

    async def suspended(
        self, asked: Iterable[tuple[Criterion, Calibration]]
    ) -> frozenset[Criterion]:
        """Returns the criteria under which judgments abstain.

        An alarm suspends all alphas of its set up to its own: whoever cannot keep 10% does not
        keep 5% either. Nothing is read or written here, so a judgment does not wait for the store.
        A version that was seen before is not computed again: `follow` does that, and ends alarms
        that were not settled when the version was made.
        """
        if not self.suspends:
            return frozenset()
        suspended = set[Criterion]()
        for criterion, calibration in asked:
            report = self._report(calibration) or await self._computed(calibration)
            standing = self._book(calibration.name).standing()
            both = report.alarmed.union(standing)
            if _alpha(criterion) <= max(map(_alpha, both), default=0.0):
                suspended.add(criterion)
        return frozenset(suspended)

    def _book(self, name: str) -> Book:
        return self._auditor.book(name)

    def _report(self, calibration: Calibration) -> SetReport | None:
        """The last report about a version; None if there is none."""
        known = self._known.get(calibration.name)
        return known if known is not None and known.write_id == calibration.write_id else None

    def _tell(self, book: Book, active: Mapping[Criterion, TrailEntry]) -> None:
        """Logs alarms that this process has not seen before, and the ends of others."""
        told = self._told.pop(book.name, frozenset())
        for criterion in active.keys() - told:
            self._log_alarm(criterion, active[criterion])
        for criterion in told - active.keys():
            logger.warning(
                "the alarm of calibration %r under %s has ended: GET /calibrations/%s/audit-trail "
                "has by whom, and why",
                book.name,
                criterion.words,
                book.name,
            )
        if active:
            self._told[book.name] = frozenset(active)

    def _log_alarm(self, criterion: Criterion, alarm: TrailEntry) -> None:
        logger.warning(
            "alarm: audits of calibration %r (version %d) show more errors than %s since %s, by a "
            "label of %r: %d of %d labels of accepted judgments are errors%s; "
            "docs/guides/monitoring.md says what to do",
            criterion.calibration,
            alarm.version,
            criterion.words,
            alarm.at,
            alarm.by,
            alarm.errors,
            alarm.audited,
            "; these judgments abstain from now on" if self.suspends else "",
        )

    def _rows(self) -> Iterator[Row]:
        """The numbers of each set that has gauges, and of its criteria with the most labels."""
        for report in self._shown():
            name, oldest = report.book.name, report.oldest
            # The number of the criterion with the most.
            waiting = max((audits.shown.waiting for audits in report.criteria), default=0)
            yield "audits_waiting", (name,), waiting
            if oldest is not None:
                # A clock may have been set back since the draw.
                age_s = max(0.0, self._auditor.now() - oldest.at)
                yield "audits_oldest_open_age_seconds", (name, oldest.by), age_s
            # The criteria are in their order, which the sort keeps for equal numbers.
            most = sorted(report.criteria, key=lambda audits: -audits.shown.audited)
            for shown in (audits.shown for audits in most[:_MOST_SHOWN]):
                delta = "" if shown.delta is None else str(shown.delta)
                place = (name, shown.guarantee, str(shown.alpha), delta)
                for number in MONITORED:
                    yield f"monitor_{number}", place, getattr(shown, number)

    def _shown(self) -> Iterator[SetReport]:
        for calibration in self._calibrations.shown():
            report = self._report(calibration)
            if report is not None:
                yield report


def _raised_by(alarm: TrailEntry) -> Head:
    """The version whose labels raised an alarm."""
    assert alarm.write_id is not None
    assert alarm.version is not None
    return Head(alarm.write_id, alarm.version)


def _alpha(criterion: Criterion) -> float:
    assert criterion.alpha is not None, "only criteria with an alpha are audited"
    return criterion.alpha
