"""JSON answers about audits and drift of a calibration set."""

from dataclasses import asdict

from app.core.calibration import Calibration
from app.core.comparison import Guarantee
from app.core.monitoring import MonitoredCriterion
from app.service.auditing.drift import Figures
from app.service.auditing.entries import written
from app.service.auditing.ledger import MOST_CRITERIA
from app.service.auditing.monitor import OnAlarm, SetReport
from app.service.services import Services
from app.wire.answers import Out


class MonitoredKeyOut(Out):
    """The audits of one criterion whose judgments one key was the first to ask for.

    `evidence` is about the error of these judgments: for a key whose error is at most alpha, it
    reaches 20 with probability at most 0.05.
    """

    key: str | None
    audited: int
    errors: int
    evidence: float
    open: int


class MonitoredOut(Out):
    """The audits of one criterion under this version of the set.

    The labels of drawn accepted judgments count in the order of the draws: `waiting` ones wait for
    an earlier draw that is still open. `evidence` reaches 20 with probability at most 0.05 as long
    as the error is at most alpha, whenever and how often it is looked at. `alarm` is true from then
    on, until a version with enough new examples or POST /calibrations/{name}/resume.
    `certificate` and `certified` are the same for the claim that the error is at most alpha.
    `error_interval` holds a constant true error at all times with probability 0.95. Labels may be
    wrong with probability `label_noise`, so they are compared with `bound` instead of alpha.
    `keys` has the same labels by the keys that asked, at most 20, those with the most errors first.
    """

    alpha: float
    guarantee: Guarantee
    delta: float | None
    audited: int
    errors: int
    closed: int
    error_interval: tuple[float, float]
    label_noise: float
    bound: float
    evidence: float
    alarm: bool
    alarm_at: int | None
    rang_at: str | None
    certificate: float
    certified: bool
    certified_at: int | None
    suspended: bool
    ties: int
    waiting: int
    open: int
    expired: int
    abstentions: int
    keys: list[MonitoredKeyOut]
    further_keys: int

    @classmethod
    def of(cls, monitored: MonitoredCriterion, *, suspends: bool) -> "MonitoredOut":
        """Converts the audits of a criterion.

        Args:
            monitored: The audits.
            suspends: Whether judgments abstain after an alarm.
        """
        fields = asdict(monitored)
        criterion, figures = fields.pop("criterion"), fields.pop("figures")
        rang_at = fields.pop("rang_at")
        return cls(
            **criterion,
            **{**figures, "alarm": monitored.alarm},
            **fields,
            rang_at=None if rang_at is None else written(rang_at),
            suspended=suspends and monitored.alarm,
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

    `criteria` has the first 64 criteria that judgments of this version were drawn under: those with
    an alarm first, then those with the most labels. `refused` counts the draws under other criteria
    that the answering process did not make. `alarm` is true if any criterion or any value of
    `drift` has an alarm. `note` says what to do; null if there is nothing to do.
    """

    name: str
    version: int
    audit_rate: float
    on_alarm: OnAlarm
    criteria: list[MonitoredOut]
    refused: int
    drift: DriftOut
    alarm: bool
    note: str | None

    @classmethod
    def of(
        cls, services: Services, calibration: Calibration, report: SetReport, drift: Figures
    ) -> "MonitorOut":
        """Converts the audits and the drift of a version."""
        on_alarm, rate = services.monitor.on_alarm, services.auditor.rate
        refused = services.auditor.refused(calibration)
        has_drifted = any(stream.alarm for stream in drift.values())
        return cls(
            name=calibration.name,
            version=calibration.version,
            audit_rate=rate,
            on_alarm=on_alarm,
            criteria=[
                MonitoredOut.of(monitored, suspends=on_alarm == "abstain")
                for monitored in sorted(report.criteria, key=_importance)
            ],
            refused=refused,
            drift=DriftOut(
                **{stream: StreamOut(**asdict(figures)) for stream, figures in drift.items()}
            ),
            alarm=bool(report.alarmed) or has_drifted,
            note=_note(report, rate=rate, refused=refused, has_drifted=has_drifted),
        )


def _importance(monitored: MonitoredCriterion) -> tuple[bool, int]:
    """A key by which alarms come first, and then the criteria with the most labels."""
    return not monitored.alarm, -monitored.figures.audited


def _note(report: SetReport, *, rate: float, refused: int, has_drifted: bool) -> str | None:
    """Says what to do about a set, if there is something to do."""
    if report.alarmed:
        return (
            "accepted verdicts are wrong more often than alpha: do not use them, and make a new "
            "version of the set from labels of today's traffic (POST /calibrations/{name}/absorb; "
            "docs/guides/monitoring.md, An alarm of the audits). The alarm ends with a version of "
            "which at least half of the examples are new, or by POST /calibrations/{name}/resume"
        )
    if has_drifted:
        return (
            "judgments are unlike the labelled pairs, so the guarantee may not hold: label a random"
            " sample of today's pairs (docs/guides/monitoring.md, Drift)"
        )
    if refused:
        return (
            f"judgments under further criteria than the {MOST_CRITERIA} with draws are not audited,"
            " so nothing is known about their errors: use fewer different alphas, or sets of their "
            "own (docs/guides/audits.md)"
        )
    if report.criteria:
        return None
    if rate > 0:
        return f"no judgment by this version was drawn yet; the rate is {rate:g} (SCOPE_AUDIT_RATE)"
    return (
        "no judgment by this version was drawn, so nothing is known about wrong verdicts: set "
        "SCOPE_AUDIT_RATE, such as 0.02, and label the judgments that GET /audits lists"
    )
