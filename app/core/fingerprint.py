"""Digests that identify a judge, a comparison and a labelled batch."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from app.core.comparison import Comparison, LabelledComparison


@dataclass(frozen=True, slots=True)
class JudgeIdentity:
    """All inputs of a judge's scores besides the comparison.

    Args:
        model: Hugging Face id, or the name of the model's folder.
        weights: Digest of the weights, or the revision on the hub.
        chat_frame: Text that the chat template puts around a user message; empty without a chat
            template.
        label_tokens: Token ids of A and B at the position of the answer.
        dtype: Data type in which the model computes.
        system: System message.
        user: User message with its placeholders.
        prefill: Beginning of the judge's answer.
        fence: Version of the rules that quote texts which resemble a heading. Every change of the
            rules that changes a prompt raises the version.
    """

    model: str
    weights: str
    chat_frame: str
    label_tokens: tuple[int, int]
    dtype: str
    system: str
    user: str
    prefill: str
    fence: int

    @property
    def fingerprint(self) -> str:
        """64 hexadecimal digits. A calibration is valid only for the judge of its fingerprint."""
        return _digest(asdict(self))


def example_digest(fingerprint: str, comparison: Comparison) -> str:
    """Identifies a comparison within a calibration set, in either order of the responses.

    Deviation: the digest ignores the order of the responses. The swapped comparison has the same
    p_bar, mirrored, so counting both would be a duplicate and break exchangeability.

    Returns:
        64 hexadecimal digits.
    """
    question = [(turn.role, turn.content) for turn in comparison.question]
    responses = sorted((comparison.response_a, comparison.response_b))
    return _digest([fingerprint, question, responses])


def batch_digest(batch: Sequence[LabelledComparison]) -> str:
    """Identifies a labelled batch, so that clients can recognise the batches that they posted.

    The digest is the SHA-256 of the batch as JSON: a list with one row for each example, in order
    and with ties, without spaces, and with JSON escapes for all characters outside ASCII:

        [[[["user","Question?"]],["Response A"],["Response B"],"A"]]

    A row holds the turns of the question, the texts of both responses, and the label. A plain
    question is one user turn, and a plain response is a list of one text. In Python,
    `json.dumps(rows, separators=(",", ":"))` writes this JSON.

    Returns:
        64 hexadecimal digits.
    """
    return _digest([_row(example) for example in batch])


def _row(example: LabelledComparison) -> list[object]:
    comparison = example.comparison
    question = [(turn.role, turn.content) for turn in comparison.question]
    return [question, comparison.response_a, comparison.response_b, example.label]


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
