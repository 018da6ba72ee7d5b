"""The size of a batch follows the speed, and results keep their order."""

import pytest

from scope_judge.batches import TARGET_S, BatchSize


@pytest.mark.parametrize("per_second", [0.1, 1.0, 20.0, 270.0, 20_000.0])
def test_a_batch_soon_takes_about_the_target_whatever_the_speed(per_second: float) -> None:
    size = BatchSize(1000)
    for _ in range(6):
        size.answered(size.comparisons, size.comparisons / per_second)
    fitting = min(1000, max(1, TARGET_S * per_second))
    assert fitting * 0.99 - 1 <= size.comparisons <= fitting * 1.01
