"""Parsers of single values that a store returns; each raises an error for any other value."""

import json
import math
import re
from typing import Any

from app.core.calibration import LabelledExample
from app.core.clusters import CLUSTER_RULES, ClusterRule
from app.core.groups import declared_groups
from app.core.looks import Looks
from app.core.score import Score

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


def parse_label_noise(value: Any) -> float:
    """Returns a label noise in [0, 0.5), from a number or its text.

    Raises:
        ValueError, TypeError, OverflowError: The value is not a label noise.
    """
    noise = float(value)
    if not 0.0 <= noise < 0.5:
        raise ValueError("not a label noise")
    return noise


def parse_example(fields: Any) -> LabelledExample:
    """Returns a labelled example from `[gap_fwd, gap_rev, label_mass, label]`.

    The last two numbers may be null. A fifth field is the digest of the question, or null, and a
    sixth one the group.

    Raises:
        ValueError, TypeError, OverflowError: The fields are not a labelled example.
    """
    gap_fwd, gap_rev, label_mass, label, *more = fields
    if label not in _LABELS:
        raise ValueError("not a labelled example")
    if len(more) > 2:
        raise ValueError("too many fields")
    group = parse_group(more.pop()) if len(more) == 2 else None
    question = None if not more or (group and more[0] is None) else parse_digest(more[0])
    score = Score(
        gap_fwd=parse_finite(gap_fwd),
        gap_rev=None if gap_rev is None else parse_finite(gap_rev),
        label_mass=None if label_mass is None else parse_finite(label_mass),
    )
    return LabelledExample(score=score, label=label, question=question, group=group)


def parse_group(value: Any) -> str:
    """Returns the name of a group; raises ValueError or TypeError for any other value."""
    (name,) = declared_groups([parse_text(value)])
    return name


def parse_groups(value: str) -> tuple[str, ...]:
    """Returns groups from a JSON list; raises ValueError or TypeError for any other value."""
    return declared_groups(parse_texts(value))


def parse_looks(value: Any) -> Looks | None:
    """Returns planned looks from a JSON object, None from None; raises for any other value.

    Raises:
        ValueError, TypeError, KeyError: The value is not such a plan.
    """
    if value is None:
        return None
    fields = json.loads(value)
    for size in fields["sizes"]:
        parse_count(size)
    return Looks.of(fields)


def parse_digest(value: Any) -> str:
    """Returns 64 hexadecimal digits; raises ValueError or TypeError for any other value."""
    if not _DIGEST.fullmatch(value):
        raise ValueError("not a digest")
    return str(value)


def parse_texts(value: str) -> tuple[str, ...]:
    """Returns texts from a JSON list of texts; raises ValueError or TypeError for other values."""
    texts = json.loads(value)
    if not isinstance(texts, list):
        raise TypeError("not a list")
    return tuple(map(parse_text, texts))


def parse_clusters(value: Any) -> ClusterRule:
    """Returns a rule for pairs of one question; raises ValueError for any other value."""
    for rule in CLUSTER_RULES:
        if rule == value:
            return rule
    raise ValueError("not a rule for pairs of one question")
