"""The comparisons that engines are measured on: pairs of the demo judge, and real texts."""

import gzip
import itertools
import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from app.core.comparison import Comparison
from app.demo.pairs import pairs

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
_VICUNA = "vicuna80_prd__gpt4"
_REAL = (_VICUNA, "llmbar_case__GPT-4_prompt-ensemble", "llmbar_processed_human__GPT-4")
# A prompt in a language that the tokenizer has not learned must still fit into 4096 tokens.
_LONGEST_CHARACTERS = 7000

# Where the data sets are missing: lengths of paragraphs in characters, and number of pairs.
_PARAGRAPH = (300, 1500)
_SHIPPED_PAIRS = 400


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


def has_real_texts() -> bool:
    return all((DATA / f"{name}.jsonl.gz").is_file() for name in _REAL)


def names_of_texts() -> str:
    """Names the real texts, for the notes of a figure."""
    if has_real_texts():
        return "real pairs of Vicuna's 80 questions and of LLMBar"
    return "paragraphs of our own pages, because ../shared/data is not here"


def real_pairs() -> list[Pair]:
    """Distinct pairs of three data sets, else of paragraphs of our pages, in a seeded order."""
    if not has_real_texts():
        rng, found = random.Random(3), _paragraphs()
        return [Pair(*rng.sample(found, 3)) for _ in range(_SHIPPED_PAIRS)]
    distinct = dict.fromkeys(itertools.chain.from_iterable(map(_read, _REAL)))
    fitting = [
        pair
        for pair in distinct
        # The service refuses a blank response.
        if all(map(str.strip, pair)) and sum(map(len, pair)) <= _LONGEST_CHARACTERS
    ]
    random.Random(3).shuffle(fitting)
    return fitting


def real_slices(count: int) -> Iterator[list[Pair]]:
    """Yields slices of the real pairs; no pair is in two slices."""
    found = real_pairs()
    for first in range(0, len(found) - count + 1, count):
        yield found[first : first + count]


def pairs_by_question() -> list[list[Pair]]:
    """Questions with ten pairs each, in a seeded random order."""
    if not has_real_texts():
        rng, found = random.Random(4), _paragraphs()
        return [[Pair(each, *rng.sample(found, 2)) for _ in range(10)] for each in found[:40]]
    groups: dict[str, list[Pair]] = {}
    for pair in _read(_VICUNA):
        groups.setdefault(pair.question, []).append(pair)
    full = [group for group in groups.values() if len(group) == 10]
    random.Random(4).shuffle(full)
    return full


def _paragraphs() -> list[str]:
    pages = sorted((ROOT / "docs").rglob("*.md"))
    texts = (page.read_text(encoding="utf-8") for page in pages)
    found = itertools.chain.from_iterable(re.split(r"\n\n+", text) for text in texts)
    fitting = [text for text in found if _PARAGRAPH[0] <= len(text) <= _PARAGRAPH[1]]
    return sorted(set(fitting))


def _read(name: str) -> Sequence[Pair]:
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [Pair(row["question"], row["response_a"], row["response_b"]) for row in rows]
