"""Pairs that leave for another tool come back with the label of the response that was shown."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.comparison import Side
from app.service.labelling.pairs import BlindPair
from app.service.labelling.tickets import CANNOT, ToolAnswer, audit_row, ticket_of

AUDIT = "b2b05eb1efea9c6c2e29f8b8e4a5c7d2"
OTHER = "00000000000000000000000000000010"


def pair(
    left: Side = "A", *, audit: str = AUDIT, a: str = "one", b: str = "two", question: Any = "Q?"
) -> BlindPair:
    fields = {"question": question, "response_a": a, "response_b": b}
    return BlindPair(key=audit, fields=fields, left=left)


def answer(shown: BlindPair, word: Any = "left", **changed: Any) -> ToolAnswer:
    text = shown.text
    whole = ToolAnswer(
        place="tasks.json, row 1",
        ticket=ticket_of(shown),
        question=text.question,
        left=text.left,
        right=text.right,
        word=word,
    )
    return replace(whole, **changed)


def test_a_ticket_has_the_audit_the_side_and_a_seal_that_later_releases_check() -> None:
    # The seal as a literal: files that are at the annotators outlive an upgrade.
    assert ticket_of(pair("B")) == f"{AUDIT}.B.f054d125c74f2df09f0dfb63f6266e6b"


@pytest.mark.parametrize("left", ["A", "B"])
def test_left_and_right_are_the_responses_that_were_shown(left: Side) -> None:
    shown = pair(left)
    other = "B" if left == "A" else "A"
    rows = [audit_row(answer(shown, word)) for word in ("left", "right", "tie", None)]
    assert [row.label for row in rows] == [left, other, "tie", None]
    assert {row.audit for row in rows} == {AUDIT}
    assert all(row.problem is None and row.reason is None for row in rows)


texts = st.text(min_size=1).filter(str.strip)


@given(texts, texts, texts, st.booleans(), st.sampled_from(["left", "right"]))
def test_the_preferred_text_is_the_one_that_the_label_names(
    question: str, a: str, b: str, a_is_left: bool, word: str
) -> None:
    shown = pair("A" if a_is_left else "B", a=a, b=b, question=question)
    row = audit_row(answer(shown, word))
    assert row.problem is None
    assert row.label is not None
    preferred = shown.text.left if word == "left" else shown.text.right
    assert {"A": a, "B": b}[row.label] == preferred


@pytest.mark.parametrize(
    "changed",
    [
        # Somebody has swapped the columns, which would turn each label round.
        {"left": "two", "right": "one"},
        {"left": "one "},
        {"question": "Q"},
        # The other side.
        {"ticket": ticket_of(pair("A")).replace(".A.", ".B.")},
        # The ticket of another pair, and another audit with the seal of this one.
        {"ticket": ticket_of(pair(audit=OTHER, a="three"))},
        {"ticket": ticket_of(pair()).replace(AUDIT, OTHER)},
    ],
)
def test_a_pair_that_was_changed_after_the_export_is_no_label(changed: dict[str, Any]) -> None:
    assert audit_row(answer(pair())).label == "A"
    row = audit_row(answer(pair(), **changed))
    assert (row.label, row.reason) == (None, None)
    assert "not as it was exported" in str(row.problem)


@pytest.mark.parametrize(
    "changed",
    [
        {"ticket": None},
        {"ticket": 5},
        {"ticket": AUDIT},
        {"ticket": "../../etc/passwd"},
        {"ticket": ticket_of(pair()).upper()},
        {"ticket": ticket_of(pair()) + "\n"},
        {"question": None},
        {"left": ["one"]},
    ],
)
def test_a_row_of_another_project_is_no_label(changed: dict[str, Any]) -> None:
    assert "`audits export` wrote" in str(audit_row(answer(pair(), **changed)).problem)


@pytest.mark.parametrize("word", ["", "Left", "A", 0, 1, True, ["left"], ["left", "right"], {}])
def test_an_unknown_answer_is_no_label(word: Any) -> None:
    row = audit_row(answer(pair(), word))
    assert row.label is None
    assert "not one of left, right, tie, cannot be labelled" in str(row.problem)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("  cut off\n here ", "cut off here"),
        (None, "no reason given"),
        ("  \n", "no reason given"),
        (["x"], "no reason given"),
        ("x" * 500, "x" * 200),
        ("half \ud800", "half ?"),
    ],
)
def test_a_pair_that_cannot_be_labelled_has_a_reason_that_the_service_takes(
    reason: Any, told: str
) -> None:
    row = audit_row(answer(pair(), CANNOT, reason=reason))
    assert (row.label, row.reason, row.answer) == (None, told, "none")


def test_a_reason_beside_another_answer_is_not_sent() -> None:
    assert audit_row(answer(pair(), "tie", reason="both are cut off")).reason is None


def test_a_conversation_is_sealed_as_it_is_shown() -> None:
    turns = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Which?"},
    ]
    fields = {"question": turns, "response_a": ["a", "b"], "response_b": ["c", "d"]}
    shown = BlindPair(key=AUDIT, fields=fields, left="B")
    assert audit_row(answer(shown, "left")).label == "B"
