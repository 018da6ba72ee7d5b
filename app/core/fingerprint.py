"""What a calibration is valid for, and what makes two labelled comparisons the same one."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from app.core.comparison import Comparison, LabelledComparison


@dataclass(frozen=True, slots=True)
class JudgeIdentity:
    """Everything that a judge's scores depend on, and nothing else.

    Args:
        model: Hugging Face id, or the name of the model's folder.
        weights: Digest of the weights, or the revision of the hub.
        chat_frame: What the chat template puts around a user message; empty where there is none.
        label_tokens: Token ids of A and B where the judge answers.
        dtype: In which the model computes.
        system: The system message.
        user: The user message with its placeholders.
        prefill: How the judge's answer begins.
        fence: Version of the rules by which texts that resemble a heading are quoted. It is raised
            whenever some text is shown to the judge otherwise than before.
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
        """64 hexadecimal digits; a calibration made under one serves no other."""
        return _digest(asdict(self))


def example_digest(fingerprint: str, comparison: Comparison) -> str:
    """Names a comparison within a calibration set, the same for both orders of the responses.

    Deviation: the order of the responses is left out, because the swapped comparison has the same
    p_bar, mirrored: counted beside the first one it would be a duplicate and break exchangeability.

    Returns:
        64 hexadecimal digits.
    """
    question = [(turn.role, turn.content) for turn in comparison.question]
    responses = sorted((comparison.response_a, comparison.response_b))
    return _digest([fingerprint, question, responses])


def batch_digest(batch: Sequence[LabelledComparison]) -> str:
    """Names a labelled batch, so that whoever posted one can tell whether it is theirs.

    It is the SHA-256 of the batch as JSON: a list with one row for each example, in order, ties
    included, without spaces, and with JSON escapes for all outside ASCII:

        [[[["user","Question?"]],["Response A"],["Response B"],"A"]]

    A row is the question's turns, the texts of both responses, and the label. A plain question is
    one turn of the user, a plain response a list of one text. In Python
    `json.dumps(rows, separators=(",", ":"))` writes it.

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
