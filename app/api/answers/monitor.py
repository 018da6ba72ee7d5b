"""Builds the records of audits and drift of a calibration set."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any

from app.audits.absorption import Recovery
from app.audits.book import MOST_CRITERIA, MOST_OPEN
from app.audits.drift import Figures, StreamFigures
from app.audits.entries import written, written_span
from app.audits.monitor import SetReport
from app.core.calibration import Calibration
from app.core.monitoring import MONITOR_DELTA, MonitoredCriterion, Raised
from app.judging.services import Services
from scope_judge import records
from scope_judge.records import Light


def monitor(
    services: Services,
    calibration: Calibration,
    report: SetReport,
    drift: Figures,
    recovery: Recovery | None,
) -> records.Monitor:
    """Converts the audits and the drift of a version, and the recovery after an alarm."""
    on_alarm, rate = services.monitor.on_alarm, services.auditor.rate
    refused = services.auditor.refused(calibration)
    has_drifted = any(stream.alarm for stream in drift.values())
    criteria = sorted(report.criteria, key=_importance)
    note = _note(report, rate=rate, refused=refused, has_drifted=has_drifted)
    alarm = bool(report.alarmed) or has_drifted
    streams = {name: _stream(figures) for name, figures in drift.items()}
    return records.Monitor(
        name=calibration.name,
        version=calibration.version,
        audit_rate=rate,
        on_alarm=on_alarm,
        criteria=tuple(_criterion(each, suspends=on_alarm == "abstain") for each in criteria),
        refused=refused,
        drift=records.Drift(
            uncertainty=streams["uncertainty"],
            position_gap=streams.get("position_gap"),
            label_mass=streams.get("label_mass"),
        ),
        alarm=alarm,
        light=_light(criteria, alarm=alarm, note=note),
        alarm_evidence=1 / MONITOR_DELTA,
        summary=summary(criteria, drift),
        note=note,
        recovery=None if recovery is None else _recovery(recovery),
    )


def _criterion(monitored: MonitoredCriterion, *, suspends: bool) -> records.MonitoredCriterion:
    """Converts the audits of a criterion; `suspends` says if judgments abstain after an alarm."""
    criterion = asdict(monitored.criterion)
    del criterion["calibration"]
    return records.MonitoredCriterion(
        **criterion,
        **asdict(monitored.figures) | {"alarm": monitored.alarm},
        **_alarm_times(monitored.raised),
        labelled=monitored.labelled,
        ties=monitored.ties,
        tie_interval=monitored.tie_interval,
        repeated=monitored.repeated,
        waiting=monitored.waiting,
        open=monitored.open,
        expired=monitored.expired,
        abstentions=monitored.abstentions,
        suspended=suspends and monitored.alarm,
        keys=tuple(records.MonitoredKey(**asdict(each)) for each in monitored.keys),
        further_keys=monitored.further_keys,
    )


def _stream(figures: StreamFigures) -> records.DriftStream:
    return records.DriftStream(
        evidence=figures.evidence, alarm=figures.alarm, **_alarm_times(figures.raised)
    )


def _alarm_times(raised: Raised | None) -> dict[str, Any]:
    """The fields of `AlarmTimes`, which longer records extend."""
    if raised is None:
        return dict.fromkeys(field.name for field in fields(records.AlarmTimes))
    return {
        "rang_at": written(raised.at),
        "rang_version": raised.version,
        **written_span(raised.span),
    }


def _recovery(recovery: Recovery) -> records.Recovery:
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
    return records.Recovery(
        alpha=criterion.alpha,
        guarantee=criterion.guarantee,
        delta=criterion.delta,
        since=written(recovery.since),
        audits=number,
        drawn=recovery.drawn,
        labelled=recovery.labelled,
        note=note,
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
    since = min((each.raised.at for each in drifted if each.raised is not None), default=None)
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
    raised = monitored.raised
    active = "is active" if raised is None else f"has been active{_since(raised.at)}"
    return f"; the alarm {active}"


def _since(at: float | None) -> str:
    """Writes the begin of an alarm in UTC; "" if it is unknown."""
    return "" if at is None else f" since {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
