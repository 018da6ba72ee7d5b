"""Labeled examples in columns.

As Python objects, 300,000 examples take a hundred megabytes. Freeing them, or one pass of the
garbage collector over them, stops every thread for a tenth of a second.
"""

from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import compress, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core.comparison import Label
from app.core.preference import Preferences, gaps_in_reverse, preference_from_gaps
from app.core.score import NoScore, Score, all_numbers, score_of_numbers

# Number of rows that become Python objects in one step; other threads can run between two steps.
_SLICE = 1024
_LABELS: tuple[Label | None, ...] = ("B", "A", None, "tie")
# Label -> its code, the index.
_CODES = {label: code for code, label in enumerate(_LABELS)}
_UNLABELED, _TIE = _CODES[None], _CODES["tie"]
_QUESTION_BYTES = 32
_COLUMNS = 6
_NO_QUESTION = bytes(_QUESTION_BYTES)


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
    """

    score: Score | NoScore
    label: Label | None
    question: str | None = None

    @property
    def fields(self) -> tuple[Any, ...]:
        """The fields as stores keep them; the last is left out where it is unknown.

        A cascade's example ends with the numbers of the small judge's score.
        """
        small, numbers = self.score.small, _triple(self.score)
        if small is not None:
            return (*numbers, self.label, self.question, _triple(small))
        last = () if self.question is None else (self.question,)
        return (*numbers, self.label, *last)


def _triple(score: Score | NoScore) -> tuple[float | None, ...]:
    if isinstance(score, NoScore):
        return None, None, None
    return score.gap_fwd, score.gap_rev, score.label_mass


class Examples(Mapping[str, LabeledExample]):
    """An immutable mapping: digest of a comparison -> labeled example.

    Args:
        rows: Digest -> index of its row, in the order of the rows.
        numbers: Shape (n, 6). Columns `gap_fwd`, `gap_rev` and `label_mass`, and the same of a
            cascade's small judge; see `score.all_numbers`.
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
        """Returns the same examples in columns; `examples` itself if it has columns already."""
        if isinstance(examples, Examples):
            return examples
        draft = Draft()
        for digest, example in examples.items():
            draft.set(digest, example)
        return draft.done()

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

    def at(self, chosen: NDArray[np.bool_]) -> "Examples":
        """Returns the examples of a mask of shape (n,), in the same order."""
        digests = compress(self._rows, chosen.tolist())
        return Examples(
            {digest: row for row, digest in enumerate(digests)},
            self.numbers[chosen],
            self.labels[chosen],
            self.questions[chosen],
        )

    def preferences_at(self, temperature: float) -> Preferences:
        """Returns the preferences of the judge, of whose gaps each is divided by a temperature.

        They are NaN where the judge gave no score.
        """
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
        """Shape (n,). Probability of the two labels, in the order where it is smaller.

        NaN where the judge does not say it.
        """
        mass: NDArray[np.float64] = self.numbers[:, 2]
        return mass

    @property
    def label_a(self) -> NDArray[np.bool_]:
        """Shape (n,). True where people prefer response_a."""
        return self._having(_CODES["A"])

    @property
    def unlabelled(self) -> NDArray[np.bool_]:
        """Shape (n,). True for pairs of a pool that have no label yet."""
        return self._having(_UNLABELED)

    @property
    def tied(self) -> NDArray[np.bool_]:
        """Shape (n,). True for pairs that people found equal."""
        return self._having(_TIE)

    def _having(self, code: int) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = self.labels == code
        return mask

    def pairs(self) -> Iterator[tuple[str, LabeledExample]]:
        """Yields the same as `items`, several times faster, and in short steps."""
        digests = iter(self._rows)
        for start in range(0, len(self), _SLICE):
            # By columns, because the garbage collector would track a list for each row.
            columns = self.numbers[start : start + _SLICE].T.tolist()
            codes = self.labels[start : start + _SLICE].tolist()
            questions = _question_texts(self.questions[start : start + _SLICE])
            for digest, *numbers, code, question in zip(
                islice(digests, _SLICE), *columns, codes, questions, strict=True
            ):
                yield (
                    digest,
                    LabeledExample(
                        score=score_of_numbers(*numbers),
                        label=_LABELS[code],
                        question=question,
                    ),
                )

    def changed(self, put: Mapping[str, LabeledExample], take: Collection[str] = ()) -> "Examples":
        """Returns these examples after adding some and then removing some.

        Args:
            put: Examples to put in; a known digest is replaced.
            take: Digests to remove afterwards.

        Raises:
            KeyError: A digest of `take` is unknown.
        """
        draft = Draft(self)
        draft.put(Examples.of(put))
        for digest in take:
            draft.take(digest)
        return draft.done()

    def since(self, before: "Examples") -> tuple["Examples", tuple[str, ...]]:
        """Returns the difference to `before`: examples to add, and digests to remove."""
        if before is self or not before:
            return (self if not before else EMPTY), ()
        # The digests of a dict are in the order of its rows.
        places = (before._rows.get(digest, -1) for digest in self._rows)
        place = np.fromiter(places, dtype=np.int64, count=len(self))
        was, now = before.numbers[place], self.numbers
        # A number that is missing in both is the same.
        differs = ((was != now) & ~(np.isnan(was) & np.isnan(now))).any(axis=1)
        differs |= (before.labels[place] != self.labels) | (place < 0)
        differs |= (before.questions[place] != self.questions).any(axis=1)
        draft = Draft()
        for digest in compress(self._rows, differs):
            draft.set(digest, self[digest])
        return draft.done(), tuple(digest for digest in before._rows if digest not in self._rows)

    def _example(self, row: int) -> LabeledExample:
        (question,) = _question_texts(self.questions[row : row + 1])
        return LabeledExample(
            score=score_of_numbers(*self.numbers[row].tolist()),
            label=_LABELS[int(self.labels[row])],
            question=question,
        )


