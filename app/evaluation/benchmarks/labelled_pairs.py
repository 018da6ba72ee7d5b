"""Pairs that people have labelled, and which of them are judged."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from app.core.comparison import Comparison, Side

# SCOPE, section on data sets; appendix on Simulated Annotators.
MOST_PAIRS = 2000
POOL = 50


class LabelledPair(NamedTuple):
    """Two responses and the one that people prefer.

    Args:
        id: Unique in its data set.
        group: Of the question: pairs of one group are not independent.
        comparison: In the order in which response_a is shown first.
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
        """Of question and responses in their order."""
        return hashlib.sha256(repr(self.comparison).encode("utf-8", "replace")).hexdigest()[:16]

    @property
    def in_random_order(self) -> "LabelledPair":
        """Swapped or not, by a digest of the id: the same whatever else is drawn.

        Methods that ask in one order only would measure the order of the source: the better
        response stands first in many (SCOPE randomises, too: section on uncertainty estimation).
        """
        if hashlib.sha256(self.id.encode()).digest()[0] % 2:
            return self
        label: Side = "B" if self.label == "A" else "A"
        comparison = self.comparison.swapped
        return self._replace(comparison=comparison, label=label, swapped=not self.swapped)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A data set of labelled pairs.

    Args:
        name: Its name here, or the stem of its file.
        pairs: Without ties.
        ties: Left out, as in the paper.
        left_out: Rows that are no comparison, by reason.
    """

    name: str
    pairs: tuple[LabelledPair, ...]
    ties: int
    left_out: Mapping[str, int]


class Drawn(NamedTuple):
    """What is judged of a benchmark.

    Args:
        pairs: In random order, so that the first of them are a random sample.
        demonstrations: None of them among `pairs`.
    """

    pairs: tuple[LabelledPair, ...]
    demonstrations: tuple[LabelledPair, ...]


def draw(
    benchmark: Benchmark, *, seed: int, at_most: int = MOST_PAIRS, demonstrations: int = 0
) -> Drawn:
    """Draws the pairs to judge, each in a random order, and demonstrations that are not judged.

    Which pairs come first depends on neither number. Demonstrations come from the other end, so
    that they stay the same ones where `at_most` grows, and none is another vote on a judged pair. A
    benchmark too small for both gives at most a tenth of its pairs to demonstrations.

    Args:
        benchmark: Any.
        seed: The same seed draws the same.
        at_most: Pairs to judge.
        demonstrations: How many to keep out of them; fewer where there are no more.
    """
    order = np.random.default_rng(seed).permutation(len(benchmark.pairs))
    drawn = [benchmark.pairs[i].in_random_order for i in order]
    pool = min(demonstrations, max(len(drawn) - at_most, len(drawn) // 10))
    judged = drawn[: min(at_most, len(drawn) - pool)]
    seen = {pair.comparison for pair in judged} | {pair.comparison.swapped for pair in judged}
    others = [pair for pair in reversed(drawn[len(judged) :]) if pair.comparison not in seen]
    return Drawn(tuple(judged), tuple(others[:pool]))
