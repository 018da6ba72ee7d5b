"""Builds the record of the monitor of a calibration set: audits, drift, and what to do."""

from collections.abc import Sequence

from app.audits.book import MOST_CRITERIA, MOST_OPEN
from app.audits.drift import Figures
from app.audits.figures import CriterionAudits
from app.audits.monitor import SetReport
from app.core.calibration import Calibration
from app.core.monitoring import MONITOR_DELTA
from app.judging.services import Services
from scope_judge import records
from scope_judge.records import Light


def monitor(
    services: Services,
    calibration: Calibration,
    report: SetReport,
    drift: Figures,
    recovery: records.Recovery | None,
) -> records.Monitor:
    """Shows the audits and the drift of a version, and the recovery after an alarm."""
    rate, refused = services.auditor.rate, services.auditor.refused(calibration)
    has_drifted = any(stream.alarm for stream in drift.values())
    criteria = sorted(report.criteria, key=_importance)
    note = _note(report, rate=rate, refused=refused, has_drifted=has_drifted)
    alarm = bool(report.alarmed) or has_drifted
    return records.Monitor(
        name=calibration.name,
        version=calibration.version,
        audit_rate=rate,
        on_alarm=services.monitor.on_alarm,
        criteria=tuple(audits.shown for audits in criteria),
        refused=refused,
        drift=records.Drift(
            uncertainty=drift["uncertainty"],
            position_gap=drift.get("position_gap"),
            label_mass=drift.get("label_mass"),
            large_uncertainty=drift.get("large_uncertainty"),
        ),
        alarm=alarm,
        light=_light(criteria, alarm=alarm, note=note),
        alarm_evidence=1 / MONITOR_DELTA,
        summary=summary(criteria, drift),
        note=note,
        recovery=recovery,
    )


def _light(criteria: Sequence[CriterionAudits], *, alarm: bool, note: str | None) -> Light:
    """The color of a set, which is never green while an error may be above its alpha."""
    if alarm:
        return "red"
    counted = bool(criteria) and criteria[0].shown.audited > 0
    is_kept = counted and not any(audits.may_exceed for audits in criteria)
    return "green" if is_kept and note is None else "amber"


def _importance(audits: CriterionAudits) -> tuple[bool, int]:
    """A key by which alarms come first, and then the criteria with the most labels."""
    return not audits.shown.alarm, -audits.shown.audited


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
    if report.is_full:
        return (
            f"{MOST_OPEN} audits of this set are open, so no more are drawn: label them, close "
            "those that nobody can label, or lower SCOPE_AUDIT_RATE (docs/guides/audits.md)"
        )
    if refused:
        return (
            f"judgments under further criteria than the {MOST_CRITERIA} with draws are not audited,"
            " so nothing is known about their errors: use fewer different alphas, or sets of their "
            "own (docs/guides/audits.md)"
        )
    if losing := [audits for audits in report.criteria if audits.loses_many]:
        most = max(losing, key=lambda audits: audits.shown.expired)
        return (
            f"{most.shown.expired} draws under {most.criterion.words} got no label in time. They "
            "count as errors for the certificate and as right for the alarm, so both come later: "
            "label all draws, or lower SCOPE_AUDIT_RATE (docs/guides/monitoring.md, Draws without "
            "labels)"
        )
    if unsure := [audits for audits in report.criteria if audits.may_exceed]:
        return _unsure(max(unsure, key=lambda audits: audits.shown.labelled))
    if report.criteria:
        return None
    if rate > 0:
        return f"no judgment by this version was drawn yet; the rate is {rate:g} (SCOPE_AUDIT_RATE)"
    return (
        "no judgment by this version was drawn, so nothing is known about wrong verdicts: set "
        "SCOPE_AUDIT_RATE, such as 0.02, and label the judgments that GET /audits lists"
    )


def _unsure(audits: CriterionAudits) -> str:
    """Says that labels leave it open whether the error is above alpha."""
    labels, questions = audits.shown.labelled, audits.shown.questions
    counted = f"{labels} label{'s' * (labels != 1)} of {questions} question{'s' * (questions != 1)}"
    return (
        f"{counted} leave it open whether the error under {audits.criterion.words} is above "
        "alpha: label audits of more questions (docs/guides/monitoring.md, The light)"
    )


def summary(criteria: Sequence[CriterionAudits], drift: Figures) -> str:
    """Says in a sentence how wrong the verdicts of the first criterion are."""
    about = _about(criteria[0]) if criteria else "nothing is known about wrong verdicts"
    drifted = [stream for stream in drift.values() if stream.alarm]
    if not drifted:
        return about
    since = min((stream.rang_at for stream in drifted if stream.rang_at is not None), default=None)
    return f"{about}; the traffic is unlike the labeled pairs{_since(since)}"


def _about(audits: CriterionAudits) -> str:
    shown, under = audits.shown, audits.criterion.words
    if not shown.audited + shown.closed:
        if shown.waiting:
            return (
                f"nothing is known about wrong verdicts under {under} yet: {shown.waiting} labels "
                "wait for earlier audits, or for the hour in which further verdicts on their "
                "questions count"
            )
        return (
            f"nothing is known about wrong verdicts under {under} without labels: {shown.open} "
            "audits wait for one"
        )
    low, high = (f"{100 * share:.0f}%" for share in shown.error_interval)
    promised = f"promised were {100 * shown.alpha:g}% by {under}"
    text = f"{low} to {high} of the verdicts are wrong; {promised}"
    if shown.alarm:
        active = "is active" if shown.rang_at is None else "has been active"
        text += f"; the alarm {active}{_since(shown.rang_at)}"
    if shown.ties:
        low, high = (f"{100 * share:.0f}%" for share in shown.tie_interval)
        text += (
            f"; {shown.ties} of {shown.labelled} labels are ties: {low} to {high} of the verdicts "
            "are on pairs without a better side"
        )
    if shown.alarm:
        return text
    if shown.certified:
        return f"{text}; labels prove that this is kept"
    return text


def _since(at: str | None) -> str:
    """Writes the begin of an alarm, an ISO time, to the minute; "" if it is unknown."""
    return "" if at is None else f" since {at[:16].replace('T', ' ')} UTC"
