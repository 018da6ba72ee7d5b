"""Changes of calibration sets whose effects are seen before they happen.

A change that only adds examples is not looked at unless somebody asks: a set may be made in many
requests, and each criterion in use costs a threshold.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from app.audits.auditor import Auditor
from app.audits.drift import Drift
from app.audits.monitor import Monitor
from app.core.calibration import GUARANTEES, STANDARD_ALPHAS, STANDARD_DELTA, Calibration
from app.core.comparison import Criterion
from app.core.errors import InvalidRequestError, StoreCorruptError
from app.sets.batch import JudgedBatch
from app.sets.calibrator import Calibrator, Look
from app.sets.effects import effects_of, refuse_infeasible, refuse_pool, rows_of
from app.sets.trail import SetChange
from scope_judge.records import Effect, Threshold

_STANDARD = frozenset(
    Criterion(
        alpha=alpha,
        guarantee=guarantee,
        delta=STANDARD_DELTA if guarantee == "pac" else None,
        calibration="",
    )
    for guarantee in GUARANTEES
    for alpha in STANDARD_ALPHAS
)


class Changes:
    """Changes of sets, and what they would do."""

    def __init__(
        self,
        auditor: Auditor,
        calibrator: Calibrator,
        monitor: Monitor,
        drift: Drift,
    ) -> None:
        self._auditor = auditor
        self._calibrator = calibrator
        self._monitor = monitor
        self._drift = drift

    async def take(
        self, name: str, batch: JudgedBatch, *, by: str, dry_run: bool, even_if_infeasible: bool
    ) -> SetChange:
        """Takes a batch into a set, or looks what that does.

        A change that takes examples away is looked at before it is made.

        Args:
            name: Name of the calibration set; a missing set is made.
            even_if_infeasible: Make it even if a criterion in use gets no more verdicts.

        Raises:
            InvalidRequestError: The replacement would leave no example.
            JudgeMismatchError: The examples or the set belong to another judge.
            BecomesInfeasibleError: A criterion in use would get no more verdicts.
            UnavailableError: Nothing was added; or everything was, if the connection to the store
                broke. Putting the batch again is safe.
        """
        if batch.replaces and all(example.label == "tie" for example in batch.by_digest.values()):
            reason = "replacing the examples of the set by none with a preferred side leaves none"
            raise InvalidRequestError(f"examples: {reason}", faults=(("examples", reason),))
        if dry_run or batch.replaces:
            return await self.put(
                name, batch, by=by, dry_run=dry_run, even_if_infeasible=even_if_infeasible
            )
        return await self._calibrator.put(name, batch, by=by)

    async def put(
        self,
        name: str,
        batch: JudgedBatch,
        *,
        by: str,
        dry_run: bool,
        even_if_infeasible: bool,
        used: frozenset[Criterion] = frozenset(),
    ) -> SetChange:
        """Adds judged examples to a set, all in one version or not at all; see `take`.

        With `dry_run` it refuses the same, but for a criterion that becomes infeasible: the effects
        of the change show that.

        Args:
            used: Criteria that are in use besides those of the set's draws and traffic.
        """
        refuse = None if dry_run or even_if_infeasible else refuse_infeasible
        look = await self._look(used, refuse=refuse)
        change = await self._calibrator.put(name, batch, by=by, look=look, dry_run=dry_run)
        return await self._settled(change, dry_run=dry_run)

    async def rollback(
        self, name: str, version: int, *, by: str, dry_run: bool = False
    ) -> SetChange:
        """Restores an earlier version of a set; see `Calibrator.rollback`.

        It is not refused if a criterion becomes infeasible: it undoes a wrong change.
        """
        look = await self._look(frozenset(), refuse=None)
        change = await self._calibrator.rollback(name, version, by=by, look=look, dry_run=dry_run)
        return await self._settled(change, dry_run=dry_run)

    async def _look(
        self,
        used: frozenset[Criterion],
        *,
        refuse: Callable[[str, Sequence[Effect]], None] | None,
    ) -> Look:
        """Returns a look at a change, after reading the newest audits.

        Args:
            used: Criteria that are in use besides those of draws and traffic.
            refuse: Raises an error by the effects of a change; None to refuse none.
        """
        await self._catch_up()

        async def look(change: SetChange) -> SetChange:
            before, after = change.before, change.calibration
            effects = await effects_of(used | self.in_use(before), before=before, after=after)
            ended = await self._monitor.ended_by(change.present, after)
            if refuse is not None:
                refuse(after.name, effects)
            ends = tuple(alarm.ended_alarm for alarm in ended)
            return replace(change, effects=effects, ended=ends)

        return look

    async def look_at_pool(self) -> Look:
        """Returns a look that refuses pairs without labels if they end the verdicts of a set.

        A set that nobody has asked yet has its standard criteria in use.
        """
        return await self._look(_STANDARD, refuse=refuse_pool)

    async def _settled(self, change: SetChange, *, dry_run: bool) -> SetChange:
        if not dry_run:
            # Otherwise judgments would abstain until the monitor looks at the set again.
            await self._monitor.settle(change.calibration)
        return change

    async def rows_in_use(self, present: Calibration) -> tuple[Threshold, ...]:
        """Returns the row of each criterion in use, after reading the newest audits."""
        await self._catch_up()
        return await rows_of(self.in_use(present), present)

    async def _catch_up(self) -> None:
        """Reads the newest audits; those before them count if they cannot be read."""
        with suppress(StoreCorruptError):
            await self._auditor.catch_up()

    def in_use(self, calibration: Calibration) -> frozenset[Criterion]:
        """The criteria of a version's draws, and of this process's traffic.

        The traffic may be that of an earlier version, which nobody has judged by the next one yet.
        """
        drawn = self._auditor.book(calibration.name).begun(calibration.write_id)
        return drawn | self._drift.criteria(calibration.name)
