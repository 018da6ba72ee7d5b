"""The comparisons that engines are measured on: pairs of the demo judge, and paragraphs."""

import itertools
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from app.core.comparison import Comparison
from app.demo.pairs import pairs

ROOT = Path(__file__).resolve().parents[2]
# Lengths of paragraphs in characters, and number of pairs.
_PARAGRAPH = (300, 1500)
_PAIRS = 400
TEXTS = "paragraphs of our own pages"


class Pair(NamedTuple):
    """A comparison with the fields of a request."""

    question: str
    response_a: str
    response_b: str

    @property
    def comparison(self) -> Comparison:
        return Comparison.of(*self)


def demo_pairs(repeat: int, count: int) -> list[Pair]:
    """Pairs from the demo judge's families; each repeat has different ones."""
    drawn = itertools.islice(pairs(7000 + repeat, held_out=True), count)
    return [Pair(pair.question, pair.response_a, pair.response_b) for pair in drawn]


def real_pairs() -> list[Pair]:
    """Distinct pairs of paragraphs of our pages, in a seeded order."""
    rng, found = random.Random(3), _paragraphs()
    return [Pair(*rng.sample(found, 3)) for _ in range(_PAIRS)]


def real_slices(count: int) -> Iterator[list[Pair]]:
    """Yields slices of the real pairs; no pair is in two slices."""
    found = real_pairs()
    for first in range(0, len(found) - count + 1, count):
        yield found[first : first + count]


def _paragraphs() -> list[str]:
    pages = sorted((ROOT / "docs").rglob("*.md"))
    texts = (page.read_text(encoding="utf-8") for page in pages)
    found = itertools.chain.from_iterable(re.split(r"\n\n+", text) for text in texts)
    fitting = [text for text in found if _PARAGRAPH[0] <= len(text) <= _PARAGRAPH[1]]
    return sorted(set(fitting))
