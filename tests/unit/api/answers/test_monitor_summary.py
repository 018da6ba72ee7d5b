"""The sentence of a monitor: how wrong the verdicts are, and since when an alarm rings."""

from dataclasses import asdict

from app.api.answers.monitor import summary
from app.audits.entries import NO_ALARM
from app.audits.figures import CriterionAudits
from app.core.comparison import Criterion
from app.core.monitoring import monitor
from scope_judge.records import MonitoredCriterion


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
