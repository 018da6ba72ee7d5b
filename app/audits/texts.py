"""Texts of drawn pairs, which the store keeps while their audits are open (`SCOPE_AUDIT_TEXTS`).

The store keeps each as one JSON object, `{"id", "question", "response_a", "response_b"}`, under a
key that both orders of the pair share. The last bit of the id is the order of these responses.
"""

import json
from dataclasses import asdict

from pydantic import TypeAdapter

from app.core.comparison import Comparison
from scope_judge.records import PairTexts, Turn

# Longer texts, as JSON, are not kept: 20,000 words, which nobody reads to label a pair.
LONGEST_TEXTS = 2**17

_TEXTS = TypeAdapter(PairTexts)


def written_texts(identifier: str, comparison: Comparison) -> str | None:
    """Writes the texts of a drawn pair for the store, as JSON in ASCII; None if they are too long.

    Args:
        identifier: Id of the draw.
        comparison: The comparison, in the order of the id.
    """
    if sum(map(len, comparison.texts)) > LONGEST_TEXTS:
        return None
    (first, *others), a, b = comparison.question, comparison.response_a, comparison.response_b
    turns = tuple(Turn(role=turn.role, content=turn.content) for turn in comparison.question)
    texts = PairTexts(
        question=turns if others or first.role != "user" else first.content,
        response_a=a if len(a) > 1 else a[0],
        response_b=b if len(b) > 1 else b[0],
    )
    written = json.dumps({"id": identifier} | asdict(texts), separators=(",", ":"))
    return written if len(written) <= LONGEST_TEXTS else None


def read_texts(written: str | None) -> tuple[str, PairTexts] | None:
    """Reads the texts of a drawn pair, with the id of their order; None if there are none."""
    if written is None:
        return None
    fields = json.loads(written)
    return fields["id"], _TEXTS.validate_python(fields)
