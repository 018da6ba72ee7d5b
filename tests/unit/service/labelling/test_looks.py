"""Planned looks at the labels of a pool."""

import pytest

from app.core.errors import InvalidRequestError
from app.service.labelling.looks import Looks

PLAN = Looks(sizes=(10, 20, 40), until_coverage=0.3)
KEYS = [f"pair {number}" for number in range(50)]


@pytest.mark.parametrize(
    ("sizes", "coverage"),
    [("", 0.3), ("10,x", 0.3), ("20,10", 0.3), ("10,10", 0.3), ("0,10", 0.3), ("10", 0.0)],
)
def test_a_plan_has_rising_sizes_and_a_coverage(sizes: str, coverage: float) -> None:
    with pytest.raises(InvalidRequestError):
        Looks.parse(sizes, coverage)


def test_a_plan_is_read() -> None:
    assert Looks.parse("10, 20,40", 0.3) == PLAN


def test_each_look_has_the_pairs_of_the_one_before_in_the_same_random_order() -> None:
    order = PLAN.order(KEYS, 0)
    assert len(set(order)) == 40
    assert order == PLAN.order(list(reversed(KEYS)), 0) != PLAN.order(KEYS, 1)
    with pytest.raises(InvalidRequestError, match="there are only 39"):
        PLAN.order(KEYS[:39], 0)


@pytest.mark.parametrize(
    ("pooled", "remaining"),
    [(0, [0, 1, 2]), (10, [0, 1, 2]), (11, [1, 2]), (20, [1, 2]), (40, [2])],
)
def test_a_run_goes_on_with_the_look_that_the_pool_has_not_passed(
    pooled: int, remaining: list[int]
) -> None:
    assert list(PLAN.remaining(pooled)) == remaining
