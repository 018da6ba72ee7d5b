"""Parsers of single values that a store returns; each raises an error for any other value."""

import math
import re
from typing import Any

from app.core.calibration import LabeledExample
from app.core.score import NoScore, Score

_DIGEST = re.compile(r"[0-9a-f]{64}")
_LABELS = ("A", "B", None, "tie")

# The errors that parsing raises for data that this version did not write.
PARSE_ERRORS = (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError)


def parse_text(value: Any) -> str:
    """Returns a string that UTF-8 can encode.

    Raises:
        TypeError: The value is not a string.
        ValueError: The string has a lone surrogate. JSON can hold one; answers and stores cannot.
    """
    if not isinstance(value, str):
        raise TypeError("not a text")
    value.encode()
    return value


def parse_count(value: Any) -> int:
    """Returns an integer in [0, 2^63); raises ValueError for any other value."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError("not a count")
    return value


def parse_finite(value: Any) -> float:
    """Returns a finite number; raises ValueError or OverflowError for any other value."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("not a finite number")
    return float(value)


def parse_example(fields: Any) -> LabeledExample:
    """Returns a labeled example from `[gap_fwd, gap_rev, label_mass, label]`.

    The last two numbers may be null; all three are if the judge gave no score. A fifth field is the
    digest of the question.

    Raises:
        ValueError, TypeError, OverflowError: The fields are not a labeled example.
    """
    gap_fwd, gap_rev, label_mass, label, *more = fields
    if label not in _LABELS:
        raise ValueError("not a labeled example")
    if len(more) > 1:
        raise ValueError("too many fields")
    question = parse_digest(more[0]) if more else None
    score: Score | NoScore
    if (gap_fwd, gap_rev, label_mass) == (None, None, None):
        score = NoScore(reason="thought_unfinished")
    else:
        score = Score(
            gap_fwd=parse_finite(gap_fwd),
            gap_rev=None if gap_rev is None else parse_finite(gap_rev),
            label_mass=None if label_mass is None else parse_finite(label_mass),
        )
    return LabeledExample(score=score, label=label, question=question)


def parse_digest(value: Any) -> str:
    """Returns 64 hexadecimal digits; raises ValueError or TypeError for any other value."""
    if not _DIGEST.fullmatch(value):
        raise ValueError("not a digest")
    return str(value)
