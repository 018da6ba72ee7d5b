"""Labelled scores in columns, with a checksum that is updated incrementally.

As Python objects, 300,000 scores take a hundred megabytes. Freeing them, or one pass of the garbage
collector over them, stops every thread for a tenth of a second.
"""

import hashlib
import struct
from array import array
from collections.abc import Collection, Iterator, Mapping
from itertools import compress, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core.comparison import Side

_MODULUS = 2**256
_PACKED = struct.Struct("<3dc")
# Number of rows that become Python objects in one step; other threads can run between two steps.
_SLICE = 1024
_SIDES: tuple[Side, Side] = ("B", "A")


class LabelledScore(NamedTuple):
    """One calibration point; it holds measurements and no text.

    Args:
        gap_fwd: Logit of response_a minus that of response_b, response_a shown first.
        gap_rev: Logit of response_a minus that of response_b, response_a shown second.
        label_mass: Probability of the two labels together, in the order where it is smaller.
        label: The side that people prefer.
    """

    gap_fwd: float
    gap_rev: float
    label_mass: float
    label: Side


class Examples(Mapping[str, LabelledScore]):
    """An immutable mapping: digest of a comparison -> labelled score.

    Args:
        rows: Digest -> index of its row, in the order of the rows.
        numbers: Shape (n, 3). Columns `gap_fwd`, `gap_rev` and `label_mass`.
        label_a: Shape (n,). True where people prefer response_a.
        checksum: Sum modulo 2^256 of the SHA-256 of every example, read as a big-endian number. The
            hash covers the digest in UTF-8, a zero byte, the three numbers as little-endian doubles
            with -0.0 written as 0.0, and the letter of the label. The order of the examples does
            not matter.
    """

    __slots__ = ("_rows", "checksum", "label_a", "numbers")

    def __init__(
        self,
        rows: dict[str, int],
        numbers: NDArray[np.float64],
        label_a: NDArray[np.bool_],
        checksum: int,
    ) -> None:
        self._rows = rows
        self.numbers = numbers
        self.label_a = label_a
        self.checksum = checksum

    @classmethod
    def of(cls, scores: Mapping[str, LabelledScore]) -> "Examples":
        """Returns the same scores in columns; `scores` itself if it has columns already."""
        if isinstance(scores, Examples):
            return scores
        draft = Draft()
        for digest, score in scores.items():
            draft.set(digest, score)
        return draft.done()

    def __getitem__(self, digest: str) -> LabelledScore:
        return self._score(self._rows[digest])

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, digest: object) -> bool:
        return digest in self._rows

    def __repr__(self) -> str:
        return repr(dict(self))

    def pairs(self) -> Iterator[tuple[str, LabelledScore]]:
        """Yields the same as `items`, several times faster, and in short steps."""
        digests = iter(self._rows)
        for start in range(0, len(self), _SLICE):
            # By columns, because the garbage collector would track a list for each row.
            columns = self.numbers[start : start + _SLICE].T.tolist()
            sides = self.label_a[start : start + _SLICE].tolist()
            for digest, gap_fwd, gap_rev, label_mass, side in zip(
                islice(digests, _SLICE), *columns, sides, strict=True
            ):
                yield digest, LabelledScore(gap_fwd, gap_rev, label_mass, _SIDES[side])

    def changed(self, put: Mapping[str, LabelledScore], take: Collection[str] = ()) -> "Examples":
        """Returns these examples with some put in, and then some taken out.

        Args:
            put: Examples to put in; a known digest is replaced.
            take: Digests to take out afterwards.

        Raises:
            KeyError: A digest of `take` is unknown.
        """
        draft = Draft(self)
        draft.put(Examples.of(put))
        for digest in take:
            draft.take(digest)
        return draft.done()

    def since(self, before: "Examples") -> tuple["Examples", tuple[str, ...]]:
        """Returns the difference to `before`: examples to put in, and digests to take out."""
        if before is self or not before:
            return (self if not before else EMPTY), ()
        # The digests of a dict are in the order of its rows.
        places = (before._rows.get(digest, -1) for digest in self._rows)
        place = np.fromiter(places, dtype=np.int64, count=len(self))
        differs = (before.numbers[place] != self.numbers).any(axis=1)
        differs |= (before.label_a[place] != self.label_a) | (place < 0)
        draft = Draft()
        for digest in compress(self._rows, differs):
            draft.set(digest, self[digest])
        return draft.done(), tuple(digest for digest in before._rows if digest not in self._rows)

    def _score(self, row: int) -> LabelledScore:
        gap_fwd, gap_rev, label_mass = self.numbers[row].tolist()
        return LabelledScore(gap_fwd, gap_rev, label_mass, _SIDES[int(self.label_a[row])])


class Draft:
    """A mutable builder of `Examples`.

    Args:
        base: Examples to begin with; None for no examples.
    """

    def __init__(self, base: Examples | None = None) -> None:
        self._begin(base if base is not None else EMPTY)

    def put(self, scores: Examples) -> None:
        """Puts scores in; known digests are replaced."""
        if not self._rows:
            self._begin(scores)
            return
        for digest, score in scores.pairs():
            self.set(digest, score)

    def set(self, digest: str, score: LabelledScore) -> None:
        """Puts one score in; a known digest is replaced."""
        row = self._rows.get(digest)
        if row is None:
            self._rows[digest] = len(self._labels)
            self._numbers.extend(score[:3])
            self._labels.append(score.label == "A")
        else:
            self._checksum -= self._hash(digest, row)
            self._numbers[3 * row : 3 * row + 3] = array("d", score[:3])
            self._labels[row] = score.label == "A"
        self._checksum += _hash(digest, *score)

    def take(self, digest: str) -> None:
        """Takes one score out; raises KeyError for an unknown digest."""
        row = self._rows.pop(digest)
        self._checksum -= self._hash(digest, row)

    def clear(self) -> None:
        """Takes all scores out."""
        self._begin(EMPTY)

    def done(self) -> Examples:
        """Returns the examples; the draft must not be used afterwards."""
        numbers = np.frombuffer(self._numbers, dtype=np.float64).reshape(-1, 3)
        label_a = np.frombuffer(self._labels, dtype=np.bool_)
        rows = self._rows
        if len(rows) < len(label_a):
            left = np.fromiter(rows.values(), dtype=np.int64, count=len(rows))
            numbers, label_a = numbers[left], label_a[left]
            rows = {digest: row for row, digest in enumerate(rows)}
        return Examples(rows, numbers, label_a, self._checksum % _MODULUS)

    def _begin(self, base: Examples) -> None:
        self._rows = dict(base._rows)
        self._numbers = array("d", base.numbers.tobytes())
        self._labels = bytearray(base.label_a.tobytes())
        self._checksum = base.checksum

    def _hash(self, digest: str, row: int) -> int:
        gap_fwd, gap_rev, label_mass = self._numbers[3 * row : 3 * row + 3]
        return _hash(digest, gap_fwd, gap_rev, label_mass, _SIDES[self._labels[row]])


def _hash(digest: str, gap_fwd: float, gap_rev: float, label_mass: float, label: Side) -> int:
    # Adding 0.0 turns -0.0 into 0.0. The two are equal, so a store may return either.
    packed = _PACKED.pack(gap_fwd + 0.0, gap_rev + 0.0, label_mass + 0.0, label.encode())
    hashed = hashlib.sha256(digest.encode("utf-8", "surrogatepass") + b"\0" + packed)
    return int.from_bytes(hashed.digest(), "big")


EMPTY = Examples({}, np.empty((0, 3)), np.empty(0, dtype=np.bool_), 0)
