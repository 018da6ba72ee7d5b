"""Tests of drawn judgments over time."""

import pytest

from app.audits.periods import MOST_PERIODS, periods_of
from tests.unit.audits.logs import PAC, drawn, folded, labelled

DAY = 86_400.0


def test_verdicts_and_abstentions_are_counted_in_periods_of_one_length() -> None:
    book = folded(
        drawn(1, at=65.0),
        drawn(2, at=70.0, accepted=False),
        labelled(1, "A"),
        # The same pair under another criterion is another judgment.
        drawn(1, at=130.0, criterion=PAC),
        # The same criterion again is the same judgment.
        drawn(2, at=290.0, accepted=False),
    )
    periods = periods_of(book.audits.values(), now=250.0)
    assert [(each.since, each.until) for each in periods] == [
        (60.0, 120.0),
        (120.0, 180.0),
        (180.0, 240.0),
        (240.0, 300.0),
    ]
    assert [(each.accepted, each.abstentions) for each in periods] == [
        (1, 1),
        (1, 0),
        (0, 0),
        (0, 0),
    ]
    assert periods_of((), now=250.0) == []


@pytest.mark.parametrize("days", [0.01, 1, 2, 30, 400, 20_000])
def test_periods_are_few_whatever_the_time_is(days: float) -> None:
    book = folded(drawn(1, at=1000.0), drawn(2, at=1000.0 + days * DAY, accepted=False))
    # The clock of a replica may be ahead of this one.
    for now in (0.0, 1000.0 + days * DAY, 1000.0 + 2 * days * DAY):
        periods = periods_of(book.audits.values(), now=now)
        assert 1 <= len(periods) <= MOST_PERIODS
        assert sum(each.accepted for each in periods) == 1
        assert sum(each.abstentions for each in periods) == 1
        assert periods[0].accepted == 1
