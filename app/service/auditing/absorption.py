"""Makes labelled audits examples of their calibration set."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from app.core.calibration import Calibration, LabelledExample
from app.core.comparison import Criterion
from app.core.errors import AuditsIncompleteError, InvalidRequestError, UnsafeAbsorptionError
from app.core.monitoring import MonitoredCriterion
from app.service.auditing.auditor import Auditor
from app.service.auditing.changes import ChangeReport, Changes
from app.service.auditing.drift import Drift
from app.service.auditing.entries import RecoveryPlan, written
from app.service.auditing.ledger import Audit
from app.service.auditing.monitor import Monitor
from app.service.auditing.recovery import Recovery, recovery_of
from app.service.calibration.batch import JudgedBatch, JudgedExample
from app.service.calibration.cache import Calibrations
from app.service.off_loop import off_loop


@dataclass(frozen=True, kw_only=True, slots=True)
class AbsorbReport:
    """The outcome of one absorption.

    Args:
        change: The change of the set by the labelled draws.
        unlabelled: Number of draws that were left out because they have no label.
        other_judge: Number of draws that were left out because another judge made them.
        rates: Probabilities with which the draws were drawn, sorted. More than one means that a
            part of the time counts more than another.
    """

    change: ChangeReport
    unlabelled: int
    other_judge: int
    rates: tuple[float, ...]


# Stands for the time at which the newest active alarm of a set rang.
ALARM: Final = "alarm"
Moment = float | Literal["alarm"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """The draws to absorb, and how.

    Args:
        since: Start of the time of the traffic, in seconds since 1970 or `ALARM`; None for no
            limit.
        until: Its end (exclusive), likewise.
        audits: Only so many audits, the first ones of that time; None for all of them.
        replace: Remove all other examples of the set.
        leave_out: Leave draws without a label out instead of refusing.
        even_if_infeasible: Absorb even if a criterion in use gets no more verdicts.
        even_if_unsafe: Absorb even if the threshold would be over alpha more often than promised.
    """

    since: Moment | None = None
    until: Moment | None = None
    audits: int | None = None
    replace: bool = False
    leave_out: bool = False
    even_if_infeasible: bool = False
    even_if_unsafe: bool = False

    @property
    def is_recovery(self) -> bool:
        """Whether the first audits since an alarm are to make a new calibration."""
        is_number = self.since == ALARM and self.until is None and self.audits is not None
        return is_number and self.replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Period:
    """A time of the traffic, in seconds since 1970.

    Args:
        since: Its start; None for no limit.
        until: Its end (exclusive); None for no limit.
        audits: Only so many draws, the first ones of the judge in that time; None for all of them.
    """

    since: float | None = None
    until: float | None = None
    audits: int | None = None

    def includes(self, at: float) -> bool:
        """Whether a moment is in the period."""
        return (self.since is None or self.since <= at) and (self.until is None or at < self.until)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sorted:
    """The audits of one set and period.

    Args:
        labelled: Those with a label.
        unlabelled: Number of those without one, also if they were closed.
        open: Number of those that wait for one.
        other_judge: Number of those by another judge.
        criteria: The criteria under which the labelled ones were drawn first.
    """

    labelled: list[Audit]
    unlabelled: int
    open: int
    other_judge: int
    criteria: frozenset[Criterion]

    @classmethod
    def of(
        cls, audits: Iterable[Audit], *, period: Period, fingerprint: str, now: float
    ) -> "_Sorted":
        """Sorts the audits of a set."""
        of_period = [audit for audit in audits if period.includes(audit.draw.at)]
        own = [audit for audit in of_period if audit.draw.fingerprint == fingerprint]
        # They are oldest first.
        counted = own[: period.audits]
        labelled = [audit for audit in counted if audit.label not in (None, "none")]
        return cls(
            labelled=labelled,
            unlabelled=len(counted) - len(labelled),
            open=sum(audit.status(now) == "open" for audit in counted),
            other_judge=len(of_period) - len(own),
            criteria=frozenset(audit.draw.decider.criterion for audit in labelled),
        )

    @property
    def drawn(self) -> int:
        """Number of audits by the judge."""
        return len(self.labelled) + self.unlabelled


class Absorber:
    """Adds labelled audits to calibration sets.

    Args:
        auditor: Keeps the audits.
        changes: Changes the sets.
        calibrations: The cache of the sets.
        monitor: Has the alarms of the audits.
        drift: Has the alarms of the traffic.
        fingerprint: Fingerprint of the judge.
    """

    def __init__(
        self,
        auditor: Auditor,
        changes: Changes,
        calibrations: Calibrations,
        monitor: Monitor,
        drift: Drift,
        *,
        fingerprint: str,
    ) -> None:
        self._auditor = auditor
        self._monitor = monitor
        self._drift = drift
        self._changes = changes
        self._calibrations = calibrations
        self._fingerprint = fingerprint

    async def begin(self, name: str, audits: int, *, by: str) -> AbsorbReport:
        """Fixes in the trail how many audits since the newest active alarm will be absorbed.

        Fixing the same number again changes nothing.

        Args:
            name: Name of the calibration set.
            audits: The number.
            by: Name of the key that fixes it, for the trail.

        Returns:
            The set as it is, with the number of these audits that have no label yet.

        Raises:
            CalibrationNotFoundError: The set does not exist.
            InvalidRequestError: The set has no active alarm.
            AuditsIncompleteError: The set has no audit yet.
            UnsafeAbsorptionError: Another number was fixed before. Or an audit since the alarm has
                a label, and the number is not the one that was known before.
            StoreUnavailableError: The store does not answer; trying again is safe.
        """
        calibration = await self._calibrations.get(name)
        await self._auditor.catch_up()
        recovery = await self._recovery_of(calibration)
        if recovery is None:
            await self._alarm_at(calibration, "since")
            raise AuditsIncompleteError(f"the calibration {name!r} has no audit yet")
        if recovery.fixed or recovery.labelled:
            _check_number(name, audits, recovery)
        plan = RecoveryPlan(
            calibration=name, since=recovery.since, audits=audits, by=by, at=self._monitor.now()
        )
        await self._auditor.record([plan])
        fixed = self._auditor.ledger.alarms.plan(name)
        if fixed is not None and fixed.audits != audits:
            # Another replica was first.
            raise _other_number(name, audits, fixed.audits)
        sorted_audits = await self._sorted(name, Period(since=recovery.since, audits=audits))
        nothing = replace(sorted_audits, labelled=[])
        change = await self._changes.preview(name, self._batch(nothing, Asked()), by=by)
        return _report(change, sorted_audits)

    async def preview(self, name: str, asked: Asked, *, by: str) -> AbsorbReport:
        """Returns what `absorb` would do now, and changes nothing.

        It refuses what `absorb` refuses, but for a criterion that becomes infeasible: the effects
        of the report show that.
        """
        audits = await self._chosen(name, asked)
        batch = self._batch(audits, asked)
        change = await self._changes.preview(name, batch, by=by, used=audits.criteria)
        return _report(change, audits)

    async def absorb(self, name: str, asked: Asked, *, by: str) -> AbsorbReport:
        """Makes labelled draws examples of the set, all in one version or not at all.

        Ties keep their scores, as by POST /calibrate. Absorbing again changes nothing.

        Args:
            name: Name of the calibration set.
            asked: The draws, and how. Their time must not be chosen by the labels.
            by: Name of the key that asked for it, for the trail.

        Raises:
            CalibrationNotFoundError: The set does not exist.
            JudgeMismatchError: The set belongs to another judge.
            InvalidRequestError: There is no alarm whose time could be meant.
            UnsafeAbsorptionError: The set has an active alarm, and these are not the first audits
                since then alone, or their number was not fixed before their labels.
            AuditsIncompleteError: Draws have no label, so the labelled ones are not a random
                sample. Or `replace` would leave no example, or there are too few draws.
            BecomesInfeasibleError: A criterion in use would get no more verdicts.
            StoreUnavailableError: The store does not answer; trying again is safe.
        """
        audits = await self._chosen(name, asked)
        change = await self._changes.put(
            name,
            self._batch(audits, asked),
            by=by,
            even_if_infeasible=asked.even_if_infeasible,
            used=audits.criteria,
        )
        return _report(change, audits)

    async def recovery(
        self, calibration: Calibration, criteria: Sequence[MonitoredCriterion]
    ) -> Recovery | None:
        """Returns what an absorption after the newest active alarm needs.

        Args:
            calibration: The current version.
            criteria: Its monitored criteria.

        Returns:
            The audits; None without an alarm, and without an audited criterion.
        """
        since = await self._newest_alarm(calibration)
        if since is None or not criteria:
            return None
        plan = self._auditor.ledger.alarms.plan(calibration.name)
        return await off_loop(
            recovery_of,
            self._auditor.ledger.labels(calibration.name, self._fingerprint),
            criteria,
            since=since,
            fixed=plan.audits if plan is not None and plan.since == since else None,
        )

    async def _recovery_of(self, calibration: Calibration) -> Recovery | None:
        report = await self._monitor.of(calibration)
        return await self.recovery(calibration, report.criteria)

    async def _chosen(self, name: str, asked: Asked) -> _Sorted:
        """Returns the draws that are asked for; see `absorb` for errors."""
        calibration = await self._calibrations.get(name)
        await self._auditor.catch_up()
        period = await self._period(calibration, asked)
        if not asked.even_if_unsafe:
            await self._check_safe(calibration, asked)
        audits = await self._sorted(name, period)
        _check_complete(name, audits, asked)
        return audits

    async def _sorted(self, name: str, period: Period) -> _Sorted:
        return await off_loop(
            _Sorted.of,
            self._auditor.ledger.audits(name),
            period=period,
            fingerprint=self._fingerprint,
            now=self._monitor.now(),
        )

    async def _check_safe(self, calibration: Calibration, asked: Asked) -> None:
        """Refuses what breaks the promise after an alarm; raises UnsafeAbsorptionError."""
        report = await self._monitor.of(calibration)
        # Other traffic (drift) need not have more errors.
        if not report.alarmed:
            return
        recovery = await self.recovery(calibration, report.criteria)
        if recovery is None:
            # The alarm has ended since.
            return
        if not asked.is_recovery:
            number = "N" if recovery.audits is None else recovery.audits
            raise UnsafeAbsorptionError(
                f"the calibration {calibration.name!r} has an active alarm since "
                f"{written(recovery.since)}: with examples from before it, the error would stay "
                'above alpha. Absorb the first audits since then alone: "since": "alarm", '
                f'"audits": {number}, "replace": true. "even_if_unsafe": true absorbs anyway'
            )
        if asked.audits is not None:
            _check_number(calibration.name, asked.audits, recovery)

    async def _period(self, calibration: Calibration, asked: Asked) -> Period:
        since, until = [
            await self._alarm_at(calibration, field) if moment == ALARM else moment
            for field, moment in (("since", asked.since), ("until", asked.until))
        ]
        return Period(since=since, until=until, audits=asked.audits)

    async def _alarm_at(self, calibration: Calibration, field: str) -> float:
        at = await self._newest_alarm(calibration)
        if at is None:
            raise _no_alarm(calibration.name, field)
        return at

    async def _newest_alarm(self, calibration: Calibration) -> float | None:
        """The time of the newest active alarm, of the audits or of the drift; None without one.

        Once a number of audits since an active alarm is fixed, newer alarms do not count.
        """
        drift = (await self._drift.of(calibration)).values()
        standing = self._auditor.ledger.alarms.standing(calibration.name)
        times = [alarm.entry.at for alarm in standing]
        times += [figures.rang.at for figures in drift if figures.rang is not None]
        plan = self._auditor.ledger.alarms.plan(calibration.name)
        if plan is not None and plan.since in times:
            return plan.since
        return max(times, default=None)

    def _batch(self, audits: _Sorted, asked: Asked) -> JudgedBatch:
        return JudgedBatch(
            examples=[example_of(audit) for audit in audits.labelled],
            fingerprint=self._fingerprint,
            action="absorb",
            replaces=asked.replace,
        )


def _report(change: ChangeReport, audits: _Sorted) -> AbsorbReport:
    return AbsorbReport(
        change=change,
        unlabelled=audits.unlabelled,
        other_judge=audits.other_judge,
        rates=tuple(sorted({audit.draw.rate for audit in audits.labelled})),
    )


def _no_alarm(name: str, field: str) -> InvalidRequestError:
    reason = f"calibration {name!r} has no active alarm: give a time"
    return InvalidRequestError(f"{field}: {reason}", faults=((field, reason),))


def _check_number(name: str, audits: int, recovery: Recovery) -> None:
    """Refuses a number that was not fixed before the labels; raises UnsafeAbsorptionError."""
    if audits != recovery.audits:
        raise _other_number(name, audits, recovery.audits)


def _other_number(name: str, audits: int, fixed: int | None) -> UnsafeAbsorptionError:
    right = "no number was fixed" if fixed is None else f"the number is {fixed}"
    return UnsafeAbsorptionError(
        f"{right} for the recovery of the calibration {name!r}, and {audits} audits are asked for: "
        "a number that is chosen after seeing labels breaks the promise. Fix another one before "
        'the next recovery ("begin": true), or send "even_if_unsafe": true'
    )


def _check_complete(name: str, audits: _Sorted, asked: Asked) -> None:
    """Refuses draws that are not a random sample; raises AuditsIncompleteError."""
    if asked.audits is not None and audits.drawn < asked.audits:
        raise AuditsIncompleteError(
            f"the calibration {name!r} has {audits.drawn} audits in that time so far, and "
            f"{asked.audits} are asked for, of which {asked.audits - len(audits.labelled)} have no "
            "label yet: wait for more draws"
        )
    if asked.is_recovery and audits.open and not asked.even_if_unsafe:
        raise AuditsIncompleteError(
            f"{audits.open} of the first {asked.audits} audits of the calibration {name!r} since "
            "the alarm wait for their label: label them (GET /audits?status=open), or close those "
            "that nobody can label"
        )
    if audits.unlabelled and not asked.leave_out:
        raise AuditsIncompleteError(
            f"{audits.unlabelled} of {audits.drawn} audits of the "
            f"calibration {name!r} have no label, so the labelled ones may not be a random "
            "sample of the traffic. Label the open ones (GET /audits?status=open), choose another "
            '`since` or `until`, or send "unlabelled": "leave_out" if labels are missing for '
            "no reason that has to do with the answers; closed audits have no label either"
        )
    if asked.replace and all(audit.label == "tie" for audit in audits.labelled):
        raise AuditsIncompleteError(
            f"there are no labelled audits of the calibration {name!r} in that time, so "
            "replacing its examples would leave none"
        )


def example_of(audit: Audit) -> JudgedExample:
    """Returns a labelled audit as an example."""
    draw, label = audit.draw, audit.label
    assert label is not None, "open audits are not absorbed"
    assert label != "none", "closed audits are not absorbed"
    example = LabelledExample(score=draw.score, label=label, question=draw.question)
    return JudgedExample(digest=draw.digest, example=example)
