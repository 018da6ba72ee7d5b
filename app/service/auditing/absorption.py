"""Makes labelled audits examples of their calibration set."""

from collections.abc import Iterable
from typing import NamedTuple

from app.core.calibration import LabelledScore
from app.core.errors import AuditsIncompleteError
from app.service.auditing.auditor import Auditor
from app.service.auditing.ledger import Draw
from app.service.calibration.batch import JudgedBatch, JudgedExample
from app.service.calibration.cache import Calibrations
from app.service.calibration.calibrator import CalibrationReport, Calibrator
from app.service.off_loop import off_loop


class AbsorbReport(NamedTuple):
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


class Period(NamedTuple):
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


class _Draws(NamedTuple):
    """The draws of one set and time.

    Args:
        labelled: The draws with a label.
        unlabelled: Number of draws without one.
        other_judge: Number of draws by another judge.
    """

    labelled: list[Draw]
    unlabelled: int
    other_judge: int

    @classmethod
    def of(cls, draws: Iterable[Draw], *, period: Period, fingerprint: str) -> "_Draws":
        """Sorts the draws of a set."""
        labelled: list[Draw] = []
        unlabelled = other_judge = 0
        for draw in draws:
            if not period.includes(draw.first_at):
                continue
            if draw.fingerprint != fingerprint:
                other_judge += 1
            elif draw.label is None:
                unlabelled += 1
            else:
                labelled.append(draw)
        return cls(labelled, unlabelled, other_judge)


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
        drawn = self._auditor.ledger.draws(name)
        draws = await off_loop(_Draws.of, drawn, period=period, fingerprint=self._fingerprint)
        if draws.unlabelled and not leave_out:
            raise AuditsIncompleteError(
                f"{draws.unlabelled} of {draws.unlabelled + len(draws.labelled)} audits of the "
                f"calibration {name!r} have no label, so the labelled ones may be no random sample "
                "of the traffic. Label the open ones (GET /audits?status=open), choose another "
                '`since` or `until`, or send "unlabelled": "leave_out" if labels are missing for '
                "no reason that has to do with the answers"
            )
        if replace and all(draw.label == "tie" for draw in draws.labelled):
            raise AuditsIncompleteError(
                f"there are no labelled audits of the calibration {name!r} in that time, so "
                "replacing its examples would leave none"
            )
        batch = JudgedBatch(
            [_example(draw) for draw in draws.labelled],
            self._fingerprint,
            label_noise=None,
            action="absorb",
            replaces=replace,
        )
        report = await self._calibrator.put(name, batch, by=by)
        rates = tuple(sorted({draw.rate for draw in draws.labelled}))
        return AbsorbReport(report, draws.unlabelled, draws.other_judge, rates)


def _example(draw: Draw) -> JudgedExample:
    """Returns a labelled draw as an example; a tie has no score."""
    assert draw.label is not None, "only labelled draws are absorbed"
    if draw.label == "tie":
        return JudgedExample(draw.digest, None)
    numbers = (draw.gap_fwd, draw.gap_rev, draw.label_mass)
    score = LabelledScore(*numbers, draw.label, draw.question)
    return JudgedExample(draw.digest, score)
