"""The audits of each criterion: an alarm, a certificate, and the error so far.

A pure function of the log and the time, so replicas agree and a restart changes nothing. The labels
count in the order of the draws: those after the first open draw wait until it is labelled or has
expired. Otherwise people who label hard pairs later would move the errors to the end.
"""

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app import gauges
from app.core.calibration import Calibration
from app.core.comparison import Criterion
from app.core.monitoring import MonitorFigures, monitor
from app.core.pac import observed_error
from app.core.preference import preference_from_gaps
from app.service.auditing.auditor import Auditor
from app.service.auditing.columns import DrawColumns, UseColumns
from app.service.auditing.entries import CriterionKey
from app.service.auditing.ledger import LABEL_A, NO_LABEL, TIE, Ledger, Uses
from app.service.calibration.cache import Calibrations
from app.service.off_loop import off_loop
from app.telemetry import Telemetry

OnAlarm = Literal["report", "abstain"]

# Interval at which new entries of the log are looked for. Callers choose the criteria, so a round
# that takes long is followed by a long pause.
_FOLLOW_S = 0.5
_REST = 10.0
# A set with more draws is computed in a thread; this many take a millisecond.
_MOST_ON_LOOP = 1000
_MOST_SETS = 1000
# Criteria of one set that have gauges.
_MOST_SHOWN = 20

logger = logging.getLogger("app.monitor")


class Report(NamedTuple):
    """The audits of one criterion under one version of a set.

    Args:
        criterion: The criterion.
        figures: Evidence, certificate and error from the labels that count. `labelled` leaves out
            ties.
        bound: Largest share of labels that differ from the verdicts, if the error is alpha: the
            label noise adds to alpha.
        label_noise: Label noise of the version.
        ties: Number of labels "tie" among those that count.
        waiting: Number of labels that wait for an earlier draw.
        open: Number of accepted draws without a label.
        expired: Number of accepted draws that got no label in time.
        abstentions: Number of drawn abstentions, which have no part in the error.
    """

    criterion: CriterionKey
    figures: MonitorFigures
    bound: float
    label_noise: float
    ties: int
    waiting: int
    open: int
    expired: int
    abstentions: int


class SetReport(NamedTuple):
    """The audits of one version of a set.

    Args:
        write_id: The version.
        ledger: The audits that were read.
        changes: Number of changes of the set's audits that were read.
        until: Time at which the next draw expires, in seconds since 1970.
        reports: The audits of each criterion, in order of the criteria.
    """

    write_id: str
    ledger: Ledger
    changes: int
    until: float
    reports: tuple[Report, ...]

    @property
    def alarmed(self) -> frozenset[CriterionKey]:
        """The criteria with an alarm."""
        return frozenset(each.criterion for each in self.reports if each.figures.alarm)

    def is_current(self, ledger: Ledger, changes: int, now: float) -> bool:
        """Whether nothing has changed since."""
        # The auditor makes another ledger after the log of the store was replaced.
        return self.ledger is ledger and self.changes == changes and now <= self.until


