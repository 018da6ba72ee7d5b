"""Labeled examples in columns, which take less memory than Python objects; pairs of one question.

The errors of a judge on several pairs of one question resemble each other, so these pairs say less
than pairs of different questions: "pac" counts one of them, drawn by a hash before labels are seen.
`docs/design/guarantees.md` has the measurements.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from app.core.comparison import MIRRORED, Label
from app.core.preference import (
    NoScore,
    Preferences,
    Score,
    all_numbers,
    gaps_in_reverse,
    preference_from_gaps,
    score_of_numbers,
)

# Pairs of a set, with and without labels.
MOST_PAIRS = 50_000
_LABELS: tuple[Label | None, ...] = ("B", "A", None, "tie")
# Label -> its code, the index.
_CODES = {label: code for code, label in enumerate(_LABELS)}
_NO_QUESTION = bytes(32)
_COLUMNS = 6
# A digest is so many 64-bit words.
_WORDS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class LabeledExample:
    """One calibration point; it holds measurements and no text.

    Args:
        score: The score of the comparison, or the reason why the judge gives none. Such pairs are
            kept, because coverage is a share of all pairs.
        label: The side that people prefer; None for a pair of a pool that has no label yet, and
            "tie" for a pair that people found equal. Ties are kept, because the traffic has them,
            and because they must not change how many pairs were drawn.
        question: Digest from `core.fingerprint.question_digest`, 64 hexadecimal digits; None where
            the question is unknown.
        is_reversed: Whether response A comes after response B by their code points. Sets keep each
            pair in the other order, so that the labels of a pair that comes twice can be compared.
    """

    score: Score | NoScore
    label: Label | None
    question: str | None = None
    is_reversed: bool = False

    @property
    def in_set_order(self) -> "LabeledExample":
        """The same example with the responses in the order in which a set keeps them."""
        if not self.is_reversed:
            return self
        label = None if self.label is None else MIRRORED[self.label]
        return replace(self, score=self.score.swapped, label=label, is_reversed=False)


class Examples(Mapping[str, LabeledExample]):
    """An immutable mapping: digest of a comparison -> labeled example.

    Args:
        rows: Digest -> index of its row, in the order of the rows.
        numbers: Shape (n, 6). Columns `gap_fwd`, `gap_rev` and `label_mass`, and the same of a
            cascade's small judge; see `preference.all_numbers`.
        labels: Shape (n,), uint8. 0 for B, 1 for A, 2 for no label, 3 for a tie.
        questions: Shape (n, 32), uint8. Digest of the question; zeros where it is unknown.
    """

    __slots__ = ("_rows", "labels", "numbers", "questions")

    def __init__(
        self,
        rows: dict[str, int],
        numbers: NDArray[np.float64],
        labels: NDArray[np.uint8],
        questions: NDArray[np.uint8],
    ) -> None:
        self._rows = rows
        self.numbers = numbers
        self.labels = labels
        self.questions = questions

    @classmethod
    def of(cls, examples: Mapping[str, LabeledExample]) -> "Examples":
        """The same examples in columns; `examples` itself if it has columns already."""
        if isinstance(examples, Examples):
            return examples
        values = examples.values()
        # From generators, so that other threads can run in between.
        numbers = (number for example in values for number in all_numbers(example.score))
        labels = (_CODES[example.label] for example in values)
        questions = (
            bytes.fromhex(example.question) if example.question else _NO_QUESTION
            for example in values
        )
        return cls(
            {digest: row for row, digest in enumerate(examples)},
            np.fromiter(numbers, dtype=np.float64).reshape(-1, _COLUMNS),
            np.fromiter(labels, dtype=np.uint8),
            np.frombuffer(b"".join(questions), dtype=np.uint8).reshape(-1, len(_NO_QUESTION)),
        )

    def __getitem__(self, digest: str) -> LabeledExample:
        return self._example(self._rows[digest])

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, digest: object) -> bool:
        return digest in self._rows

    def __repr__(self) -> str:
        return repr(dict(self))

    def preferences_at(self, temperature: float) -> Preferences:
        """The preferences of the judge with gaps divided by a temperature; NaN without a score."""
        gap_fwd, gap_rev = self.numbers[:, 0] / temperature, self.gap_rev / temperature
        if self.scored.all():
            return preference_from_gaps(gap_fwd, gap_rev)
        known = preference_from_gaps(gap_fwd[self.scored], gap_rev[self.scored])
        columns = np.full((4, len(self)), np.nan)
        columns[:, self.scored] = known
        return Preferences(*columns)

    @property
    def small(self) -> "Examples":
        """The same examples with the scores of a cascade's small judge."""
        numbers = np.roll(self.numbers, 3, axis=1)
        return Examples(self._rows, numbers, self.labels, self.questions)

    @property
    def gap_rev(self) -> NDArray[np.float64]:
        """Shape (n,). Gap with response_a shown second; equal to the other without an order."""
        return gaps_in_reverse(self.numbers[:, 0], self.numbers[:, 1])

    @property
    def sees_order(self) -> NDArray[np.bool_]:
        """Shape (n,). True where the judge sees the order of the responses."""
        return ~np.isnan(self.numbers[:, 1]) | ~self.scored

    @property
    def scored(self) -> NDArray[np.bool_]:
        """Shape (n,). False where the judge gave no score."""
        return ~np.isnan(self.numbers[:, 0])

    @property
    def label_mass(self) -> NDArray[np.float64]:
        """Shape (n,). Smaller label mass of the two orders; NaN where it is unknown."""
        mass: NDArray[np.float64] = self.numbers[:, 2]
        return mass

    @property
    def label_a(self) -> NDArray[np.bool_]:
        """Shape (n,). True where people prefer response_a."""
        return self._having("A")

    @property
    def unlabelled(self) -> NDArray[np.bool_]:
        """Shape (n,). True for pairs of a pool that have no label yet."""
        return self._having(None)

    @property
    def tied(self) -> NDArray[np.bool_]:
        """Shape (n,). True for pairs that people found equal."""
        return self._having("tie")

    def _having(self, label: Label | None) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = self.labels == _CODES[label]
        return mask

    def changed(self, put: Mapping[str, LabeledExample], take: Collection[str] = ()) -> "Examples":
        """Returns these examples without some, and with others, which come last."""
        new, gone = Examples.of(put), {*put, *take}
        left = np.array([digest not in gone for digest in self._rows], dtype=bool)
        digests = (*compress(self._rows, left.tolist()), *new)
        return Examples(
            {digest: row for row, digest in enumerate(digests)},
            np.concatenate((self.numbers[left], new.numbers)),
            np.concatenate((self.labels[left], new.labels)),
            np.concatenate((self.questions[left], new.questions)),
        )

    def _example(self, row: int) -> LabeledExample:
        question = self.questions[row].tobytes()
        return LabeledExample(
            score=score_of_numbers(*self.numbers[row].tolist()),
            label=_LABELS[self.labels[row]],
            question=None if question == _NO_QUESTION else question.hex(),
        )


