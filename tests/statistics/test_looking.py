"""Alphas that share a delta hold together; an alpha that is chosen after a look does not hold."""

import pytest

from app.core.comparison import STANDARD_DELTA
from docs.make_looking_table import JUDGES, in_steps, looks, over_when_growing

CALIBRATIONS = 400
# One-sided: a true rate at the bound exceeds it by 2.5 standard errors in 0.6% of seeds.
MARGIN = 2.5 * (STANDARD_DELTA * (1 - STANDARD_DELTA) / CALIBRATIONS) ** 0.5
WEAK, MIDDLING = list(JUDGES.values())[:2]


@pytest.mark.parametrize("name", JUDGES)
def test_five_alphas_that_share_delta_hold_together(name: str) -> None:
    found = looks(JUDGES[name], 1000, CALIBRATIONS)
    assert found.shared <= STANDARD_DELTA + MARGIN
    # Each accepts less for it.
    assert found.shared_coverage <= found.alone_coverage


def test_some_one_of_many_alphas_is_exceeded_far_more_often_than_delta() -> None:
    assert looks(MIDDLING, 1000, CALIBRATIONS).scanned > STANDARD_DELTA + MARGIN


def test_with_a_weak_judge_the_smallest_feasible_alpha_is_luck() -> None:
    found = looks(WEAK, 200, CALIBRATIONS)
    assert found.accepting > 0
    assert found.smallest * CALIBRATIONS / found.accepting > 2 * STANDARD_DELTA


def test_labels_that_are_added_until_alpha_is_feasible_break_its_promise() -> None:
    over = over_when_growing(MIDDLING, in_steps, first=100, most=1000, calibrations=CALIBRATIONS)
    assert over > STANDARD_DELTA + MARGIN
