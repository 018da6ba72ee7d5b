"""The audits that a recovery after an alarm needs and has."""

from collections.abc import Iterable

import pytest

from app.core.comparison import Criterion
from app.core.monitoring import MonitoredCriterion, monitor
from app.core.recovery import labels_for_verdicts
from app.service.auditing.entries import AuditLabel, Entry
from app.service.auditing.recovery import Recovery, recovery_of
from tests.unit.service.auditing import logs

JUDGE = "f" * 64
# Draws have their numbers as times.
ALARM = 10.0


def monitored(criterion: Criterion, *, wrong: int = 0, right: int = 0) -> MonitoredCriterion:
    return MonitoredCriterion(
        criterion=criterion,
        figures=monitor([True] * wrong + [False] * right, alpha=0.1),
        ties=0,
        repeated=0,
        waiting=0,
        open=0,
        expired=0,
        abstentions=0,
        keys=(),
        further_keys=0,
    )


def recovery(entries: Iterable[Entry], *criteria: MonitoredCriterion) -> Recovery:
    labels = logs.folded(*entries).labels("default", JUDGE)
    return recovery_of(labels, criteria, since=ALARM)


def test_the_alarmed_criterion_that_needs_most_decides() -> None:
    alarmed = monitored(logs.MARGINAL, wrong=30), monitored(logs.PAC, wrong=30)
    found = recovery([], *alarmed, monitored(logs.PAC, right=500))
    assert (found.criterion, found.audits) == (logs.PAC, 840)
    assert found.since == ALARM
    only = recovery([], monitored(logs.PAC, right=500), monitored(logs.MARGINAL, wrong=30))
    assert (only.criterion, only.audits) == (logs.MARGINAL, 200)


def test_without_an_alarm_of_the_audits_the_criterion_with_most_labels_counts() -> None:
    found = recovery([], monitored(logs.PAC, right=5), monitored(logs.MARGINAL, right=50))
    assert (found.criterion, found.audits) == (logs.MARGINAL, 200)


def test_draws_since_the_alarm_and_their_labels_are_counted() -> None:
    entries: list[Entry] = [logs.drawn(number) for number in range(8, 16)]
    entries += [logs.drawn(20, fingerprint="0" * 64), logs.drawn(21, calibration="other")]
    entries += [logs.labelled(number, "A") for number in (8, 10, 11)]
    entries += [logs.labelled(12, "none")]
    found = recovery(entries, monitored(logs.PAC, wrong=30))
    # Those at 10, 11, ..., 15 seconds.
    assert (found.audits, found.drawn, found.labelled) == (840, 6, 3)


@pytest.mark.parametrize(
    ("labels", "expected"), [("AB", 840), ("ABtn", 1680), ("ABt", 1260), ("tt", 840), ("", 840)]
)
def test_ties_and_closed_audits_before_the_alarm_raise_the_number(
    labels: str, expected: int
) -> None:
    words: dict[str, AuditLabel] = {"A": "A", "B": "B", "t": "tie", "n": "none"}
    entries: list[Entry] = [logs.drawn(number) for number in range(1, 14)]
    entries += [logs.labelled(i, words[each], at=ALARM) for i, each in enumerate(labels, 1)]
    # Labels since the alarm must not decide the number, of whichever draws.
    entries += [logs.labelled(number, "tie", at=ALARM + 1) for number in (9, 11, 12, 13)]
    assert recovery(entries, monitored(logs.PAC, wrong=30)).audits == expected


def test_labels_beyond_the_number_do_not_count_as_progress() -> None:
    entries: list[Entry] = [logs.drawn(number) for number in range(10, 260)]
    entries += [logs.labelled(number, "A", at=300.0) for number in range(10, 260)]
    found = recovery(entries, monitored(logs.MARGINAL, wrong=30))
    assert (found.audits, found.drawn, found.labelled) == (200, 250, 200)


def test_an_alpha_that_no_number_serves_has_none() -> None:
    tiny = Criterion(alpha=0.001, guarantee="pac", delta=0.1, calibration="default")
    assert labels_for_verdicts(tiny) is None
    found = recovery([], monitored(logs.PAC, wrong=30), monitored(tiny, wrong=30))
    assert (found.criterion, found.audits) == (tiny, None)


def test_a_set_or_a_judge_without_draws_has_no_labels() -> None:
    ledger = logs.folded(logs.drawn(1), logs.labelled(1, "A"))
    assert len(ledger.labels("default", JUDGE).rows()) == 1
    assert len(ledger.labels("default", "0" * 64).rows()) == 0
    assert len(ledger.labels("other", JUDGE).rows()) == 0
