"""Digests that identify a judge and a comparison."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from app.core.comparison import Comparison

# One encoder for all calls: `json.dumps` would make one for each, which takes as long as a digest.
_to_json = json.JSONEncoder(sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode


# The reason why two judges of one name may have different fingerprints, for people.
INPUTS_DIFFER = "the model, the prompt or another input of the scores differs"


@dataclass(frozen=True, kw_only=True)
class JudgeIdentity:
    """A judge of any kind: its name, all that its scores depend on, and how it describes itself.

    Args:
        name: Name of the judge in answers.
        inputs: Name -> JSON value of each input of its scores besides the comparison. Judges of one
            kind have the same names. A change of a name or of the spelling of a value changes the
            fingerprint, and every stored calibration then refuses its own judge.
        described: The fields of GET /info that this kind of judge has.
        max_prompt_tokens: Longest prompt that the judge accepts.
        largest_gap: Gaps are bounded by this, because the judge rounds its probabilities; infinite
            if it does not.
        runtime: Software and processor that compute the scores, such as "vLLM 0.32.0, CUDA 8.0".
            On another runtime the same judge has the same scores up to rounding. None if it is
            unknown.
    """

    name: str
    inputs: Mapping[str, object]
    described: Mapping[str, object]
    max_prompt_tokens: int
    largest_gap: float = math.inf
    runtime: str | None = None

    @cached_property
    def fingerprint(self) -> str:
        """64 hexadecimal digits. A calibration is valid only for the judge of its fingerprint."""
        return digest_of_json(dict(self.inputs))


def cascade_inputs(small: str, large: str) -> dict[str, object]:
    """The inputs of a cascade's fingerprint, from the fingerprints of its judges."""
    return {"kind": "cascade", "small": small, "large": large}


def digest_of_json(value: object) -> str:
    """The SHA-256 of a JSON value with sorted keys and no spaces, 64 hexadecimal digits."""
    return hashlib.sha256(_to_json(value).encode("ascii")).hexdigest()


def example_digest(fingerprint: str, comparison: Comparison) -> str:
    """Identifies a comparison within a calibration set by 64 hexadecimal digits.

    Deviation: the digest ignores the order of the responses. The swapped comparison has the same
    p_bar, mirrored, so counting both would be a duplicate and break exchangeability.
    """
    question = [(turn.role, turn.content) for turn in comparison.question]
    responses = sorted((comparison.response_a, comparison.response_b))
    return digest_of_json([fingerprint, question, responses])


def question_digest(comparison: Comparison) -> str:
    """Identifies the question of a comparison by 64 hexadecimal digits.

    Pairs of one question are not independent of each other: "pac" counts one of them.
    """
    return digest_of_json(["question", [(turn.role, turn.content) for turn in comparison.question]])


def drawn_pair(identifier: str) -> int:
    """Returns the number of a drawn pair: the id of a draw without the order of its responses.

    The last bit of the id says which of the two responses came first.

    Raises:
        ValueError: The text is not hexadecimal.
    """
    return int(identifier, 16) >> 1


def is_reversed(identifier: str) -> bool:
    """Whether response A of a drawn pair comes after response B by their code points."""
    return bool(int(identifier, 16) & 1)
