"""Chunks of questions take a few seconds, whatever the speed of the judge."""

import pytest

from app.evaluation.judgments.pace import MOST_PAIRS, ChunkPace


def chunks(pairs_a_second: float, count: int) -> list[int]:
    """Sizes of the first chunks for a judge of a constant speed."""
    pace, sizes = ChunkPace(chunk_s=5.0), []
    for _ in range(count):
        sizes.append(pace.pairs)
        pace.note(pace.pairs, pace.pairs / pairs_a_second)
    return sizes


@pytest.mark.parametrize(
    ("pairs_a_second", "sizes"),
    [
        (1000.0, [4, 16, MOST_PAIRS, MOST_PAIRS]),
        (2.0, [4, 10, 10, 10]),
        (0.3, [4, 1, 1, 1]),
    ],
)
def test_a_chunk_takes_the_given_time_at_most_after_the_first(
    pairs_a_second: float, sizes: list[int]
) -> None:
    assert chunks(pairs_a_second, 4) == sizes


def test_a_judge_that_becomes_slow_gets_smaller_chunks() -> None:
    pace = ChunkPace(chunk_s=5.0)
    pace.note(64, 0.1)
    assert pace.pairs == MOST_PAIRS
    pace.note(64, 32.0)
    assert pace.pairs == 10


def test_a_chunk_without_a_measurable_time_is_fast() -> None:
    pace = ChunkPace()
    pace.note(64, 0.0)
    assert pace.pairs == MOST_PAIRS
