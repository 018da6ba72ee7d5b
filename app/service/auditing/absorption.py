"""Makes labelled audits examples of their calibration set."""

from collections.abc import Iterable
from dataclasses import dataclass

from app.core.calibration import LabelledExample
from app.core.errors import AuditsIncompleteError
from app.service.auditing.auditor import Auditor
from app.service.auditing.ledger import Audit
from app.service.calibration.batch import JudgedBatch, JudgedExample
from app.service.calibration.cache import Calibrations
from app.service.calibration.calibrator import CalibrationReport, Calibrator
from app.service.off_loop import off_loop


@dataclass(frozen=True, kw_only=True, slots=True)
class AbsorbReport:
    """The outcome of one absorption.

    Args:
        batch: The outcome of the labelled draws as a batch of examples.
        unlabelled: Number of draws that were left out because they have no label.
        other_judge: Number of draws that were left out because another judge made them.
        rates: Probabilities with which the draws were drawn, sorted. More than one means that a
            part of the time counts more than another.
    """

    batch: CalibrationReport
    unlabelled: int
    other_judge: int
    rates: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Period:
    """A time of the traffic, in seconds since 1970.

    Args:
        since: Its begin; None for none.
        until: Its end, which is no part of it; None for none.
    """

    since: float | None = None
    until: float | None = None

    def includes(self, at: float) -> bool:
        """Whether a moment is in the period."""
        return (self.since is None or self.since <= at) and (self.until is None or at < self.until)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sorted:
    """The audits of one set and period.

    Args:
        labelled: Those with a label.
        unlabelled: Number of those without one, also if they were closed.
        other_judge: Number of those by another judge.
    """

    labelled: list[Audit]
    unlabelled: int
    other_judge: int

    @classmethod
    def of(cls, audits: Iterable[Audit], *, period: Period, fingerprint: str) -> "_Sorted":
        """Sorts the audits of a set."""
        of_period = [audit for audit in audits if period.includes(audit.draw.at)]
        own = [audit for audit in of_period if audit.draw.fingerprint == fingerprint]
        labelled = [audit for audit in own if audit.label not in (None, "none")]
        return cls(
            labelled=labelled,
            unlabelled=len(own) - len(labelled),
            other_judge=len(of_period) - len(own),
        )


class Absorber:
    """Adds labelled audits to calibration sets.

    Args:
        auditor: Keeps the audits.
        calibrator: Changes the sets.
        calibrations: The cache of the sets.
        fingerprint: Fingerprint of the judge.
    """

    def __init__(
        self,
        auditor: Auditor,
        calibrator: Calibrator,
        calibrations: Calibrations,
        *,
        fingerprint: str,
    ) -> None:
        self._auditor = auditor
        self._calibrator = calibrator
        self._calibrations = calibrations
        self._fingerprint = fingerprint

    async def absorb(
        self, name: str, *, period: Period, replace: bool, leave_out: bool, by: str
    ) -> AbsorbReport:
        """Makes labelled draws examples of the set, all in one version or not at all.

        Ties are left out, as by POST /calibrate. Absorbing again changes nothing.

        Args:
            name: Name of the calibration set.
            period: Only draws whose first judgment was in this time. It must not be chosen by the
                labels.
            replace: Remove all other examples of the set.
            leave_out: Leave draws without a label out instead of refusing.
            by: Name of the key that asked for it, for the trail.

        Raises:
            CalibrationNotFoundError: There is no such set.
            JudgeMismatchError: The set belongs to another judge.
            AuditsIncompleteError: Draws have no label, so the labelled ones are no random sample.
                Or `replace` would leave no example.
            StoreUnavailableError: The store does not answer; trying again is safe.
        """
        await self._calibrations.get(name)
        await self._auditor.catch_up()
        audits = await off_loop(
            _Sorted.of,
            self._auditor.ledger.audits(name),
            period=period,
            fingerprint=self._fingerprint,
        )
        if audits.unlabelled and not leave_out:
            raise AuditsIncompleteError(
                f"{audits.unlabelled} of {audits.unlabelled + len(audits.labelled)} audits of the "
                f"calibration {name!r} have no label, so the labelled ones may be no random sample "
                "of the traffic. Label the open ones (GET /audits?status=open), choose another "
                '`since` or `until`, or send "unlabelled": "leave_out" if labels are missing for '
                "no reason that has to do with the answers; closed audits have no label either"
            )
        if replace and all(audit.label == "tie" for audit in audits.labelled):
            raise AuditsIncompleteError(
                f"there are no labelled audits of the calibration {name!r} in that time, so "
                "replacing its examples would leave none"
            )
        batch = JudgedBatch(
            examples=[_example(audit) for audit in audits.labelled],
            fingerprint=self._fingerprint,
            label_noise=None,
            action="absorb",
            replaces=replace,
        )
        return AbsorbReport(
            batch=await self._calibrator.put(name, batch, by=by),
            unlabelled=audits.unlabelled,
            other_judge=audits.other_judge,
            rates=tuple(sorted({audit.draw.rate for audit in audits.labelled})),
        )


def _example(audit: Audit) -> JudgedExample:
    """Returns a labelled audit as an example; a tie has no score."""
    draw, label = audit.draw, audit.label
    assert label is not None, "open audits are not absorbed"
    assert label != "none", "closed audits are not absorbed"
    if label == "tie":
        return JudgedExample(digest=draw.digest, example=None)
    example = LabelledExample(score=draw.score, label=label, question=draw.question)
    return JudgedExample(digest=draw.digest, example=example)
