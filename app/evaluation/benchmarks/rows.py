"""Rows of a data set, as its reader returns them before they are checked."""

import hashlib
from dataclasses import dataclass
from typing import Any

from app.core.comparison import Turn

TIE = "tie"


@dataclass(frozen=True, kw_only=True, slots=True)
class RawPair:
    """A row that is not checked yet.

    Args:
        id: Name of the row; may repeat.
        group: Identifies the question.
        question: Turns of the conversation.
        response_a: One text, or one for each user turn.
        response_b: One text, or one for each user turn.
        label: "A", "B" or "tie"; None for an unknown label.
    """

    id: str
    group: str
    question: tuple[Turn, ...]
    response_a: tuple[str, ...]
    response_b: tuple[str, ...]
    label: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """A row that is not a comparison."""

    reason: str


def user_turn(text: str) -> tuple[Turn, ...]:
    """A conversation of one question."""
    return (Turn("user", text),)


def digest_of(*texts: Any) -> str:
    """A short name for a row or a question without an id: 16 hexadecimal digits."""
    return hashlib.sha256("\0".join(map(str, texts)).encode()).hexdigest()[:16]