class Draft:
    """A mutable builder of `Examples`.

    Args:
        base: Examples to begin with; None for no examples.
    """

    def __init__(self, base: Examples | None = None) -> None:
        self._begin(base if base is not None else EMPTY)

    def put(self, examples: Examples) -> None:
        """Puts examples in; known digests are replaced."""
        if not self._rows:
            self._begin(examples)
            return
        for digest, example in examples.pairs():
            self.set(digest, example)

    def set(self, digest: str, example: LabeledExample) -> None:
        """Puts one example in; a known digest is replaced."""
        row = self._rows.get(digest)
        code, numbers = _CODES[example.label], all_numbers(example.score)
        question = _NO_QUESTION if example.question is None else bytes.fromhex(example.question)
        if row is None:
            self._rows[digest] = len(self._labels)
            self._numbers.extend(numbers)
            self._labels.append(code)
            self._questions += question
        else:
            self._numbers[_COLUMNS * row : _COLUMNS * (row + 1)] = array("d", numbers)
            self._labels[row] = code
            self._questions[_bytes_of(row)] = question

    def take(self, digest: str) -> None:
        """Takes one example out; raises KeyError for an unknown digest."""
        del self._rows[digest]

    def done(self) -> Examples:
        """Returns the examples; the draft must not be used afterwards."""
        numbers = np.frombuffer(self._numbers, dtype=np.float64).reshape(-1, _COLUMNS)
        labels = np.frombuffer(self._labels, dtype=np.uint8)
        questions = np.frombuffer(self._questions, dtype=np.uint8).reshape(-1, _QUESTION_BYTES)
        rows = self._rows
        if len(rows) < len(labels):
            left = np.fromiter(rows.values(), dtype=np.int64, count=len(rows))
            numbers, labels, questions = numbers[left], labels[left], questions[left]
            rows = {digest: row for row, digest in enumerate(rows)}
        return Examples(rows, numbers, labels, questions)

    def _begin(self, base: Examples) -> None:
        self._rows = dict(base._rows)
        self._numbers = array("d", base.numbers.tobytes())
        self._labels = bytearray(base.labels.tobytes())
        self._questions = bytearray(base.questions.tobytes())


def _bytes_of(row: int) -> slice:
    return slice(_QUESTION_BYTES * row, _QUESTION_BYTES * (row + 1))


def _question_texts(questions: NDArray[np.uint8]) -> list[str | None]:
    """The digests of questions as text; None where the question is unknown."""
    known: list[bool] = (questions != 0).any(axis=1).tolist()
    if not any(known):
        return [None] * len(known)
    text, size = questions.tobytes().hex(), 2 * _QUESTION_BYTES
    return [
        text[size * row : size * (row + 1)] if is_known else None
        for row, is_known in enumerate(known)
    ]


EMPTY = Examples(
    {},
    np.empty((0, _COLUMNS)),
    np.empty(0, dtype=np.uint8),
    np.empty((0, _QUESTION_BYTES), dtype=np.uint8),
)