class Monitor:
    """The monitor of all sets; mutated only on the event loop.

    Args:
        auditor: The audits.
        calibrations: The sets.
        telemetry: Shows the audits of the sets that have gauges.
        on_alarm: "report", or "abstain" if judgments under a criterion with an alarm abstain.
        now: Clock in seconds since 1970.
    """

    def __init__(
        self,
        auditor: Auditor,
        calibrations: Calibrations,
        telemetry: Telemetry,
        *,
        on_alarm: OnAlarm = "report",
        now: Callable[[], float] = time.time,
    ) -> None:
        self._auditor = auditor
        self._calibrations = calibrations
        self.on_alarm = on_alarm
        self._now = now
        # The set that was computed last comes last.
        self._known: OrderedDict[str, SetReport] = OrderedDict()
        telemetry.show_monitors(self._gauges)

    @property
    def suspends(self) -> bool:
        """Whether judgments under a criterion with an alarm abstain."""
        return self.on_alarm == "abstain"

    async def follow(self) -> None:
        """Computes the sets in memory anew when their audits change; runs until it is cancelled."""
        rest = _FOLLOW_S
        while True:
            await asyncio.sleep(rest)
            begun = time.monotonic()
            for calibration in self._calibrations.known():
                await self.of(calibration)
            rest = max(_FOLLOW_S, _REST * (time.monotonic() - begun))

    async def of(self, calibration: Calibration) -> SetReport:
        """Returns the audits of a version as they are now."""
        known, ledger, now = self._report(calibration), self._auditor.ledger, self._now()
        changes = ledger.changes(calibration.name)
        if known is not None and known.is_current(ledger, changes, now):
            return known
        uses = list(ledger.uses(calibration.name, calibration.write_id).items())
        compute = partial(computed, ledger, uses, now=now, expires_s=self._auditor.expires_s)
        few = sum(len(each) for _, each in uses) <= _MOST_ON_LOOP
        reports, until = compute() if few else await off_loop(compute)
        found = SetReport(calibration.write_id, ledger, changes, until, reports)
        self._keep(calibration, found)
        return found

    async def suspended(
        self, asked: Iterable[tuple[Criterion, Calibration]]
    ) -> frozenset[Criterion]:
        """Returns the criteria under which judgments abstain because of their audits.

        A version that was seen before is not computed anew here: `follow` does that.

        Args:
            asked: Criteria with an alpha, and their calibration sets.
        """
        if not self.suspends:
            return frozenset()
        found = set()
        for criterion, calibration in asked:
            report = self._report(calibration) or await self.of(calibration)
            assert criterion.alpha is not None
            key = CriterionKey(criterion.alpha, criterion.guarantee, criterion.delta)
            if any(each.criterion == key and each.figures.alarm for each in report.reports):
                found.add(criterion)
        return frozenset(found)

    def _report(self, calibration: Calibration) -> SetReport | None:
        """The last report about a version; None if there is none."""
        known = self._known.get(calibration.name)
        return known if known is not None and known.write_id == calibration.write_id else None

    def _keep(self, calibration: Calibration, found: SetReport) -> None:
        """Keeps a report, and logs new alarms."""
        before = self._report(calibration)
        self._known[calibration.name] = found
        self._known.move_to_end(calibration.name)
        if len(self._known) > _MOST_SETS:
            self._known.popitem(last=False)
        for report in found.reports:
            if report.figures.alarm and (before is None or report.criterion not in before.alarmed):
                self._log(calibration, report)

    def _log(self, calibration: Calibration, report: Report) -> None:
        alpha, guarantee, delta = report.criterion
        logger.warning(
            "audits of calibration %r (version %d) show more errors than alpha %g (%s%s): %d of %d "
            "labels of accepted judgments are errors%s; docs/guides/monitoring.md says what to do",
            calibration.name,
            calibration.version,
            alpha,
            guarantee,
            "" if delta is None else f", delta {delta:g}",
            report.figures.errors,
            report.figures.labelled,
            "; judgments under this criterion abstain" if self.suspends else "",
        )

    def _gauges(self) -> list[gauges.MonitorFigures]:
        """The criteria with the most labels of each set that has gauges."""
        found = []
        for calibration in self._calibrations.shown():
            report = self._report(calibration)
            most = sorted(
                report.reports if report is not None else (),
                key=lambda each: (-each.figures.labelled, _order(each.criterion)),
            )
            found += [_gauges_of(calibration.name, each) for each in most[:_MOST_SHOWN]]
        return found


