"""Pairs of one question: how they are found, drawn, and counted."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.core.clusters import design_effects, lots_of, one_a_question, question_numbers
from app.core.thresholds import accepted_and_errors


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
    drawn = one_a_question(numbers, lots_of(names))
    assert sorted(numbers[drawn].tolist()) == sorted(set(questions))
    order = list(range(len(questions)))
    rng.shuffle(order)
    again = one_a_question(numbers[order], lots_of(names[i] for i in order))
    assert again.tolist() == drawn[order].tolist()


def test_each_pair_of_a_question_is_drawn_equally_often() -> None:
    numbers = np.repeat(np.arange(9000), 3)
    drawn = one_a_question(numbers, lots_of(f"{i}" for i in range(27_000)))
    counts = drawn.reshape(9000, 3).sum(axis=0)
    # 3,000 each, with a standard deviation of 45.
    assert np.abs(counts - 3000).max() < 4 * 45


def brute_design_effect(wrong: NDArray[np.bool_], numbers: NDArray[np.int64]) -> float:
    questions, places = np.unique(numbers, return_inverse=True)
    pairs = np.bincount(places).astype(float)
    errors = np.bincount(places, weights=wrong)
    rate = errors.sum() / pairs.sum()
    if len(questions) < 2 or rate in (0.0, 1.0):
        return max(1.0, float((pairs**2).sum() / pairs.sum()))
    residuals = errors - rate * pairs
    variance = len(questions) / (len(questions) - 1) * (residuals**2).sum() / pairs.sum() ** 2
    return max(1.0, float(variance / (rate * (1 - rate) / pairs.sum())))


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 4)), max_size=40))
def test_the_design_effect_is_the_ratio_of_the_variances(
    points: list[tuple[int, bool, int]],
) -> None:
    scores = np.array([score / 10 for score, _, _ in points])
    wrong = np.array([error for _, error, _ in points], dtype=bool)
    numbers = np.array([number for _, _, number in points], dtype=np.int64)
    found = design_effects(scores, wrong, numbers)
    distinct, *_ = accepted_and_errors(scores, wrong)
    assert len(found) == len(distinct)
    for score, effect in zip(distinct, found, strict=True):
        below = scores <= score
        assert effect == pytest.approx(brute_design_effect(wrong[below], numbers[below]))


def test_pairs_that_only_repeat_their_question_count_as_one() -> None:
    rng = np.random.default_rng(1)
    wrong, scores = rng.random(2000) < 0.2, rng.random(2000)
    numbers = np.repeat(np.arange(2000), 4)
    effect = design_effects(np.repeat(scores, 4), np.repeat(wrong, 4), numbers)
    assert effect[-1] == pytest.approx(4.0, rel=0.01)


def test_independent_pairs_have_no_design_effect() -> None:
    rng = np.random.default_rng(2)
    effect = design_effects(rng.random(9000), rng.random(9000) < 0.2, np.repeat(np.arange(3000), 3))
    assert effect[-1] == pytest.approx(1.0, abs=0.1)
