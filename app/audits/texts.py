"""Texts of drawn pairs, which the store keeps while their audits are open (`SCOPE_AUDIT_TEXTS`).

The store keeps each as one JSON object, `{"id", "question", "response_a", "response_b"}`, under a
key that both orders of the pair share.
"""

import json
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter

from app.audits.entries import DrawId
from app.core.comparison import Comparison, Turn
from app.core.fingerprint import drawn_pair

# Longer texts, as JSON, are not kept: 20,000 words, which nobody reads to label a pair.
LONGEST_TEXTS = 2**17

_Text = Annotated[str, Field(min_length=1)]
_Response = _Text | Annotated[tuple[_Text, ...], Field(min_length=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnTexts:
    """The texts of a drawn pair, in the form of `POST /judge`.

    Args:
        id: Id of the draw, whose last bit is the order of these responses.
        question: The question, or the turns of a conversation.
        response_a: Response A: a text, or one for each turn.
        response_b: Response B, in the same form.
    """

    id: DrawId
    question: _Text | Annotated[tuple[Turn, ...], Field(min_length=1)]
    response_a: _Response
    response_b: _Response


_TEXTS = TypeAdapter(DrawnTexts)


def key_of(identifier: str) -> str:
    """The key of a drawn pair in the store: its id without the order of its two responses."""
    return f"{drawn_pair(identifier):032x}"


def written_texts(identifier: str, comparison: Comparison) -> str | None:
    """Writes the texts of a drawn pair for the store, as JSON in ASCII; None if they are too long.

    Args:
        identifier: Id of the draw.
        comparison: The comparison, in the order of the id.
    """
    if sum(map(len, comparison.texts)) > LONGEST_TEXTS:
        return None
    (first, *others), a, b = comparison.question, comparison.response_a, comparison.response_b
    texts = DrawnTexts(
        id=identifier,
        question=comparison.question if others or first.role != "user" else first.content,
        response_a=a if len(a) > 1 else a[0],
        response_b=b if len(b) > 1 else b[0],
    )
    written = json.dumps(asdict(texts), separators=(",", ":"))
    return written if len(written) <= LONGEST_TEXTS else None


def read_texts(written: str | None, identifier: str) -> DrawnTexts | None:
    """Reads the texts of a drawn pair; None if there are none that this service wrote for it."""
    try:
        texts = _TEXTS.validate_json(written or "")
    except ValueError:
        return None
    return texts if key_of(texts.id) == key_of(identifier) else None
