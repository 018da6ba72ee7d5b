"""Pairs to judge and to calibrate with; each follows from its number, so logs need no texts."""

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from app.core.preference import preference_from_gaps
from app.core.thresholds import ThresholdCurve

ALPHA = 0.1
BATCH = 8


class Pair(NamedTuple):
    """A comparison to judge.

    Args:
        fields: question, response_a and response_b.
        p_bar: The judge's p_bar for the pair.
    """

    fields: dict[str, str]
    p_bar: float


def scripted_pairs(count: int = 64) -> list[Pair]:
    """Pairs whose texts tell the scripted engine how to judge them."""
    pairs = []
    for i in range(count):
        gap = round(0.11 * (i - count // 2) + 0.05, 6)
        fields = {
            "question": f"Which answer is the better one, of pair {i}?",
            "response_a": f"One with quality={gap:.6f}.",
            "response_b": "One with quality=0.000000.",
        }
        pairs.append(Pair(fields, 1 / (1 + math.exp(-gap))))
    return pairs


def _share(number: int, salt: int) -> float:
    """A pseudo-random number in [0, 1) that is always the same."""
    mixed = (number * 2654435761 + salt * 40503) % 2**32
    mixed = ((mixed ^ (mixed >> 15)) * 2246822519) % 2**32
    return (mixed ^ (mixed >> 13)) % 2**24 / 2**24


def _gap(number: int) -> float:
    return round(8.0 * _share(number, 1) - 4.0, 6)


def _label(number: int) -> str:
    # Right more often than the judge is sure: alpha = 0.1 is feasible, and not for everything.
    return "A" if _share(number, 2) < 1 / (1 + math.exp(-1.5 * _gap(number))) else "B"


def example(set_name: str, number: int) -> dict[str, Any]:
    """A labeled pair that differs from those of other numbers and of other sets."""
    return {
        "question": f"example {number} of {set_name}",
        "response_a": f"quality={_gap(number):.6f}",
        "response_b": "quality=0.000000",
        "label": _label(number),
    }


def calibrate_body(set_name: str, batches: Sequence[int]) -> bytes:
    """The body of a post of numbered batches."""
    examples = [
        example(set_name, number)
        for batch in batches
        for number in range(batch * BATCH, (batch + 1) * BATCH)
    ]
    return json.dumps({"calibration": set_name, "examples": examples}).encode()


class _Points(NamedTuple):
    uncertainty: list[float]
    error: list[bool]


@lru_cache(maxsize=4096)
def _points(batch: int) -> _Points:
    numbers = range(batch * BATCH, (batch + 1) * BATCH)
    gaps = np.array([_gap(number) for number in numbers])
    wrong = [
        (gap > 0) != (_label(number) == "A") for gap, number in zip(gaps, numbers, strict=True)
    ]
    return _Points(preference_from_gaps(gaps, gaps).entropy.tolist(), wrong)


def threshold_of(batches: Sequence[int]) -> float | None:
    """lambda_hat(0.1) of these batches under the scripted engine; None if it is infeasible."""
    points = [_points(batch) for batch in batches]
    uncertainty = [u for p in points for u in p.uncertainty]
    curve = ThresholdCurve.fit(uncertainty, [e for p in points for e in p.error])
    threshold = curve.threshold(ALPHA)
    return None if threshold == -math.inf else threshold