def question_numbers(questions: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Shape (n,). Numbers the questions of pairs from 0, without gaps; one question has one number.

    Args:
        questions: Shape (n, 32). Digest of each pair's question; zeros where it is unknown. Such a
            pair counts as its own question.
    """
    n = len(questions)
    words = np.ascontiguousarray(questions).view(np.uint64).reshape(n, _WORDS)
    known = (words != 0).any(axis=1)
    order = np.lexsort((*words.T[::-1], known))
    sorted_words = words[order]
    # The unknown ones come first, and each of them begins a question.
    begins = ~known[order]
    begins[1:] |= (sorted_words[1:] != sorted_words[:-1]).any(axis=1)
    begins[:1] = True
    numbers = np.empty(n, dtype=np.int64)
    numbers[order] = np.cumsum(begins) - 1
    return numbers


def drawn_pairs(numbers: NDArray[np.int64], lots: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Shape (n,). True for one pair of each question, the one with the smallest lot.

    Args:
        numbers: Shape (n,). Number of each pair's question, from `question_numbers`.
        lots: Shape (n,). Lot of each pair, from `lots_of`.
    """
    order = np.lexsort((lots, numbers))
    is_first = np.ones(len(numbers), dtype=bool)
    is_first[1:] = numbers[order][1:] != numbers[order][:-1]
    drawn = np.zeros(len(numbers), dtype=bool)
    drawn[order[is_first]] = True
    return drawn


def lots_of(digests: Iterable[str]) -> NDArray[np.uint64]:
    """A lot for each pair, a hash of its digest: no label and no score can influence it."""
    return np.fromiter(map(_lot, digests), dtype=np.uint64)


def _lot(digest: str) -> int:
    text = f"one pair a question\0{digest}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
