"""Audits of several pairs a question, of many criteria, and with expired draws, by simulation.

docs/design/guarantees.md, section 6, has the figures of more and longer runs.
"""

import math

import numpy as np
import pytest

from tests.statistics.worlds.audits import (
    ALPHA,
    Asked,
    Expiring,
    asked_delays,
    asked_runs,
    expiring_runs,
    share_with_any_alarm,
)
from tests.statistics.worlds.revisions import Returning, Rounds

RATES = (0.02, 0.1, 0.3, 1.0)
SMALL_OR_LARGE = [60, pytest.param(400, marks=pytest.mark.long)]


def at_most(runs: int) -> float:
    """A true rate of 0.05 is above this in 0.6% of seeds."""
    return 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize("count", SMALL_OR_LARGE)
@pytest.mark.parametrize("rate", RATES)
def test_ten_pairs_a_question_break_no_promise_at_any_rate(rate: float, count: int) -> None:
    labels = 1500 if count == 60 else 5000
    found = asked_runs(Asked(rate=rate), labels=labels, count=count, seed=1, by_question=True)
    assert max(found) <= at_most(count)


@pytest.mark.parametrize(("rate", "most"), [(0.02, 320), (0.3, 480)])
def test_a_change_is_found_after_as_many_labels_as_documented(rate: float, most: int) -> None:
    found = asked_delays(Asked(rate=rate), 0.2, 40, seed=3, by_question=True)
    assert np.median(found) < most


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize("criteria", [5, 20])
def test_the_alarms_of_all_criteria_of_a_version_keep_five_percent(
    criteria: int, count: int
) -> None:
    labels = 1000 if count == 20 else 5000
    rang = share_with_any_alarm(criteria, labels=labels, count=count, seed=4, shared=True)
    assert rang <= at_most(count)


@pytest.mark.parametrize("count", SMALL_OR_LARGE)
def test_expired_errors_make_no_false_certificate(count: int) -> None:
    world = Expiring(ALPHA, 0.036, only_errors=True)
    found = expiring_runs(world, labels=5000, count=count, seed=5)
    assert sum(run.certified for run in found) / count <= at_most(count)
    assert sum(run.alarm for run in found) / count <= at_most(count)


@pytest.mark.parametrize("count", [12, pytest.param(200, marks=pytest.mark.long)])
def test_questions_that_come_every_day_again_raise_no_false_alarm(count: int) -> None:
    # The monitor looks again and again while the draws of a question come.
    assert Returning().alarms(count=count, seed=9, every=60) <= at_most(count)


# Questions and draws of each within an hour, as in docs/design/guarantees.md, section 6.
ROUNDS = [Rounds(2000, 3), Rounds(2000, 10), Rounds(3000, 6)]


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("world", ROUNDS)
def test_bets_on_complete_questions_keep_both_promises(world: Rounds, count: int) -> None:
    alarms, certificates = world.outcomes(count=count, seed=11)
    # The first criterion has 2.5% of the false alarms.
    assert alarms <= 0.025 + 2.5 * math.sqrt(0.025 * 0.975 / count)
    assert certificates <= at_most(count)
