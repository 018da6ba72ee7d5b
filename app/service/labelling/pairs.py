"""A pair as a person sees it: blind, with a random response on the left."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.core.comparison import AuditLabel, Label, Side

Choice = Literal["left", "right", "tie"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PairText:
    """The texts of a pair in the order in which they are shown."""

    question: str
    left: str
    right: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BlindPair:
    """A pair that can be labelled.

    Args:
        key: Digest of the comparison.
        fields: question, response_a and response_b, as in POST /judge.
        left: The response that is shown on the left.
    """

    key: str
    fields: Mapping[str, Any]
    left: Side

    @property
    def text(self) -> PairText:
        """The texts, with turns of a conversation one below the other."""
        a, b = (_response(self.fields[name]) for name in ("response_a", "response_b"))
        left, right = (a, b) if self.left == "A" else (b, a)
        return PairText(question=_question(self.fields["question"]), left=left, right=right)

    def label_of(self, choice: Choice) -> Label:
        """The label that a choice between the two sides means."""
        if choice == "tie":
            return "tie"
        return self.left if choice == "left" else ("B" if self.left == "A" else "A")

    def choice_of(self, label: AuditLabel) -> Choice | None:
        """The choice between the two sides that a label means; None if there is no label."""
        if label == "none" or label == "tie":
            return None if label == "none" else "tie"
        return "left" if label == self.left else "right"


def left_side(seed: int, key: str) -> Side:
    """The response that is shown on the left: a coin for each pair, the same in every run."""
    digest = hashlib.sha256(f"{seed}:{key}".encode()).digest()
    return "A" if digest[0] % 2 else "B"


def _question(question: Any) -> str:
    if isinstance(question, str):
        return question
    return "\n\n".join(f"[{turn['role']}]\n{turn['content']}" for turn in question)


def _response(response: Any) -> str:
    if isinstance(response, str):
        return response
    return "\n\n".join(f"[answer {i}]\n{text}" for i, text in enumerate(response, start=1))


def drawn(digests: Collection[str], *, most: int, seed: int) -> Sequence[str]:
    """Draws pairs at random, the same ones in every run.

    Args:
        digests: Digests of pairs.
        most: Number of pairs to draw, if there are so many.
        seed: Draws other pairs.
    """
    return sorted(digests, key=lambda digest: hashlib.sha256(f"{seed}:{digest}".encode()).digest())[
        :most
    ]