def computed(
    ledger: Ledger,
    uses: Sequence[tuple[CriterionKey, Uses]],
    *,
    now: float,
    expires_s: float,
) -> tuple[tuple[Report, ...], float]:
    """Returns the audits of each criterion, and a time until which only the log can change them.

    Args:
        ledger: The audits.
        uses: The draws of each criterion under one version.
        now: The time in seconds since 1970.
        expires_s: Seconds after which a draw without a label expires.
    """
    # The draws last: they have the rows of all uses then.
    criteria = [(key, each.columns()) for key, each in uses]
    draws = ledger.columns()
    reports, until = list[Report](), math.inf
    for key, columns in sorted(criteria, key=lambda each: _order(each[0])):
        fold = _Fold.of(columns, draws, now=now, expires_s=expires_s)
        reports.append(fold.report(key))
        until = min(until, fold.until)
    return tuple(reports), until


class _Fold(NamedTuple):
    """The draws of one criterion in columns, and where their order ends.

    Args:
        errors: Shape (n,). Whether each label that counts is an error, without ties.
        label_noise: Label noise of the version.
        ties: Number of ties among the labels that count.
        waiting: Number of labels that wait for an earlier draw.
        open: Number of open draws.
        expired: Number of expired draws.
        abstentions: Number of drawn abstentions.
        until: Time at which the next draw expires.
    """

    errors: NDArray[np.bool_]
    label_noise: float
    ties: int
    waiting: int
    open: int
    expired: int
    abstentions: int
    until: float

    @classmethod
    def of(cls, uses: UseColumns, draws: DrawColumns, *, now: float, expires_s: float) -> "_Fold":
        """Folds the uses of a criterion.

        Args:
            uses: The uses in the order of the log.
            draws: All draws.
            now: The time.
            expires_s: Seconds after which a draw without a label expires.
        """
        rows, ends = uses.rows[uses.accepted], uses.at[uses.accepted] + expires_s
        label, labelled_at = draws.label[rows], draws.labelled_at[rows]
        labelled = (label != NO_LABEL) & (labelled_at <= ends)
        is_open = ~labelled & (now <= ends)
        first_open = int(is_open.argmax()) if is_open.any() else len(rows)
        counts = labelled & (np.arange(len(rows)) < first_open)
        tie = label == TIE
        judged = counts & ~tie
        p_bar = preference_from_gaps(draws.gap_fwd[rows[judged]], draws.gap_rev[rows[judged]]).p_bar
        return cls(
            errors=np.where(label[judged] == LABEL_A, p_bar <= 0.5, p_bar >= 0.5),
            label_noise=float(uses.label_noise[-1]),
            ties=int((counts & tie).sum()),
            waiting=int((labelled & ~counts).sum()),
            open=int(is_open.sum()),
            expired=int((~labelled & ~is_open).sum()),
            abstentions=len(uses.rows) - len(rows),
            until=float(ends[is_open].min()) if is_open.any() else math.inf,
        )

    def report(self, key: CriterionKey) -> Report:
        """Tests the errors against alpha."""
        figures = monitor(self.errors, alpha=key.alpha, label_noise=self.label_noise)
        return Report(
            criterion=key,
            figures=figures,
            bound=observed_error(key.alpha, self.label_noise),
            label_noise=self.label_noise,
            ties=self.ties,
            waiting=self.waiting,
            open=self.open,
            expired=self.expired,
            abstentions=self.abstentions,
        )


def _order(key: CriterionKey) -> tuple[str, float, float]:
    """The order in which criteria are shown."""
    return key.guarantee, key.alpha, key.delta or 0.0


def _gauges_of(name: str, report: Report) -> gauges.MonitorFigures:
    figures, criterion = report.figures, report.criterion
    return gauges.MonitorFigures(
        calibration=name,
        guarantee=criterion.guarantee,
        alpha=criterion.alpha,
        delta=criterion.delta,
        evidence=figures.evidence,
        alarm=figures.alarm,
        certified=figures.certified,
        audited=figures.labelled,
        errors=figures.errors,
        open=report.open,
        expired=report.expired,
    )
