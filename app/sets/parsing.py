"""Parsers of single values that a store returns; each raises an error for any other value."""

import math
import re
from dataclasses import replace
from typing import Any

from app.core.calibration import LabeledExample
from app.core.cascade import CascadePlan
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
    digest of the question, or null if a sixth has the numbers of a cascade's small judge.

    Raises:
        ValueError, TypeError, OverflowError: The fields are not a labeled example.
    """
    gap_fwd, gap_rev, label_mass, label, *more = fields
    if label not in _LABELS:
        raise ValueError("not a labeled example")
    if len(more) > 2:
        raise ValueError("too many fields")
    small = _score(*more[1]) if len(more) > 1 else None
    unknown = not more or (small is not None and more[0] is None)
    question = None if unknown else parse_digest(more[0])
    score = replace(_score(gap_fwd, gap_rev, label_mass), small=small)
    return LabeledExample(score=score, label=label, question=question)


def _score(gap_fwd: Any, gap_rev: Any, label_mass: Any) -> Score | NoScore:
    if (gap_fwd, gap_rev, label_mass) == (None, None, None):
        return NoScore(reason="thought_unfinished")
    return Score(
        gap_fwd=parse_finite(gap_fwd),
        gap_rev=None if gap_rev is None else parse_finite(gap_rev),
        label_mass=None if label_mass is None else parse_finite(label_mass),
    )


def parse_plan(fields: Any) -> CascadePlan:
    """Returns what a cascade's set fixed before its first label; raises for any other value."""
    small, large = (
        tuple((parse_finite(u), parse_finite(share)) for u, share in fields[name])
        for name in ("small", "large")
    )
    if not small or not large:
        raise ValueError("not a plan")
    share, slack = parse_finite(fields["share"]), parse_finite(fields["slack"])
    return CascadePlan(small=small, large=large, share=share, slack=slack)


def parse_digest(value: Any) -> str:
    """Returns 64 hexadecimal digits; raises ValueError or TypeError for any other value."""
    if not _DIGEST.fullmatch(value):
        raise ValueError("not a digest")
    return str(value)
