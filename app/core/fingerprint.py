"""Digests that identify a judge, a comparison and a labelled batch."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from app.core.comparison import Comparison, LabelledComparison

# Characters that are written in one call.
_PIECE = 2**16
# One encoder for all calls: `json.dumps` would make one for each, which takes as long as a digest.
_to_json = json.JSONEncoder(sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode


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

    @property
    def template(self) -> str:
        """64 hexadecimal digits of the prompt template, which other judges may share."""
        return template_digest(self.system, self.user, self.prefill)


def template_digest(system: str, user: str, prefill: str) -> str:
    """Identifies a prompt template.

    Returns:
        64 hexadecimal digits.
    """
    return _digest([system, user, prefill])


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


def question_digest(comparison: Comparison) -> str:
    """Identifies the question of a comparison, whatever the judge and the responses.

    Pairs of one question are not independent of each other: `core.clusters` counts them.

    Returns:
        64 hexadecimal digits.
    """
    return _digest(["question", [(turn.role, turn.content) for turn in comparison.question]])


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
    if _size(value, at_most=_PIECE) <= _PIECE:
        return hashlib.sha256(_to_json(value).encode("ascii")).hexdigest()
    digest = hashlib.sha256()
    for piece in _written(value):
        digest.update(piece.encode("ascii"))
    return digest.hexdigest()


def _written(value: object) -> Iterator[str]:
    """The value as JSON, in pieces: in one call 8 MB would hold all other threads up."""
    if isinstance(value, str) and len(value) > _PIECE:
        yield '"'
        for start in range(0, len(value), _PIECE):
            yield json.dumps(value[start : start + _PIECE])[1:-1]
        yield '"'
    elif isinstance(value, list | tuple) and _size(value, at_most=_PIECE) > _PIECE:
        for i, each in enumerate(value):
            yield "," if i else "["
            yield from _written(each)
        yield "]"
    else:
        yield _to_json(value)


def _size(value: object, *, at_most: int) -> int:
    """Characters of a text, or of a list and all that is in it; not counted beyond a bound."""
    if isinstance(value, str):
        return len(value)
    size = 1
    if isinstance(value, list | tuple):
        for each in value:
            size += _size(each, at_most=at_most - size)
            if size > at_most:
                break
    return size
