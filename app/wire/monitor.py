"""JSON answers about audits and drift of a calibration set."""

from app.core.calibration import Calibration
from app.core.comparison import Guarantee
from app.service.auditing.drift import Figures
from app.service.auditing.monitor import OnAlarm, Report, SetReport
from app.service.services import Services
from app.wire.answers import Out

# Callers choose the criteria, so their number in one answer is limited.
_MOST_CRITERIA = 100


class MonitoredOut(Out):
    """The audits of one criterion under this version of the set.

    The labels of drawn accepted judgments count in the order of the draws: `waiting` ones wait for
    an earlier draw that is still open. `evidence` reaches 20 with probability at most 0.05 as long
    as the error is at most alpha, whenever and how often it is looked at; `alarm` is true from then
    on. `certificate` and `certified` are the same for the claim that the error is at most alpha.
    `error_interval` holds a constant true error at all times with probability 0.95. Labels may be
    wrong with probability `label_noise`, so they are compared with `bound` instead of alpha.
    """

    alpha: float
    guarantee: Guarantee
    delta: float | None
    audited: int
    errors: int
    error_interval: tuple[float, float]
    label_noise: float
    bound: float
    evidence: float
    alarm: bool
    alarm_at: int | None
    certificate: float
    certified: bool
    certified_at: int | None
    suspended: bool
    ties: int
    waiting: int
    open: int
    expired: int
    abstentions: int

    @classmethod
    def of(cls, report: Report, *, suspends: bool) -> "MonitoredOut":
        """Converts a report.

        Args:
            report: The audits of the criterion.
            suspends: Whether judgments abstain after an alarm.
        """
        figures = report.figures
        return cls(
            **report.criterion._asdict(),
            audited=figures.labelled,
            errors=figures.errors,
            error_interval=figures.interval,
            label_noise=report.label_noise,
            bound=report.bound,
            evidence=figures.evidence,
            alarm=figures.alarm,
            alarm_at=figures.alarm_at,
            certificate=figures.certificate,
            certified=figures.certified,
            certified_at=figures.certified_at,
            suspended=suspends and figures.alarm,
            ties=report.ties,
            waiting=report.waiting,
            open=report.open,
            expired=report.expired,
            abstentions=report.abstentions,
        )


class StreamOut(Out):
    """Evidence of all replicas that one value of the judgments is unlike the labelled pairs.

    `alarm` is true once the evidence has reached 20, which by chance alone any of the three values
    of a version ever does with probability at most 0.05.
    """

    evidence: float
    alarm: bool


class DriftOut(Out):
    """Evidence of drift in three values of the judgments by this version."""

    uncertainty: StreamOut
    position_gap: StreamOut
    label_mass: StreamOut


class MonitorOut(Out):
    """The audits of a calibration set's version in force, and the drift of its traffic.

    `criteria` has the criteria that judgments of this version were drawn under, at most 100: those
    with an alarm first, then those with the most labels. `left_out` counts the others. `alarm` is
    true if any criterion or any value of `drift` has an alarm. `note` says what to do; null if
    there is nothing to do.
    """

    name: str
    version: int
    audit_rate: float
    on_alarm: OnAlarm
    criteria: list[MonitoredOut]
    left_out: int
    drift: DriftOut
    alarm: bool
    note: str | None

    @classmethod
    def of(
        cls, services: Services, calibration: Calibration, report: SetReport, drift: Figures
    ) -> "MonitorOut":
        """Converts the audits and the drift of a version."""
        on_alarm, rate = services.monitor.on_alarm, services.auditor.rate
        shown = sorted(report.reports, key=_importance)[:_MOST_CRITERIA]
        has_drifted = any(each.alarm for each in drift.values())
        return cls(
            name=calibration.name,
            version=calibration.version,
            audit_rate=rate,
            on_alarm=on_alarm,
            criteria=[MonitoredOut.of(each, suspends=on_alarm == "abstain") for each in shown],
            left_out=len(report.reports) - len(shown),
            drift=DriftOut(**{name: StreamOut(**each._asdict()) for name, each in drift.items()}),
            alarm=bool(report.alarmed) or has_drifted,
            note=_note(report, rate=rate, has_drifted=has_drifted),
        )


def _importance(report: Report) -> tuple[bool, int]:
    """A key by which alarms come first, and then the criteria with the most labels."""
    return not report.figures.alarm, -report.figures.labelled


def _note(report: SetReport, *, rate: float, has_drifted: bool) -> str | None:
    """Says what to do about a set, if there is something to do."""
    if report.alarmed:
        return (
            "accepted verdicts are wrong more often than alpha: do not use them, and make a new "
            "version of the set from labels of today's traffic (POST /calibrations/{name}/absorb; "
            "docs/guides/monitoring.md, An alarm of the audits)"
        )
    if has_drifted:
        return (
            "judgments are unlike the labelled pairs, so the guarantee may not hold: label a random"
            " sample of today's pairs (docs/guides/monitoring.md, Drift)"
        )
    if report.reports:
        return None
    if rate > 0:
        return f"no judgment by this version was drawn yet; the rate is {rate:g} (SCOPE_AUDIT_RATE)"
    return (
        "no judgment by this version was drawn, so nothing is known about wrong verdicts: set "
        "SCOPE_AUDIT_RATE, such as 0.02, and label the judgments that GET /audits lists"
    )
