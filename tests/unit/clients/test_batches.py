"""The size of a batch follows the speed, and results keep their order."""

import pytest

from scope_judge.batches import TARGET_S, BatchSize, Cutter, InOrder
from scope_judge.comparisons import Item
from scope_judge.errors import UnavailableError


@pytest.mark.parametrize("per_second", [0.1, 1.0, 20.0, 270.0, 20_000.0])
def test_a_batch_soon_takes_about_the_target_whatever_the_speed(per_second: float) -> None:
    size = BatchSize(1000)
    for _ in range(6):
        size.answered(size.comparisons, size.comparisons / per_second)
    fitting = min(1000, max(1, TARGET_S * per_second))
    assert fitting * 0.99 - 1 <= size.comparisons <= fitting * 1.01


def test_a_small_batch_is_no_reason_for_smaller_ones() -> None:
    size = BatchSize(1000, first=500)
    # The last one of a stream: two pairs, and most of the time is that of the connection.
    size.answered(2, 0.5)
    assert size.comparisons == 500


def test_a_slow_batch_is_a_reason_for_smaller_ones() -> None:
    size = BatchSize(1000, first=500)
    size.answered(500, 10 * TARGET_S)
    assert size.comparisons == 50
    size.answered(50, 1e6)
    assert size.comparisons == 1


def test_a_refused_batch_halves_the_next_ones_down_to_one() -> None:
    size = BatchSize(1000, first=500)
    size.refused(500)
    assert size.comparisons == 250
    for _ in range(20):
        size.refused(size.comparisons)
    assert size.comparisons == 1


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [
        ([], []),
        ([(1, 1)] * 5, [[1, 1], [1, 1], [1]]),
        # An item that is larger than a batch is one of its own.
        ([(3, 1), (1, 1), (1, 1)], [[3], [1, 1]]),
        # 90% of 100 bytes.
        ([(1, 60), (1, 60)], [[1], [1]]),
    ],
)
def test_items_are_cut_by_comparisons_and_bytes(
    sizes: list[tuple[int, int]], batches: list[list[int]]
) -> None:
    cutter = Cutter(BatchSize(2), max_body_bytes=100)
    found = []
    for cost, length in sizes:
        if full := cutter.add(Item(b"x" * length, cost=cost)):
            found.append(full)
    if rest := cutter.rest():
        found.append(rest)
    assert [[item.cost for item in batch] for batch in found] == batches


def test_results_are_taken_in_the_order_of_their_batches() -> None:
    order = InOrder[int](in_flight=3)
    first, second = order.begin(), order.begin()
    second([3, 4])
    assert order.take() == ()
    first([1, 2])
    assert [order.take(), order.take(), order.take()] == [[1, 2], [3, 4], ()]


def test_a_failure_is_raised_when_it_is_its_turn_and_nothing_begins_after_it() -> None:
    order, size = InOrder[int](in_flight=3), BatchSize(10)
    size.answered(1, 1.0)
    first, second = order.begin(), order.begin()
    second(UnavailableError("gone", code="draining"))
    assert not order.has_room(size)
    first([1])
    assert order.take() == [1]
    with pytest.raises(UnavailableError, match="gone"):
        order.take()
