"""Only the first audits since an alarm, in place of all examples, keep the promise."""

import math

import pytest

from tests.statistics.worlds.absorptions import DELTA, Way, over
from tests.statistics.worlds.calibrations import MIDDLING, OTHER, STRONG

RUNS = (40, pytest.param(400, marks=pytest.mark.long))


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("way", ["everything", "set kept"])
def test_with_examples_from_before_the_alarm_the_next_threshold_is_over_alpha(
    way: Way, runs: int
) -> None:
    share, coverage = over(STRONG, OTHER, way, 500, runs, seed=31)
    assert share >= 0.9
    assert coverage > 0.5


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("audits", [500, 1000])
def test_the_first_audits_since_the_alarm_keep_the_promise(audits: int, runs: int) -> None:
    share, coverage = over(STRONG, MIDDLING, "first audits", audits, runs, seed=32)
    assert share <= DELTA + 2.5 * math.sqrt(DELTA * (1 - DELTA) / runs)
    assert coverage > 0.2


@pytest.mark.parametrize("runs", RUNS)
def test_a_start_that_is_chosen_by_its_threshold_breaks_the_promise(runs: int) -> None:
    share, _ = over(STRONG, OTHER, "chosen start", 500, runs, seed=33)
    assert share >= 0.25
