"""Changes of calibration sets whose effects are seen before they happen, and absorptions of audits.

A change that only adds examples is not looked at unless somebody asks: a set may be made in many
requests, and each criterion in use costs a threshold.

An absorption makes labeled audits examples. After an alarm, the first draws since then replace all
examples. Their number was fixed by the alarm from its criterion alone, so neither labels nor people
choose it: a number that is chosen by looking breaks the promise. Without an alarm, the draws up to
the first open one are added.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from app.audits.auditor import Auditor
from app.audits.drift import Drift
from app.audits.entries import Audit, TrailEntry, in_fields
from app.audits.monitor import Monitor
from app.core.calibration import (
    GUARANTEES,
    STANDARD_ALPHAS,
    STANDARD_DELTA,
    Calibration,
    LabeledExample,
)
from app.core.comparison import Criterion
from app.core.errors import (
    AuditsIncompleteError,
    CascadeError,
    InvalidRequestError,
    StoreCorruptError,
    StoreUnavailableError,
)
from app.core.fingerprint import is_reversed
from app.sets.cache import Calibrations
from app.sets.calibrator import Calibrator, Look
from app.sets.change import Judged, JudgedBatch, SetChange
from app.sets.effects import effects_of, refuse_infeasible, rows_of
from scope_judge import records
from scope_judge.records import Threshold

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Absorbed:
    """The draws that an absorption takes.

    Args:
        labelled: Those with a label.
        unlabelled: Number of those that were left out because they were closed or have expired.
        waiting: Number of later draws with a label, which wait for an open one.
        replaces: Whether they replace all examples.
    """

    labelled: list[Audit]
    unlabelled: int
    waiting: int
    replaces: bool

    @property
    def criteria(self) -> frozenset[Criterion]:
        """The criteria under which the labeled ones were drawn first."""
        return frozenset(audit.uses[0].criterion for audit in self.labelled)


class Changes:
    """Changes of sets, and what they would do."""

    def __init__(
        self,
        auditor: Auditor,
        calibrator: Calibrator,
        calibrations: Calibrations,
        monitor: Monitor,
        drift: Drift,
    ) -> None:
        self._auditor = auditor
        self._calibrator = calibrator
        self._calibrations = calibrations
        self._monitor = monitor
        self._drift = drift

    async def put(
        self,
        name: str,
        batch: JudgedBatch,
        *,
        by: str,
        dry_run: bool,
        even_if_infeasible: bool,
        used: frozenset[Criterion] | None = None,
    ) -> SetChange:
        """Adds judged examples to a set, all in one version or not at all, or looks what that does.

        A change that takes examples away is looked at before it is made. With `dry_run` the same is
        refused, but for a criterion that becomes infeasible: the effects of the change show that.

        Args:
            even_if_infeasible: Make it even if a criterion in use gets no more verdicts.
            used: Criteria of an absorption, which is always looked at. They are in use besides
                those of the set's draws and traffic.

        Raises:
            InvalidRequestError: The replacement would leave no example.
            BecomesInfeasibleError: A criterion in use would get no more verdicts.
        """
        if batch.replaces and all(example.label == "tie" for example in batch.by_digest.values()):
            reason = "replacing the examples of the set by none with a preferred side leaves none"
            raise InvalidRequestError(f"examples: {reason}", faults=(("examples", reason),))
        if not dry_run and not batch.replaces and used is None:
            return await self._calibrator.put(name, batch, by=by)
        refuse = not (dry_run or even_if_infeasible)
        look = partial(self._look, used=used or frozenset(), refuse=refuse)
        change = await self._calibrator.put(name, batch, by=by, look=look, dry_run=dry_run)
        return await self._settled(change, dry_run=dry_run)

    async def rollback(
        self, name: str, version: int, *, by: str, dry_run: bool = False
    ) -> SetChange:
        """Restores an earlier version of a set; see `Calibrator.rollback`.

        It is not refused if a criterion becomes infeasible: it undoes a wrong change.
        """
        change = await self._calibrator.rollback(
            name, version, by=by, look=self._look, dry_run=dry_run
        )
        return await self._settled(change, dry_run=dry_run)

    async def _look(
        self,
        change: SetChange,
        *,
        used: frozenset[Criterion] = frozenset(),
        refuse: bool = False,
    ) -> SetChange:
        """Notes what a change does, after reading the newest audits.

        Args:
            used: Criteria that are in use besides those of draws and traffic.
            refuse: Whether a change is refused that ends all verdicts of a criterion in use.
        """
        await self._catch_up()
        before, after = change.before, change.calibration
        effects = await effects_of(used | self._in_use(before), before=before, after=after)
        ended = await self._monitor.ended_by(change.present, after)
        if refuse:
            refuse_infeasible(after.name, effects)
        ends = tuple(alarm.ended_alarm for alarm in ended)
        return replace(change, effects=effects, ended=ends)

    @property
    def look_at_pool(self) -> Look:
        """A look that refuses pairs without labels if they end the verdicts of a set.

        A set that nobody has asked yet has its standard criteria in use.
        """
        return partial(self._look, used=_STANDARD, refuse=True)

    async def _settled(self, change: SetChange, *, dry_run: bool) -> SetChange:
        if not dry_run:
            # Otherwise judgments would abstain until the monitor looks at the set again.
            await self._monitor.settle(change.calibration)
        return change

    async def rows_in_use(self, present: Calibration) -> tuple[Threshold, ...]:
        """Returns the row of each criterion in use, after reading the newest audits."""
        await self._catch_up()
        return await rows_of(self._in_use(present), present)

    async def _catch_up(self) -> None:
        """Reads the newest audits; those before them count if they cannot be read."""
        with suppress(StoreCorruptError):
            await self._auditor.catch_up()

    def _in_use(self, calibration: Calibration) -> frozenset[Criterion]:
        """The criteria of a version's draws, and of this process's traffic.

        The traffic may be that of an earlier version, which nobody has judged by the next one yet.
        """
        drawn = self._auditor.book(calibration.name).begun(calibration.write_id)
        return drawn | self._drift.criteria(calibration.name)

    async def absorb(
        self, name: str, *, by: str, dry_run: bool, even_if_infeasible: bool
    ) -> tuple[SetChange, Absorbed]:
        """Makes labeled draws examples of the set, all in one version or not at all.

        Ties keep their scores, as by POST /calibrate. Absorbing again changes nothing.

        Raises:
            AuditsIncompleteError: After an alarm, fewer draws were made than its number, or one of
                them is open, or none has a preferred side.
            ScopeJudgeError: As of `put`.
        """
        chosen = await self._chosen(name)
        batch = JudgedBatch(
            examples=[_example_of(audit) for audit in chosen.labelled],
            fingerprint=self._auditor.fingerprint,
            action="absorb",
            replaces=chosen.replaces,
        )
        change = await self.put(
            name,
            batch,
            by=by,
            dry_run=dry_run,
            even_if_infeasible=even_if_infeasible,
            used=chosen.criteria,
        )
        return change, chosen

    def recovery(self, calibration: Calibration) -> records.Recovery | None:
        """Returns how the alarms of a set end by new examples; None without an alarm."""
        name = calibration.name
        book = self._auditor.book(name)
        alarm = book.first_alarm()
        if alarm is None:
            return None
        criterion, needed = book.criterion(alarm), alarm.audits
        own = book.since(alarm.position, fingerprint=self._auditor.fingerprint)
        labelled = sum(audit.label is not None for audit in own[:needed])
        if needed is None:
            note = f"no number of labels that a set has room for is enough for {criterion.words}"
        else:
            command = f"audits absorb {name}`"
            if calibration.cascade is not None:
                file = "a file of these labeled pairs"
                command = f"calibrate FILE --name {name} --replace` on {file}"
            note = (
                f"label the first {needed} audits drawn since the alarm, then run `scope-judge "
                f"{command}; {len(own)} are drawn, and {labelled} of the first "
                f"{needed} are labeled or closed"
            )
        return records.Recovery(
            **in_fields(criterion),
            since=alarm.at,
            audits=needed,
            drawn=len(own),
            labelled=labelled,
            note=note,
        )

    async def _chosen(self, name: str) -> Absorbed:
        """Returns the draws that an absorption takes now; see `absorb` for errors."""
        calibration = await self._calibrations.get(name)
        if calibration.cascade is not None:
            raise CascadeError(
                "a cascade absorbs no audits, which lack the large judge's score where the small "
                "judge decided. Calibrate with a file of the labeled pairs, which asks both: "
                f"`scope-judge calibrate FILE --name {name}`, after an alarm with --replace"
            )
        await self._auditor.catch_up()
        report = await self._monitor.of(calibration)
        book = self._auditor.book(name)
        alarm = book.first_alarm()
        if alarm is None and report.alarmed:
            raise StoreUnavailableError(
                f"the alarm of the calibration {name!r} is not in the store yet; try again"
            )
        now = self._auditor.now()
        own = book.since(book.start, fingerprint=self._auditor.fingerprint)
        if alarm is None:
            first_open = next(
                (i for i, audit in enumerate(own) if audit.status(now) == "open"), len(own)
            )
            taken, later = own[:first_open], own[first_open:]
        else:
            criterion = book.criterion(alarm)
            taken, later = _first_since(alarm, criterion, own, now=now), []
        labelled = [audit for audit in taken if audit.status(now) == "labelled"]
        if alarm is not None and all(audit.label == "tie" for audit in labelled):
            raise AuditsIncompleteError(
                f"no audit of the calibration {name!r} since the alarm has a preferred side, so "
                "replacing its examples would leave none"
            )
        return Absorbed(
            labelled=labelled,
            unlabelled=len(taken) - len(labelled),
            waiting=sum(audit.status(now) == "labelled" for audit in later),
            replaces=alarm is not None,
        )


def _first_since(
    alarm: TrailEntry, criterion: Criterion, own: list[Audit], *, now: float
) -> list[Audit]:
    """Returns the draws that an alarm needs; raises AuditsIncompleteError if they are not done."""
    name, needed = criterion.calibration, alarm.audits
    if needed is None:
        raise AuditsIncompleteError(
            f"no number of audits that a set has room for brings verdicts back under "
            f"{criterion.words}: calibrate the set {name!r} on new pairs"
        )
    if len(own) < needed:
        raise AuditsIncompleteError(
            f"the calibration {name!r} has {len(own)} audits since its first alarm so far, and "
            f"needs {needed}: wait for more draws"
        )
    waiting = sum(audit.status(now) == "open" for audit in own[:needed])
    if waiting:
        raise AuditsIncompleteError(
            f"{waiting} of the first {needed} audits of the calibration {name!r} since its first "
            "alarm wait for their label: label them (GET /audits?status=open), or close those that "
            "nobody can label"
        )
    return own[:needed]


def _example_of(audit: Audit) -> Judged:
    """Returns a labeled audit as an example."""
    label = audit.label
    assert label is not None, "open audits are not absorbed"
    assert label != "none", "closed audits are not absorbed"
    return audit.digest, LabeledExample(
        score=audit.score,
        label=label,
        question=audit.question,
        is_reversed=is_reversed(audit.id),
    )
