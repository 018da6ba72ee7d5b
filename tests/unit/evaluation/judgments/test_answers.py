"""Verdicts and confidences parsed from answers; an ambiguous answer gives None."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.evaluation.judgments.answers import parse_confidence, parse_verdict
from app.ports import Generated


def said(text: str) -> Generated:
    return Generated(text, complete=True)


def cut(text: str) -> Generated:
    return Generated(text, complete=False)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("[[A]]", "A"),
        ("My verdict is [[A]], because [[A]] is better than B.", "A"),
        ("A", "A"),
        (" B\n", "B"),
        ("[[B", "B"),
        ('"[[A]]" if assistant A is better, "[[B]]" if assistant B is better.', None),
        ("[[C]]", None),
        ("", None),
        ("A is better", None),
        ("Assistant A", None),
        ("0.5", None),
    ],
)
def test_a_verdict_is_the_single_label_in_an_answer(text: str, verdict: str | None) -> None:
    assert parse_verdict(said(text)) == verdict


def test_in_a_cut_answer_a_bracketed_letter_is_a_verdict_and_a_bare_one_is_not() -> None:
    assert parse_verdict(cut("A")) is None
    assert parse_verdict(cut("[[B")) is None
    assert parse_verdict(cut("[[B]] because it")) == "B"


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        ("[[A]] 0.87", 0.87),
        ("0.9", 0.9),
        ("1.0", 1.0),
        ("1", 1.0),
        ("[[A]], score: 0.75.", 0.75),
        ("1 (absolute certainty)", 1.0),
        ("0.9, that is, 0.90", 0.9),
        ("1. [[A]]\n2. 0.8", 0.8),
        ("Verdict:\n1) It is right\n2) It is short\nScore: 0.7", 0.7),
        # The scale of the prompt, repeated.
        ("0.9/1.0", 0.9),
        ("0.85 out of 1.0", 0.85),
        ("0.9 (on a scale from 0.0 to 1.0)", 0.9),
        ("0.9/1.0, that is, 0.8", None),
        ("on a scale from 0.0 to 1.0", None),
        # Two different ones, or none.
        ("0.8 or 0.9", None),
        ("[[A]]", None),
        ("", None),
        # Out of range.
        ("1.01", None),
        # Part of something else.
        ("10/10", None),
        ("85%", None),
        ("v1.0.2", None),
        ("0,9", None),
        ("-0.9", None),
        ("0.8-0.9", None),
        ("< 0.5", None),
        ("1e-3", None),
        # Numbers of items and of assistants.
        ("1. Assistant A is better", None),
        ("[[A]]\n1. It is right.\n2. It is short.", None),
        ("Response 1 is better", None),
        ("It makes 0 mistakes", None),
    ],
)
def test_a_confidence_is_the_single_free_number_in_an_answer(
    text: str, confidence: float | None
) -> None:
    assert parse_confidence(said(text)) == confidence


@pytest.mark.parametrize(
    "text", ["[[A]] 0.9", "[[A]] 0", "[[A]] 0.", "1", "0.9 ", "0.8 or 0.8", "0.9/1", "0.9/1.0"]
)
def test_a_number_that_the_token_limit_may_have_cut_is_ignored(text: str) -> None:
    assert parse_confidence(cut(text)) is None


@given(hundredths=st.integers(0, 100), verdict=st.sampled_from(["", "[[A]] ", "[[B]]\n"]))
def test_every_score_of_two_digits_is_read_as_it_is_written(hundredths: int, verdict: str) -> None:
    text = f"{hundredths / 100:.2f}"
    assert parse_confidence(said(verdict + text)) == float(text)
