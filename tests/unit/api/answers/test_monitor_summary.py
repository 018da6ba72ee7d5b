"""The sentence of a monitor: how wrong the verdicts are, and since when an alarm rings."""

from datetime import UTC, datetime

from app.api.answers.monitor import summary
from app.audits.drift import StreamFigures
from app.core.comparison import Criterion
from app.core.monitoring import JudgedSpan, MonitoredCriterion, Raised, error_interval, monitor


def criterion(
    *errors: bool, raised: Raised | None = None, waiting: int = 0, ties: int = 0
) -> MonitoredCriterion:
    """The audits of one criterion with these labels."""
    return MonitoredCriterion(
        criterion=Criterion(alpha=0.1, guarantee="marginal", delta=None, calibration="default"),
        figures=monitor(errors, alpha=0.1),
        ties=ties,
        tie_interval=(0.0, 0.5),
        repeated=0,
        waiting=0,
        open=waiting,
        expired=0,
        abstentions=0,
        keys=(),
        further_keys=0,
        raised=raised,
    )


def raised(year: int, month: int, day: int, hour: int, minute: int) -> Raised:
    at = datetime(year, month, day, hour, minute, 59, tzinfo=UTC).timestamp()
    return Raised(at=at, version=1, span=JudgedSpan(first_judged_at=0.0, last_judged_at=1.0))


def test_an_alarm_is_told_with_its_time() -> None:
    errors = [number % 4 == 0 for number in range(100)]
    low, high = (f"{share:.0%}" for share in error_interval(25, 100))
    assert summary([criterion(*errors, raised=raised(2026, 11, 21, 23, 59))], {}) == (
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


def test_drift_is_told_beside_the_labels() -> None:
    calm = StreamFigures(evidence=1.0, alarm=False)
    drift = {
        "uncertainty": StreamFigures(evidence=50.0, alarm=True, raised=raised(2026, 11, 22, 8, 0)),
        "label_mass": StreamFigures(evidence=50.0, alarm=True, raised=raised(2026, 11, 23, 8, 0)),
        "position_gap": calm,
    }
    told = summary([], drift)
    assert told.endswith("; the traffic is unlike the labeled pairs since 2026-11-22 08:00 UTC")
    unknown = {"uncertainty": StreamFigures(evidence=50.0, alarm=True)}
    assert summary([], unknown).endswith("the traffic is unlike the labeled pairs")
