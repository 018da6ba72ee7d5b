"""JSON answers about audits and drift of a calibration set."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Literal

from app.core.calibration import Calibration
from app.core.comparison import Guarantee
from app.core.monitoring import MONITOR_DELTA, MonitoredCriterion, Ringing
from app.judging.services import Services
from app.service.auditing.drift import STREAMS, Figures, StreamFigures
from app.service.auditing.entries import written, written_span
from app.service.auditing.ledger import MOST_CRITERIA
from app.service.auditing.monitor import OnAlarm, SetReport
from app.service.auditing.recovery import Recovery
from app.wire.answers import Out


class RingingOut(Out):
    """When an alarm was raised, and the judgments that led to it; all null without an alarm."""

    rang_at: str | None
    rang_version: int | None
    first_judged_at: str | None
    last_judged_at: str | None


def ringing_fields(rang: Ringing | None) -> dict[str, Any]:
    """The fields of `RingingOut`, which longer answers extend."""
    if rang is None:
        return dict.fromkeys(RingingOut.model_fields)
    return {
        "rang_at": written(rang.at),
        "rang_version": rang.version,
        **written_span(rang.span),
    }


class MonitoredKeyOut(Out):
    """The audits of one criterion whose judgments one key was the first to ask for.

    `evidence` is about the error of these judgments: for a key whose error is at most alpha, it
    reaches 20 with probability at most 0.05.
    """

    key: str
    audited: int
    errors: int
    evidence: float
    open: int


class MonitoredOut(RingingOut):
    """The audits of one criterion under this version of the set.

    The labels of drawn accepted judgments count by question, in the order of the first draws:
    `waiting` ones wait for a draw of an earlier question that is still open, or for the end of the
    hour in which draws of one question count. As long as the error
    of a random question is at most alpha, `evidence` reaches `alarm_evidence` with probability at
    most 1 / `alarm_evidence`, whenever and how often it is looked at; over all criteria of the
    version these sum to at most 0.05. `alarm` is true from then on, until a version with enough new
    examples or POST /calibrations/{name}/resume. `certificate` and `certified` are the same for the
    claim that the error is at most alpha, at 20. They count closed and expired draws as errors.
    `certified_without_expired` leaves expired draws out: it is the weaker statement, and true only
    if no draw has expired because of its verdict. `error_interval` holds a constant true error at
    all times with probability 0.95. `labelled` counts all labels, also ties, which are
    neither right nor wrong; `tie_interval` holds their share of the accepted verdicts. `keys` has
    the same labels by the keys that asked, at most 20, those with the most errors first.
    """

    alpha: float
    guarantee: Guarantee
    delta: float | None
    labelled: int
    audited: int
    errors: int
    closed: int
    questions: int
    error_interval: tuple[float, float]
    evidence: float
    alarm_evidence: float
    alarm: bool
    alarm_at: int | None
    certificate: float
    certified: bool
    certified_at: int | None
    certificate_without_expired: float
    certified_without_expired: bool
    suspended: bool
    ties: int
    tie_interval: tuple[float, float]
    repeated: int
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
        return cls(
            **asdict(monitored.criterion),
            **{**asdict(monitored.figures), "alarm": monitored.alarm},
            **ringing_fields(monitored.rang),
            labelled=monitored.labelled,
            ties=monitored.ties,
            tie_interval=monitored.tie_interval,
            repeated=monitored.repeated,
            waiting=monitored.waiting,
            open=monitored.open,
            expired=monitored.expired,
            abstentions=monitored.abstentions,
            suspended=suspends and monitored.alarm,
            keys=[MonitoredKeyOut(**asdict(each)) for each in monitored.keys],
            further_keys=monitored.further_keys,
        )


class StreamOut(RingingOut):
    """Evidence of the answering process that a value of its judgments is unlike the labeled ones.

    `alarm` is true once the evidence has reached 20, which by chance alone any of the values
    of a version ever does with probability at most 0.05.
    """

    evidence: float
    alarm: bool

    @classmethod
    def of(cls, figures: StreamFigures) -> "StreamOut":
        """Converts the evidence of one value."""
        return cls(evidence=figures.evidence, alarm=figures.alarm, **ringing_fields(figures.rang))


class DriftOut(Out):
    """Evidence of drift in the values of the judgments by this version.

    `position_gap` is null for a judge that sees no order of the responses, and `label_mass` for one
    that does not say it.
    """

    uncertainty: StreamOut
    position_gap: StreamOut | None
    label_mass: StreamOut | None

    @classmethod
    def of(cls, drift: Figures) -> "DriftOut":
        """Converts the evidence of the values that the judge has."""
        streams = {name: StreamOut.of(figures) for name, figures in drift.items()}
        return cls.model_validate({**dict.fromkeys(STREAMS), **streams})


class RecoveryOut(Out):
    """How the set gets verdicts again after an alarm, without breaking the promise.

    An absorption replaces all examples by the first `audits` drawn since the first active alarm.
    The number follows from the criterion of that alarm, and not from any label; null if it is above
    100,000. With as many, verdicts come back with probability 0.8 if the judge is wrong in at most
    0.6 alpha of its most certain pairs.
    """

    alpha: float
    guarantee: Guarantee
    delta: float | None
    since: str
    audits: int | None
    drawn: int
    labelled: int
    note: str

    @classmethod
    def of(cls, recovery: Recovery) -> "RecoveryOut":
        """Converts the audits of a recovery."""
        criterion, number = recovery.criterion, recovery.audits
        assert criterion.alpha is not None, "only criteria with an alpha are audited"
        if number is None:
            note = f"no number of labels up to 100,000 is enough for {criterion.words}"
        else:
            note = (
                f"label the first {number} audits drawn since the alarm, then run `scope-judge "
                f"audits absorb {criterion.calibration}`; {recovery.drawn} are drawn, and "
                f"{recovery.labelled} of the first {number} are labeled or closed"
            )
        return cls(
            alpha=criterion.alpha,
            guarantee=criterion.guarantee,
            delta=criterion.delta,
            since=written(recovery.since),
            audits=number,
            drawn=recovery.drawn,
            labelled=recovery.labelled,
            note=note,
        )


Light = Literal["green", "amber", "red"]


class MonitorOut(Out):
    """The audits of a calibration set's current version, and the drift of its traffic.

    `criteria` has the first 64 criteria that judgments of this version were drawn under: those with
    an alarm first, then those with the most labels. `refused` counts the draws under other criteria
    that the answering process did not make. `alarm` is true if any criterion or any value of
    `drift` has an alarm. `light` is `red` then, `green` if labels of this version count, no error
    interval reaches above its alpha and there is nothing to do, and `amber` otherwise.
    `alarm_evidence` is the line of `drift` and of certificates; each criterion has its own.
    `summary` says in a sentence how wrong the verdicts are, under the first of the criteria. `note`
    says what to do; null if there is nothing to do.
    `recovery` says how many audits to label after an alarm; null without an alarm.
    """

    name: str
    version: int
    audit_rate: float
    on_alarm: OnAlarm
    criteria: list[MonitoredOut]
    refused: int
    drift: DriftOut
    alarm: bool
    light: Light
    alarm_evidence: float
    summary: str
    note: str | None
    recovery: RecoveryOut | None

    @classmethod
    def of(
        cls,
        services: Services,
        calibration: Calibration,
        report: SetReport,
        drift: Figures,
        recovery: Recovery | None,
    ) -> "MonitorOut":
        """Converts the audits and the drift of a version, and the recovery after an alarm."""
        on_alarm, rate = services.monitor.on_alarm, services.auditor.rate
        refused = services.auditor.refused(calibration)
        has_drifted = any(stream.alarm for stream in drift.values())
        criteria = sorted(report.criteria, key=_importance)
        note = _note(
            report,
            rate=rate,
            refused=refused,
            has_drifted=has_drifted,
        )
        alarm = bool(report.alarmed) or has_drifted
        return cls(
            name=calibration.name,
            version=calibration.version,
            audit_rate=rate,
            on_alarm=on_alarm,
            criteria=[
                MonitoredOut.of(monitored, suspends=on_alarm == "abstain") for monitored in criteria
            ],
            refused=refused,
            drift=DriftOut.of(drift),
            alarm=alarm,
            light=_light(criteria, alarm=alarm, note=note),
            alarm_evidence=1 / MONITOR_DELTA,
            summary=summary(criteria, drift),
            note=note,
            recovery=None if recovery is None else RecoveryOut.of(recovery),
        )


def _light(criteria: Sequence[MonitoredCriterion], *, alarm: bool, note: str | None) -> Light:
    """The colour of a set, which is never green while an error may be above its alpha."""
    if alarm:
        return "red"
    counted = bool(criteria) and criteria[0].figures.audited > 0
    is_kept = counted and not any(each.may_exceed for each in criteria)
    return "green" if is_kept and note is None else "amber"


def _importance(monitored: MonitoredCriterion) -> tuple[bool, int]:
    """A key by which alarms come first, and then the criteria with the most labels."""
    return not monitored.alarm, -monitored.figures.audited


def _note(report: SetReport, *, rate: float, refused: int, has_drifted: bool) -> str | None:
    """Says what to do about a set, if there is something to do."""
    if report.alarmed:
        return (
            "accepted verdicts are wrong more often than alpha: do not use them, and make a new "
            "version of the set from labels of today's traffic (POST "
            "/calibrations/{name}/absorb; docs/guides/monitoring.md, An alarm of the audits). The "
            "alarm ends with a version of which at least half of the examples are new, or by POST "
            "/calibrations/{name}/resume"
        )
    if has_drifted:
        return (
            "judgments are unlike the labeled pairs, so the guarantee may not hold: label a random"
            " sample of today's pairs (docs/guides/monitoring.md, Drift)"
        )
    if refused:
        return (
            f"judgments under further criteria than the {MOST_CRITERIA} with draws are not audited,"
            " so nothing is known about their errors: use fewer different alphas, or sets of their "
            "own (docs/guides/audits.md)"
        )
    if losing := [each for each in report.criteria if each.loses_many]:
        most = max(losing, key=lambda each: each.expired)
        return (
            f"{most.expired} draws under {most.criterion.words} got no label in time. They count "
            "as errors for the certificate and as right for the alarm, so both come later: label "
            "all draws, or lower SCOPE_AUDIT_RATE (docs/guides/monitoring.md, Draws without labels)"
        )
    if unsure := [each for each in report.criteria if each.may_exceed]:
        return _unsure(max(unsure, key=lambda each: each.labelled))
    if report.criteria:
        return None
    if rate > 0:
        return f"no judgment by this version was drawn yet; the rate is {rate:g} (SCOPE_AUDIT_RATE)"
    return (
        "no judgment by this version was drawn, so nothing is known about wrong verdicts: set "
        "SCOPE_AUDIT_RATE, such as 0.02, and label the judgments that GET /audits lists"
    )


def _unsure(monitored: MonitoredCriterion) -> str:
    """Says that labels leave it open whether the error is above alpha."""
    labels, questions = monitored.labelled, monitored.figures.questions
    counted = f"{labels} label{'s' * (labels != 1)} of {questions} question{'s' * (questions != 1)}"
    return (
        f"{counted} leave it open whether the error under {monitored.criterion.words} is above "
        "alpha: label audits of more questions (docs/guides/monitoring.md, The light)"
    )


def summary(criteria: Sequence[MonitoredCriterion], drift: Figures) -> str:
    """Says in a sentence how wrong the verdicts are.

    Args:
        criteria: The audits of each criterion; the sentence is about the first one.
        drift: The drift of the traffic.
    """
    about = _about(criteria[0]) if criteria else "nothing is known about wrong verdicts"
    drifted = [each for each in drift.values() if each.alarm]
    if not drifted:
        return about
    since = min((each.rang.at for each in drifted if each.rang is not None), default=None)
    return f"{about}; the traffic is unlike the labeled pairs{_since(since)}"


def _about(monitored: MonitoredCriterion) -> str:
    figures, criterion = monitored.figures, monitored.criterion
    assert criterion.alpha is not None, "only criteria with an alpha are audited"
    if not figures.audited + figures.closed:
        if monitored.waiting:
            return (
                f"nothing is known about wrong verdicts under {criterion.words} yet: "
                f"{monitored.waiting} labels wait for earlier audits, or for the hour in which "
                "further verdicts on their questions count"
            )
        return (
            f"nothing is known about wrong verdicts under {criterion.words} without labels: "
            f"{monitored.open} audits wait for one"
        )
    promised = f"promised were {100 * criterion.alpha:g}% by {criterion.words}"
    words = f"{_wrong(monitored)}; {promised}{_alarm(monitored)}"
    if monitored.ties:
        low, high = (f"{100 * share:.0f}%" for share in monitored.tie_interval)
        words += (
            f"; {monitored.ties} of {monitored.labelled} labels are ties: {low} to {high} of the "
            "verdicts are on pairs without a better side"
        )
    if monitored.alarm:
        return words
    if figures.certified:
        return f"{words}; labels prove that this is kept"
    if figures.certified_without_expired:
        return (
            f"{words}; labels show that this is kept if the {monitored.expired} expired draws are "
            "like the others"
        )
    return words


def _wrong(monitored: MonitoredCriterion) -> str:
    low, high = (f"{100 * share:.0f}%" for share in monitored.figures.error_interval)
    return f"{low} to {high} of the verdicts are wrong"


def _alarm(monitored: MonitoredCriterion) -> str:
    """Says that an alarm is active; "" without one."""
    if not monitored.alarm:
        return ""
    rang = monitored.rang
    active = "is active" if rang is None else f"has been active{_since(rang.at)}"
    return f"; the alarm {active}"


def _since(at: float | None) -> str:
    """Writes the begin of an alarm in UTC; "" if it is unknown."""
    return "" if at is None else f" since {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
