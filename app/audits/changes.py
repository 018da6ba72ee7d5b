"""Changes of calibration sets whose effects are seen before they happen.

A change that only adds examples is not looked at unless somebody asks: a set may be made in many
requests, and each criterion in use costs a threshold.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from app.audits.alarms import Alarm
from app.audits.auditor import Auditor
from app.audits.monitor import Monitor
from app.core.calibration import Calibration
from app.core.comparison import Criterion
from app.core.errors import InvalidRequestError, StoreCorruptError
from app.core.threshold_rows import ThresholdRow
from app.sets.batch import JudgedBatch, JudgedExample
from app.sets.cache import Calibrations
from app.sets.calibrator import CalibrationReport, Calibrator, Check, Preview
from app.sets.effects import Effect, effects_of, refuse_infeasible, rows_of


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeReport:
    """The outcome of a change of a set, made or only looked at.

    Args:
        batch: The set after the change, with the numbers of its examples.
        effects: The effect on each criterion in use; None for added examples that nobody looked at
            before.
        ended: The active alarms that the change ends.
    """

    batch: CalibrationReport
    effects: tuple[Effect, ...] | None = None
    ended: tuple[Alarm, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Deletion:
    """The consequences of the deletion of a set.

    Args:
        name: Name of the set.
        present: The set; None if it cannot be read, so that no rollback restores it.
        in_use: The row of each criterion in use.
        audits: Number of its audits, which stay.
        open_audits: Number of these that wait for a label.
        alarms: Its active alarms, which stay, too.
    """

    name: str
    present: Calibration | None
    in_use: tuple[ThresholdRow, ...]
    audits: int
    open_audits: int
    alarms: tuple[Alarm, ...]


class Changes:
    """Changes of sets, and what they would do."""

    def __init__(
        self,
        auditor: Auditor,
        calibrator: Calibrator,
        calibrations: Calibrations,
        monitor: Monitor,
    ) -> None:
        self._auditor = auditor
        self._calibrator = calibrator
        self._calibrations = calibrations
        self._monitor = monitor

    async def take(
        self, name: str, batch: JudgedBatch, *, by: str, dry_run: bool, even_if_infeasible: bool
    ) -> ChangeReport:
        """Takes a batch into a set, or looks what that does.

        A change that takes examples or label noise away is looked at before it is made.

        Args:
            name: Name of the calibration set; a missing set is made.
            by: Name of the key that posted them, for the trail.
            even_if_infeasible: Make it even if a criterion in use gets no more verdicts.

        Raises:
            InvalidRequestError: The replacement would leave no example.
            CalibrationNotFoundError: There are second labels, and no set.
            JudgeMismatchError: The examples or the set belong to another judge.
            BecomesInfeasibleError: A criterion in use would get no more verdicts.
            UnavailableError: Nothing was added; or everything was, if the connection to the store
                broke. Putting the batch again is safe.
        """
        if batch.replaces and not any(
            isinstance(example, JudgedExample) and not example.is_tie for example in batch.examples
        ):
            reason = "replacing the examples of the set by none with a preferred side leaves none"
            raise InvalidRequestError(f"examples: {reason}", faults=(("examples", reason),))
        if dry_run or batch.replaces:
            return await self.put(
                name, batch, by=by, dry_run=dry_run, even_if_infeasible=even_if_infeasible
            )
        return ChangeReport(batch=await self._calibrator.put(name, batch, by=by))

    async def put(
        self,
        name: str,
        batch: JudgedBatch,
        *,
        by: str,
        dry_run: bool,
        even_if_infeasible: bool,
        used: frozenset[Criterion] = frozenset(),
    ) -> ChangeReport:
        """Adds judged examples to a set, all in one version or not at all; see `take`.

        With `dry_run` it refuses the same, but for a criterion that becomes infeasible: the effects
        of the report show that.

        Args:
            used: Criteria that are in use besides those of the set's draws and traffic.
        """
        await self._catch_up()
        if dry_run:
            return await self._report(await self._calibrator.preview(name, batch, by=by), used)

        async def write(check: Check) -> Calibration:
            return (await self._calibrator.put(name, batch, by=by, check=check)).calibration

        return await self._looked_at(write, used, None if even_if_infeasible else name)

    async def rollback(
        self, name: str, version: int, *, by: str, dry_run: bool = False
    ) -> ChangeReport:
        """Restores an earlier version of a set; see `Calibrator.rollback`.

        It is not refused if a criterion becomes infeasible: it undoes a wrong change.
        """
        await self._catch_up()
        if dry_run:
            change = await self._calibrator.preview_rollback(name, version, by=by)
            return await self._report(change)

        async def write(check: Check) -> Calibration:
            return await self._calibrator.rollback(name, version, by=by, check=check)

        return await self._looked_at(write, frozenset(), None)

    async def preview_deletion(self, name: str) -> Deletion:
        """Returns what the deletion of a set would do now, and changes nothing.

        Raises:
            CalibrationNotFoundError: The set does not exist.
            StoreUnavailableError: The store does not answer.
        """
        present = await self._calibrator.deletable(name)
        await self._catch_up()
        in_use = () if present is None else await rows_of(self.in_use(present), present)
        book = self._auditor.book(name)
        return Deletion(
            name=name,
            present=present,
            in_use=in_use,
            audits=len(book.audits),
            open_audits=len(book.open(self._auditor.now())),
            alarms=tuple(book.alarms.standing()),
        )

    async def _looked_at(
        self,
        write: Callable[[Check], Awaitable[Calibration]],
        used: frozenset[Criterion],
        protected: str | None,
    ) -> ChangeReport:
        """Makes a change that is looked at in each attempt.

        Args:
            write: Makes it.
            used: Criteria that are in use besides those of draws and traffic.
            protected: Name of a set whose change is refused if a criterion in use gets no more
                verdicts.
        """
        report: ChangeReport | None = None

        async def check(change: Preview) -> None:
            nonlocal report
            report = await self._report(change, used)
            if protected is not None:
                refuse_infeasible(protected, report.effects or ())

        written = await write(check)
        assert report is not None, "each attempt is checked"
        # Otherwise judgments would abstain until the monitor looks at the set again.
        await self._monitor.settle(written)
        return replace(report, batch=replace(report.batch, calibration=written))

    async def _catch_up(self) -> None:
        """Reads the newest audits; those before them count if they cannot be read."""
        with suppress(StoreCorruptError):
            await self._auditor.catch_up()

    async def _report(
        self, change: Preview, used: frozenset[Criterion] = frozenset()
    ) -> ChangeReport:
        criteria = used | self.in_use(change.before)
        effects = await effects_of(criteria, before=change.before, after=change.after)
        ended = await self._monitor.ended_by(change.present, change.after)
        return ChangeReport(batch=change.report, effects=effects, ended=tuple(ended))

    def in_use(self, calibration: Calibration) -> frozenset[Criterion]:
        """The criteria of a version's draws, and of this process's traffic.

        The traffic may be that of an earlier version, which nobody has judged by the next one yet.
        """
        drawn = frozenset(self._auditor.book(calibration.name).begun(calibration.write_id))
        return drawn | self._calibrations.traffic.criteria(calibration.name)
