"""Comparisons: validation and swapping."""

import pytest

from app.core.comparison import Comparison, Turn
from app.core.errors import InvalidComparisonError

USER, ASSISTANT, SYSTEM = Turn("user", "q"), Turn("assistant", "r"), Turn("system", "s")
TWO_TURNS = (USER, Turn("user", "q2"))


def test_swapping_exchanges_the_responses_and_nothing_else() -> None:
    comparison = Comparison(TWO_TURNS, ("a", "a2"), ("b", "b2"))
    assert comparison.swapped == Comparison(TWO_TURNS, ("b", "b2"), ("a", "a2"))
    assert comparison.swapped.swapped == comparison


@pytest.mark.parametrize(
    ("question", "response_a", "response_b", "message"),
    [
        ((), ("a",), ("b",), "user turn"),
        ((SYSTEM, ASSISTANT), ("a",), ("b",), "user turn"),
        ((Turn("user", " \n\t"),), ("a",), ("b",), "blank turn"),
        ((USER, Turn("assistant", "")), ("a",), ("b",), "blank turn"),
        ((USER,), ("",), ("b",), "response_a is blank"),
        ((USER,), ("a",), ("\u2003",), "response_b is blank"),
        ((USER,), (), ("b",), "response_a is blank"),
        ((USER,), ("a",), (), "response_b is blank"),
        (TWO_TURNS, ("a", " "), ("b", "b2"), "response_a is blank"),
        (TWO_TURNS, ("a", "a2"), ("b",), "response_a has 2 texts and response_b 1"),
        ((USER,), ("a", "a2"), ("b", "b2"), "1 user turns, response_a 2 texts"),
        ((*TWO_TURNS, USER), ("a", "a2"), ("b", "b2"), "3 user turns, response_a 2 texts"),
    ],
)
def test_an_invalid_comparison_is_refused(
    question: tuple[Turn, ...],
    response_a: tuple[str, ...],
    response_b: tuple[str, ...],
    message: str,
) -> None:
    with pytest.raises(InvalidComparisonError, match=message):
        Comparison(question, response_a, response_b)


def test_a_refusal_never_quotes_the_texts() -> None:
    with pytest.raises(InvalidComparisonError) as refused:
        Comparison((Turn("user", "secret question"),), ("secret answer",), ("x", "y"))
    assert "secret" not in refused.value.detail
