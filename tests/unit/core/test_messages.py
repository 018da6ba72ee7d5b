"""Messages of chats become texts, or an error that says why they cannot."""

from typing import Any

import pytest

from app.core.errors import InvalidComparisonError
from app.core.messages import messages_of, question_of, response_of

ANSWER = {"role": "assistant", "content": "Paris"}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TEXTS: dict[str, tuple[Any, str]] = {
    "text": ("Paris", "Paris"),
    "message": (ANSWER, "Paris"),
    "list": ([ANSWER], "Paris"),
    "ShareGPT": ([{"from": "gpt", "value": "Paris"}], "Paris"),
    "parts": (
        [{"role": "assistant", "content": [{"type": "text", "text": part} for part in "ab"]}],
        "a\nb",
    ),
    "empty": ([{"role": "assistant", "content": ""}], ""),
}
REFUSED: dict[str, tuple[Any, str]] = {
    "null content": ([{"role": "assistant", "content": None}], "no content"),
    "tool call": ([{**ANSWER, "tool_calls": [CALL]}], "calls a tool"),
    "old tool call": ([{**ANSWER, "function_call": {"name": "f"}}], "calls a tool"),
    "answer of a tool": ([{"role": "tool", "content": "3"}], "calls a tool"),
    "user": ([{"role": "user", "content": "x"}], "one message of the assistant"),
    "two": ([ANSWER, ANSWER], "it has 2 messages"),
    "no message": ([], "nor a list of messages"),
    "number": (3, "nor a list of messages"),
    "null": (None, "nor a list of messages"),
    "list of numbers": ([3], "a role and a content"),
    "unknown role": ([{"role": "judge", "content": "x"}], "unknown role 'judge'"),
    "role of a wrong type": ([{"role": [1], "content": "x"}], "no role"),
    "picture": ([{**ANSWER, "content": [{"type": "image_url"}]}], "unknown type 'image_url'"),
    "part without type": ([{**ANSWER, "content": ["x"]}], "no type"),
    "part without text": ([{**ANSWER, "content": [{"type": "text"}]}], "part without text"),
    "part of a number": (
        [{**ANSWER, "content": [{"type": "text", "text": 3}]}],
        "part without text",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_of_a_response_is_read(name: str) -> None:
    value, text = TEXTS[name]
    assert response_of(value, "chosen") == text


@pytest.mark.parametrize("name", REFUSED)
def test_a_response_that_is_more_than_text_is_refused_with_the_reason(name: str) -> None:
    value, reason = REFUSED[name]
    with pytest.raises(InvalidComparisonError, match=reason):
        response_of(value, "chosen")


def test_a_question_keeps_the_roles_of_its_turns() -> None:
    chat = [{"role": "developer", "content": "Be brief."}, {"from": "human", "value": "Hi"}]
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert question_of(chat) == messages_of(chat) == turns
    assert question_of("Hi") == "Hi"


def test_an_error_repeats_at_most_forty_characters() -> None:
    with pytest.raises(InvalidComparisonError) as refused:
        messages_of([{"role": "x" * 5000, "content": "y"}])
    assert len(str(refused.value)) < 100
