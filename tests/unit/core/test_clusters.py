"""Pairs of one question: how they are found, drawn, and counted."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.core.clusters import (
    ENOUGH_QUESTIONS,
    design_effects,
    drawn_pairs,
    lots_of,
    question_numbers,
    question_sizes,
)
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
    drawn = drawn_pairs(numbers, lots_of(names), most=1)
    assert sorted(numbers[drawn].tolist()) == sorted(set(questions))
    order = list(range(len(questions)))
    rng.shuffle(order)
    again = drawn_pairs(numbers[order], lots_of(names[i] for i in order), most=1)
    assert again.tolist() == drawn[order].tolist()


def test_each_pair_of_a_question_is_drawn_equally_often() -> None:
    numbers = np.repeat(np.arange(9000), 3)
    drawn = drawn_pairs(numbers, lots_of(f"{i}" for i in range(27_000)), most=1)
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


@pytest.mark.parametrize("most", [1, 2, 5])
def test_at_most_so_many_pairs_of_a_question_are_drawn_whatever_their_order(most: int) -> None:
    rng = np.random.default_rng(4)
    sizes = rng.integers(1, 12, 200)
    numbers = np.repeat(np.arange(200), sizes)
    lots = lots_of(f"{i}" for i in range(len(numbers)))
    drawn = drawn_pairs(numbers, lots, most=most)
    assert np.array_equal(np.bincount(numbers[drawn]), np.minimum(sizes, most))
    for number in range(200):
        of_question = numbers == number
        assert lots[of_question & drawn].max() <= lots[of_question & ~drawn].min(initial=2**64 - 1)
    order = rng.permutation(len(numbers))
    assert np.array_equal(drawn_pairs(numbers[order], lots[order], most=most), drawn[order])
    # Fewer pairs of a question are a part of more.
    assert not (drawn & ~drawn_pairs(numbers, lots, most=most + 1)).any()


@pytest.mark.parametrize(
    ("questions", "slope", "rule"),
    [
        (100, 0.0, "one"),
        (ENOUGH_QUESTIONS, 0.0, "adjusted"),
        (100, 0.1, "adjusted"),
        (ENOUGH_QUESTIONS, 0.05, None),
    ],
)
def test_the_rule_that_fits_goes_by_the_number_of_questions_and_their_errors(
    questions: int, slope: float, rule: str | None
) -> None:
    rng = np.random.default_rng(5)
    largest = 9 if rule is None or slope == 0.0 else 5
    sizes = rng.integers(1, largest + 1, questions)
    numbers = np.repeat(np.arange(questions), sizes)
    error = rng.random(len(numbers)) < 0.1 + slope * sizes[numbers]
    found = question_sizes(numbers, error)
    assert found is not None
    assert (found.largest, found.rule) == (largest, rule)
    assert found.goes_with_error == (slope > 0)


def test_questions_of_one_size_or_one_pair_have_no_relation_with_errors() -> None:
    error = np.arange(60) % 7 == 0
    assert question_sizes(np.arange(60), error) is None
    assert question_sizes(np.arange(0), error[:0]) is None
    # Questions whose pairs all are ties have no numbers.
    found = question_sizes(5 * np.repeat(np.arange(30), 2), error)
    assert found is not None
    assert (found.largest, found.p_value, found.rule) == (2, None, "one")


def test_the_test_of_sizes_is_wrong_in_one_case_of_twenty() -> None:
    rng = np.random.default_rng(6)
    found = 0
    for _ in range(400):
        sizes = rng.integers(1, 10, 300)
        numbers = np.repeat(np.arange(300), sizes)
        # Errors of a question resemble each other.
        error = rng.random(len(numbers)) < rng.beta(0.4, 1.6, 300)[numbers]
        looked = question_sizes(numbers, error)
        assert looked is not None
        found += looked.goes_with_error
    assert 0.02 <= found / 400 <= 0.08
