"""Pairs of one question: how they are found, drawn, and counted."""

import hashlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.core.examples import (
    drawn_pairs,
    lots_of,
    question_numbers,
)


def digests_of(questions: list[int | None]) -> NDArray[np.uint8]:
    """The column of a set; None is an unknown question."""
    rows = [
        bytes(32) if each is None else hashlib.sha256(str(each).encode()).digest()
        for each in questions
    ]
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, 32)


@settings(max_examples=200)
@given(st.lists(st.none() | st.integers(0, 5), max_size=30))
def test_pairs_have_one_number_exactly_if_their_question_is_known_and_the_same(
    questions: list[int | None],
) -> None:
    numbers = question_numbers(digests_of(questions))
    assert set(numbers.tolist()) == set(range(len(set(numbers.tolist()))))
    for i, one in enumerate(questions):
        for j, other in enumerate(questions):
            same = i == j or (one is not None and one == other)
            assert (numbers[i] == numbers[j]) == same


@settings(max_examples=200)
@given(st.lists(st.integers(0, 5), max_size=30), st.randoms())
def test_one_pair_of_each_question_is_drawn_whatever_the_order(
    questions: list[int], rng: np.random.RandomState
) -> None:
    names = [f"pair {i}" for i in range(len(questions))]
    numbers = np.array(questions, dtype=np.int64)
    drawn = drawn_pairs(numbers, lots_of(names))
    assert sorted(numbers[drawn].tolist()) == sorted(set(questions))
    order = list(range(len(questions)))
    rng.shuffle(order)
    again = drawn_pairs(numbers[order], lots_of(names[i] for i in order))
    assert again.tolist() == drawn[order].tolist()


def test_each_pair_of_a_question_is_drawn_equally_often() -> None:
    numbers = np.repeat(np.arange(9000), 3)
    drawn = drawn_pairs(numbers, lots_of(f"{i}" for i in range(27_000)))
    counts = drawn.reshape(9000, 3).sum(axis=0)
    # 3,000 each, with a standard deviation of 45.
    assert np.abs(counts - 3000).max() < 4 * 45
