"""Labeled pairs, the benchmarks that hold them, and the random draw of the pairs to judge."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from app.core.comparison import Comparison, Side
from app.files.checking import LabelReport

# Pairs judged of each benchmark (SCOPE, section on data sets), and demonstrations kept for the
# simulated annotators (SCOPE, appendix on Simulated Annotators).
MOST_PAIRS = 2000
POOL = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class LabeledPair:
    """Two responses to one question, and the response that people prefer.

    Args:
        id: Unique within the data set.
        group: Identifies the question: pairs of one group are not independent.
        comparison: Question and responses, with response_a shown first.
        label: The preferred response.
        swapped: Whether the source has the responses in the other order.
    """

    id: str
    group: str
    comparison: Comparison
    label: Side
    swapped: bool = False

    @property
    def text_digest(self) -> str:
        """Digest of the question and the responses in their order."""
        return hashlib.sha256(repr(self.comparison).encode("utf-8", "replace")).hexdigest()[:16]

    @property
    def in_random_order(self) -> "LabeledPair":
        """The same pair, swapped or not by a digest of its id alone.

        Many sources show the better response first. A method that asks in one order only would
        measure that habit (SCOPE randomises the order too: section on uncertainty estimation).
        """
        if hashlib.sha256(self.id.encode()).digest()[0] % 2:
            return self
        return self.exchanged

    @property
    def exchanged(self) -> "LabeledPair":
        """The same pair with the other response first."""
        label: Side = "B" if self.label == "A" else "A"
        comparison = self.comparison.swapped
        return replace(self, comparison=comparison, label=label, swapped=not self.swapped)


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """A data set of labeled pairs.

    Args:
        name: Name of the benchmark, or the stem of its file.
        pairs: Labeled pairs without ties.
        ties: Number of ties, which are left out as in the paper.
        left_out: Number of other rows that were left out, by reason.
        report: The outcome of the check of a file's rows; None for a data set of the hub.
    """

    name: str
    pairs: tuple[LabeledPair, ...]
    ties: int
    left_out: Mapping[str, int]
    report: LabelReport | None = None


def draw(
    benchmark: Benchmark, *, seed: int, at_most: int = MOST_PAIRS, demonstrations: int = 0
) -> tuple[list[LabeledPair], list[LabeledPair]]:
    """Draws the pairs to judge, each in a random order, and separate demonstrations.

    The order of the pairs depends on neither number: the first ones are a random sample.
    Demonstrations are taken from the end of that order, so that a larger `at_most` keeps them. No
    demonstration has the texts of a judged pair. A benchmark that is too small for both gives at
    most a tenth of its pairs to the demonstrations.
    """
    order = np.random.default_rng(seed).permutation(len(benchmark.pairs))
    drawn = [benchmark.pairs[i].in_random_order for i in order]
    pool = min(demonstrations, max(len(drawn) - at_most, len(drawn) // 10))
    judged = drawn[: min(at_most, len(drawn) - pool)]
    seen = {pair.comparison for pair in judged} | {pair.comparison.swapped for pair in judged}
    others = [pair for pair in reversed(drawn[len(judged) :]) if pair.comparison not in seen]
    return judged, others[:pool]


def digest_of(*texts: Any) -> str:
    """A short name for a row or a question without an id: 16 hexadecimal digits."""
    return hashlib.sha256("\0".join(map(str, texts)).encode()).hexdigest()[:16]
