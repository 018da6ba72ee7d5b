"""The size of a batch follows the speed, and results keep their order."""

from collections.abc import Sequence

import pytest

from scope_judge.batches import TARGET_S, BatchSize, Cutter, Work
from scope_judge.comparisons import Item
from scope_judge.errors import ScopeError, UnavailableError
from scope_judge.exchange import Pause, Steps


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


def work() -> Work[str]:
    """Batches whose answers are the contents of their items."""

    def ask(items: Sequence[Item]) -> Steps[list[str]]:
        if items[0].content == b"gone":
            raise UnavailableError("gone", code="draining")
        yield Pause(1.0, "for the answer")
        return [item.content.decode() for item in items]

    def failed(item: Item, error: ScopeError) -> str:
        raise error

    size = BatchSize(10)
    size.answered(1, 1.0)
    return Work(ask, failed, size=size, max_body_bytes=100, in_flight=3, clock=lambda: 0.0)


def test_results_are_taken_in_the_order_of_their_batches() -> None:
    batches = work()
    first, second = (batches.steps([Item(text)]) for text in (b"1", b"2"))
    assert [len(list(second)), batches.take(), len(list(first))] == [1, (), 1]
    assert [batches.take(), batches.take(), batches.take()] == [["1"], ["2"], ()]


def test_a_failure_is_raised_when_it_is_its_turn_and_nothing_begins_after_it() -> None:
    batches = work()
    first, second = (batches.steps([Item(text)]) for text in (b"1", b"gone"))
    assert batches.has_room()
    assert list(second) == []
    assert not batches.has_room()
    assert len(list(first)) == 1
    assert batches.take() == ["1"]
    with pytest.raises(UnavailableError, match="gone"):
        batches.take()
