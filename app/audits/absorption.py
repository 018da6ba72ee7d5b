"""Makes labeled audits examples of their calibration set.

After an alarm, the first draws since then replace all examples. Their number was fixed by the alarm
from its criterion alone, so neither labels nor people choose it: a number that is chosen by looking
breaks the promise. Without an alarm, the draws up to the first open one are added.
"""

from dataclasses import dataclass

from app.audits.auditor import Auditor
from app.audits.changes import Changes
from app.audits.entries import Audit, TrailEntry, in_fields
from app.audits.monitor import Monitor
from app.core.calibration import Calibration, LabeledExample
from app.core.comparison import Criterion
from app.core.errors import AuditsIncompleteError, CascadeError, StoreUnavailableError
from app.core.fingerprint import is_reversed
from app.sets.batch import Judged, JudgedBatch
from app.sets.cache import Calibrations
from app.sets.trail import SetChange
from scope_judge import records


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The draws that an absorption takes.

    Args:
        labelled: Those with a label.
        unlabelled: Number of those that were left out because they were closed or have expired.
        waiting: Number of later draws with a label, which wait for an open one.
        other_judge: Number of draws that were left out because another judge made them.
        replaces: Whether they replace all examples.
    """

    labelled: list[Audit]
    unlabelled: int
    waiting: int
    other_judge: int
    replaces: bool

    @property
    def criteria(self) -> frozenset[Criterion]:
        """The criteria under which the labeled ones were drawn first."""
        return frozenset(audit.uses[0].criterion for audit in self.labelled)

    @property
    def rates(self) -> tuple[float, ...]:
        """Probabilities with which the labeled ones were drawn, sorted.

        More than one means that a part of the time counts more than another.
        """
        return tuple(sorted({audit.rate for audit in self.labelled}))


class Absorber:
    """Adds labeled audits to calibration sets."""

    def __init__(
        self,
        auditor: Auditor,
        changes: Changes,
        calibrations: Calibrations,
        monitor: Monitor,
        *,
        fingerprint: str,
    ) -> None:
        self._auditor = auditor
        self._monitor = monitor
        self._changes = changes
        self._calibrations = calibrations
        self._fingerprint = fingerprint

    async def absorb(
        self, name: str, *, by: str, dry_run: bool, even_if_infeasible: bool
    ) -> tuple[SetChange, Chosen]:
        """Makes labeled draws examples of the set, all in one version or not at all.

        Ties keep their scores, as by POST /calibrate. Absorbing again changes nothing.

        Args:
            dry_run: Change nothing; see `Changes.put`.
            even_if_infeasible: Absorb even if a criterion in use gets no more verdicts.

        Raises:
            CalibrationNotFoundError: The set does not exist.
            CascadeError: The set is a cascade's.
            JudgeMismatchError: The set belongs to another judge.
            AuditsIncompleteError: After an alarm, fewer draws were made than its number, or one of
                them is open, or none has a preferred side.
            BecomesInfeasibleError: A criterion in use would get no more verdicts.
            StoreUnavailableError: The store does not answer; trying again is safe.
        """
        chosen = await self._chosen(name)
        change = await self._changes.put(
            name,
            self._batch(chosen),
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
        own = [audit for audit in book.since(alarm.position) if self._is_own(audit)]
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

    def _is_own(self, audit: Audit) -> bool:
        return audit.fingerprint == self._fingerprint

    async def _chosen(self, name: str) -> Chosen:
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
        now, audits = self._monitor.now(), book.since(book.start)
        own = [audit for audit in audits if self._is_own(audit)]
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
        return Chosen(
            labelled=labelled,
            unlabelled=len(taken) - len(labelled),
            waiting=sum(audit.status(now) == "labelled" for audit in later),
            other_judge=len(audits) - len(own),
            replaces=alarm is not None,
        )

    def _batch(self, chosen: Chosen) -> JudgedBatch:
        return JudgedBatch(
            examples=[_example_of(audit) for audit in chosen.labelled],
            fingerprint=self._fingerprint,
            action="absorb",
            change_labels=True,
            replaces=chosen.replaces,
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
