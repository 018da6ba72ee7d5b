"""The sentence of a monitor: how wrong the verdicts are, and since when an alarm rings."""

from dataclasses import asdict, replace

from app.api.answers.monitor import summary
from app.audits.drift import stream_figures
from app.audits.entries import NO_ALARM
from app.audits.figures import CriterionAudits
from app.core.comparison import Criterion
from app.core.monitoring import error_interval, monitor
from scope_judge.records import DriftStream, MonitoredCriterion


def criterion(*errors: bool, rang_at: str | None = None, waiting: int = 0) -> CriterionAudits:
    """The audits of one criterion with these labels."""
    return CriterionAudits(
        criterion=Criterion(alpha=0.1, guarantee="marginal", delta=None, calibration="default"),
        shown=MonitoredCriterion(
            alpha=0.1,
            guarantee="marginal",
            delta=None,
            **asdict(monitor(errors, alpha=0.1)) | {"alarm": rang_at is not None},
            **{**NO_ALARM, "rang_at": rang_at},
            labelled=len(errors),
            suspended=False,
            ties=0,
            tie_interval=(0.0, 0.5),
            repeated=0,
            waiting=0,
            open=waiting,
            expired=0,
            abstentions=0,
        ),
    )


def test_an_alarm_is_told_with_its_time() -> None:
    errors = [number % 4 == 0 for number in range(100)]
    low, high = (f"{share:.0%}" for share in error_interval(25, 100))
    assert summary([criterion(*errors, rang_at="2026-11-21T23:59:59Z")], {}) == (
        f"{low} to {high} of the verdicts are wrong; promised were 10% by alpha 0.1 (marginal); "
        "the alarm has been active since 2026-11-21 23:59 UTC"
    )


def test_the_sentence_says_what_labels_show_and_do_not_show() -> None:
    assert summary([], {}) == "nothing is known about wrong verdicts"
    assert summary([criterion(waiting=7)], {}) == (
        "nothing is known about wrong verdicts under alpha 0.1 (marginal) without labels: 7 audits "
        "wait for one"
    )
    few = summary([criterion(False)], {})
    assert few == "0% to 98% of the verdicts are wrong; promised were 10% by alpha 0.1 (marginal)"
    proved = summary([criterion(*[False] * 200)], {})
    assert proved.endswith("; labels prove that this is kept")


def drifted(rang_at: str | None) -> DriftStream:
    return replace(stream_figures(150.0), rang_at=rang_at)


def test_drift_is_told_beside_the_labels() -> None:
    drift = {
        "uncertainty": drifted("2026-11-22T08:00:00Z"),
        "label_mass": drifted("2026-11-23T08:00:00Z"),
        "position_gap": stream_figures(1.0),
    }
    told = summary([], drift)
    assert told.endswith("; the traffic is unlike the labeled pairs since 2026-11-22 08:00 UTC")
    unknown = {"uncertainty": drifted(None)}
    assert summary([], unknown).endswith("the traffic is unlike the labeled pairs")
