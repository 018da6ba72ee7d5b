"""Labelled scores in columns, with a checksum that each change brings up to date.

A set of 300,000 scores as Python objects takes a hundred megabytes, and freeing them, or a pass of
the garbage collector over them, stops every thread for a tenth of a second.
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
# Rows that become Python objects in one step; other threads have their turn between two.
_SLICE = 1024
_SIDES: tuple[Side, Side] = ("B", "A")


class LabelledScore(NamedTuple):
    """One calibration point, as it is stored: no text, only what was measured.

    Args:
        gap_fwd: Logit of response_a less that of response_b, response_a shown first.
        gap_rev: The same with response_a shown second.
        label_mass: Smaller of the two orders' probability on the two labels.
        label: The side that people prefer.
    """

    gap_fwd: float
    gap_rev: float
    label_mass: float
    label: Side


class Examples(Mapping[str, LabelledScore]):
    """Digest of a comparison -> labelled score; it never changes.

    Args:
        rows: Digest -> row of the columns, in the order of the rows, which count from 0.
        numbers: Shape (n, 3). Columns `gap_fwd`, `gap_rev` and `label_mass`.
        label_a: Shape (n,). True where people prefer response_a.
        checksum: The sum modulo 2^256 of the SHA-256 of every example, read as a big-endian
            number. Hashed are the digest in UTF-8, a zero byte, the three numbers as little-endian
            doubles, -0.0 as 0.0, and the letter of the label. It does not depend on the order.
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
        """The same scores in columns; `scores` itself if they are."""
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
        """As `items`, several times faster, and without a long step."""
        digests = iter(self._rows)
        for start in range(0, len(self), _SLICE):
            # Columns, because the garbage collector would follow a list for each row.
            columns = self.numbers[start : start + _SLICE].T.tolist()
            sides = self.label_a[start : start + _SLICE].tolist()
            for digest, gap_fwd, gap_rev, label_mass, side in zip(
                islice(digests, _SLICE), *columns, sides, strict=True
            ):
                yield digest, LabelledScore(gap_fwd, gap_rev, label_mass, _SIDES[side])

    def changed(self, put: Mapping[str, LabelledScore], take: Collection[str] = ()) -> "Examples":
        """These with some put in, and then some taken out; all of `take` must be there."""
        draft = Draft(self)
        draft.put(Examples.of(put))
        for digest in take:
            draft.take(digest)
        return draft.done()

    def since(self, before: "Examples") -> tuple["Examples", tuple[str, ...]]:
        """The way here from `before`: examples to put in, and digests of those to take out."""
        if before is self or not before:
            return (self if not before else EMPTY), ()
        # The order of a dict is that of its rows.
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
    """Examples under change.

    Args:
        base: To begin with; none if left out.
    """

    def __init__(self, base: Examples | None = None) -> None:
        self._begin(base if base is not None else EMPTY)

    def put(self, scores: Examples) -> None:
        """Puts scores in, in the place of those that have the same digest."""
        if not self._rows:
            self._begin(scores)
            return
        for digest, score in scores.pairs():
            self.set(digest, score)

    def set(self, digest: str, score: LabelledScore) -> None:
        """Puts one in, in the place of one that has the same digest."""
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
        """Takes one out; raises KeyError if it is not there."""
        row = self._rows.pop(digest)
        self._checksum -= self._hash(digest, row)

    def clear(self) -> None:
        """Takes all out."""
        self._begin(EMPTY)

    def done(self) -> Examples:
        """The examples as they are now; the draft is not to be used any more."""
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
    # Adding 0.0 makes 0.0 of -0.0: the two are equal, so that a store may have either.
    packed = _PACKED.pack(gap_fwd + 0.0, gap_rev + 0.0, label_mass + 0.0, label.encode())
    hashed = hashlib.sha256(digest.encode("utf-8", "surrogatepass") + b"\0" + packed)
    return int.from_bytes(hashed.digest(), "big")


EMPTY = Examples({}, np.empty((0, 3)), np.empty(0, dtype=np.bool_), 0)
