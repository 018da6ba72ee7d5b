"""The state of all audits: a fold over the log, in columns.

As Python objects, 100,000 draws would take a hundred megabytes, and one pass of the garbage
collector over them would stop every thread.
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar, get_args, overload

import numpy as np

from app.core.comparison import Label
from app.service.auditing.columns import DrawColumns, UseColumns
from app.service.auditing.entries import CriterionKey, DrawEntry, Entry, LabelEntry

T = TypeVar("T")
Status = Literal["open", "labelled", "expired"]
# Code of a label in a column; code 0 means that there is none.
_LABELS: tuple[Label | None, ...] = (None, *get_args(Label))
NO_LABEL, LABEL_A, TIE = (_LABELS.index(each) for each in (None, "A", "tie"))
_MIRRORED: Mapping[Label, Label] = {"A": "B", "B": "A", "tie": "tie"}


class Draw(NamedTuple):
    """One drawn comparison with its label, in the order of its first judgment.

    Args:
        position: Position of its first entry in the log.
        id: Id of its first judgment.
        calibration: Name of the calibration set.
        fingerprint: Fingerprint of the judge.
        digest: Digest of the comparison.
        question: Digest of the question.
        gap_fwd: Logit of response_a minus that of response_b, response_a shown first.
        gap_rev: Logit of response_a minus that of response_b, response_a shown second.
        label_mass: Probability of the two labels together, in the order where it is smaller.
        rate: Probability with which the comparison was drawn.
        first_at: Time of its first judgment, in seconds since 1970.
        last_at: Time at which it was last judged by a new criterion or version.
        label: Its present label.
        labelled_at: Time of its first label.
        labelled_by: Name of the key that sent its present label.
    """

    position: int
    id: str
    calibration: str
    fingerprint: str
    digest: str
    question: str
    gap_fwd: float
    gap_rev: float
    label_mass: float
    rate: float
    first_at: float
    last_at: float
    label: Label | None
    labelled_at: float | None
    labelled_by: str | None

    def status(self, *, now: float, expires_s: float) -> Status:
        """Returns "labelled", or "expired" if its last use is older than `expires_s`."""
        if self.label is not None:
            return "labelled"
        return "open" if now <= self.last_at + expires_s else "expired"


class Use(NamedTuple):
    """One criterion and version that decided a drawn comparison.

    Args:
        position: Position of the first entry with this criterion and version.
        draw: The comparison.
        accepted: Whether the judgment has a verdict.
        at: Time of the judgment, in seconds since 1970.
        label_noise: Label noise of the set's version.
    """

    position: int
    draw: Draw
    accepted: bool
    at: float
    label_noise: float


class Ledger:
    """All draws and labels up to a position of the log.

    Mutated only on the event loop, and it only grows, so that other threads may read it.
    """

    def __init__(self) -> None:
        self.position = 0
        self._rows: dict[bytes, int] = {}
        self._digests = bytearray()
        # Columns of `_NUMBERS`, row by row.
        self._numbers = array("d")
        self._positions = array("q")
        self._labels = bytearray()
        self._set_of_row = array("L")
        self._labeller_of_row = array("L")
        self._judge_of_row = array("L")
        self._names = _Names()
        # Rows by the index of the set's name, and uses by set and write id.
        self._rows_of_set: dict[int, array[int]] = {}
        self._uses: dict[tuple[str, str], dict[CriterionKey, Uses]] = {}
        # Number of applied entries by the name of the set.
        self._changes = Counter[str]()

    def __len__(self) -> int:
        return len(self._rows)

    def apply(self, position: int, entry: Entry | None) -> None:
        """Applies the next entry; an entry of an earlier position changes nothing.

        Repeated uses and labels of unknown draws are ignored.

        Args:
            position: Position of the entry in the log.
            entry: The entry; None for one that this release cannot parse.
        """
        if position <= self.position:
            return
        self.position = position
        if isinstance(entry, DrawEntry):
            self._apply_draw(position, entry)
        elif isinstance(entry, LabelEntry):
            self._apply_label(entry)

    def draw(self, identifier: str) -> Draw | None:
        """Returns a draw by its id in either order; None if there is none."""
        row = self._row(identifier)
        return None if row is None else self.at_row(row)

    def label(self, identifier: str) -> Label | None:
        """Returns the label of a draw in the order of the id; None without draw or label."""
        row = self._row(identifier)
        label = None if row is None else _LABELS[self._labels[row]]
        if row is None or label is None:
            return None
        return _MIRRORED[label] if self._is_mirrored(row, identifier) else label

    def knows_use(self, entry: DrawEntry) -> bool:
        """Whether the draw of an entry has this use already."""
        row = self._row(entry.id)
        found = self._uses.get((entry.calibration, entry.write_id), {}).get(entry.criterion)
        return row is not None and found is not None and found.has(row)

    def uses(self, calibration: str, write_id: str) -> "Mapping[CriterionKey, Uses]":
        """Returns the uses by one version of a set, for each criterion in the order of the log."""
        return self._uses.get((calibration, write_id), {})

    def changes(self, calibration: str) -> int:
        """Returns a number that grows whenever the draws or the labels of a set change."""
        return self._changes[calibration]

    def columns(self) -> DrawColumns:
        """Returns the draws of all sets in columns; safe in any thread."""
        # Labels first: their time was written before them. `bytes` and `tobytes` copy in one step.
        label = np.frombuffer(bytes(self._labels), dtype=np.uint8)
        numbers = np.frombuffer(self._numbers.tobytes()).reshape(-1, len(_NUMBERS))[: len(label)]
        labelled_at, gap_fwd, gap_rev = (
            numbers[:, _NUMBERS.index(name)] for name in ("labelled_at", "gap_fwd", "gap_rev")
        )
        return DrawColumns(label, labelled_at, gap_fwd, gap_rev)

    def draws(self, calibration: str | None = None, *, after: int = 0) -> Iterator[Draw]:
        """Yields the draws of a set, or of all sets, in the order of their first entries.

        Args:
            calibration: Name of the set; None for all sets.
            after: Position of the last draw that is not wanted.
        """
        yield from map(self.at_row, self.rows(calibration, after=after))

    def rows(self, calibration: str | None = None, *, after: int = 0) -> Iterator[int]:
        """Yields the rows of draws, which `at_row` and `status_of_row` take; see `draws`."""
        rows: Sequence[int] = range(len(self._labels))
        if calibration is not None:
            rows = self._rows_of_set.get(self._names.index(calibration), array("L"))
        first = _first_after(rows, self._positions, after)
        yield from (rows[i] for i in range(first, len(rows)))

    def status_of_row(self, row: int, *, now: float, expires_s: float) -> Status:
        """Returns the same as `Draw.status`, faster."""
        if self._labels[row]:
            return "labelled"
        return "open" if now <= self._number(row, "last_at") + expires_s else "expired"

    def set_of_row(self, row: int) -> str:
        """Returns the name of a row's calibration set."""
        return self._names[self._set_of_row[row]]

    def at_row(self, row: int) -> Draw:
        """Returns the draw of a row."""
        label = _LABELS[self._labels[row]]
        numbers = self._numbers[len(_NUMBERS) * row : len(_NUMBERS) * (row + 1)]
        gap_fwd, gap_rev, label_mass, rate, first_at, last_at, labelled_at = numbers
        digests = self._digests[_WIDTH * row : _WIDTH * (row + 1)].hex()
        return Draw(
            position=self._positions[row],
            id=digests[:32],
            calibration=self._names[self._set_of_row[row]],
            fingerprint=self._names[self._judge_of_row[row]],
            digest=digests[32:96],
            question=digests[96:],
            gap_fwd=gap_fwd,
            gap_rev=gap_rev,
            label_mass=label_mass,
            rate=rate,
            first_at=first_at,
            last_at=last_at,
            label=label,
            labelled_at=None if label is None else labelled_at,
            labelled_by=None if label is None else self._names[self._labeller_of_row[row]],
        )

    def _row(self, identifier: str) -> int | None:
        try:
            return self._rows.get(_in_first_order(bytes.fromhex(identifier)))
        except ValueError:
            return None

    def _apply_draw(self, position: int, entry: DrawEntry) -> None:
        row = self._row(entry.id)
        if row is None:
            row = self._add(position, entry)
        version = self._uses.setdefault((entry.calibration, entry.write_id), {})
        if version.setdefault(entry.criterion, Uses(self)).add(position, row, entry):
            self._changes[entry.calibration] += 1
            place = len(_NUMBERS) * row + _NUMBERS.index("last_at")
            self._numbers[place] = max(self._numbers[place], entry.at)

    def _add(self, position: int, entry: DrawEntry) -> int:
        """Adds the row of a new draw."""
        row = len(self._labels)
        name = self._names.add(entry.calibration)
        self._digests.extend(bytes.fromhex(entry.id + entry.digest + entry.question))
        # In one step: a reader in another thread must not find a part of a row.
        self._numbers.extend(
            (entry.gap_fwd, entry.gap_rev, entry.label_mass, entry.rate, entry.at, entry.at, 0.0)
        )
        self._positions.append(position)
        self._set_of_row.append(name)
        self._labeller_of_row.append(name)
        self._judge_of_row.append(self._names.add(entry.fingerprint))
        # After the others, because a reader takes the length of this column for the number of rows.
        self._labels.append(0)
        # Later still: a reader of one set takes its rows from here.
        self._rows_of_set.setdefault(name, array("L")).append(row)
        self._rows[_in_first_order(bytes.fromhex(entry.id))] = row
        return row

    def _apply_label(self, entry: LabelEntry) -> None:
        row = self._row(entry.id)
        if row is None:
            return
        if not self._labels[row]:
            self._numbers[len(_NUMBERS) * row + _NUMBERS.index("labelled_at")] = entry.at
        self._labeller_of_row[row] = self._names.add(entry.by)
        label = _MIRRORED[entry.label] if self._is_mirrored(row, entry.id) else entry.label
        self._labels[row] = _LABELS.index(label)
        self._changes[self._names[self._set_of_row[row]]] += 1

    def _is_mirrored(self, row: int, identifier: str) -> bool:
        """Whether an id of a draw has another order than its first judgment."""
        return bool((self._digests[_WIDTH * row + 15] ^ bytes.fromhex(identifier)[-1]) & 1)

    def _number(self, row: int, column: str) -> float:
        return self._numbers[len(_NUMBERS) * row + _NUMBERS.index(column)]


# Columns with one number for each row.
_NUMBERS = ("gap_fwd", "gap_rev", "label_mass", "rate", "first_at", "last_at", "labelled_at")
# Bytes of id, digest and question of a row.
_WIDTH = 16 + 32 + 32


class Uses(Sequence[Use]):
    """The uses of one criterion under one version of a set, in the order of the log."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: set[int] = set()
        self._rows = array("L")
        self._positions = array("q")
        self._accepted = bytearray()
        # Time and label noise, use by use.
        self._numbers = array("d")

    def has(self, row: int) -> bool:
        """Whether the draw of a row is among the uses."""
        return row in self._known

    def add(self, position: int, row: int, entry: DrawEntry) -> bool:
        """Adds a use; returns False if the draw is among the uses already."""
        if row in self._known:
            return False
        self._known.add(row)
        self._positions.append(position)
        self._accepted.append(entry.accepted)
        self._numbers.extend((entry.at, entry.label_noise))
        # Last, because a reader takes the length of this column for the number of uses.
        self._rows.append(row)
        return True

    def columns(self) -> UseColumns:
        """Returns the uses in columns; safe in any thread."""
        # Rows first, because they are appended last. `bytes` and `tobytes` copy in one step.
        rows = np.frombuffer(self._rows.tobytes(), dtype=np.uint64).astype(np.int64)
        accepted = np.frombuffer(bytes(self._accepted), dtype=np.bool_)[: len(rows)]
        numbers = np.frombuffer(self._numbers.tobytes()).reshape(-1, 2)[: len(rows)]
        return UseColumns(rows, accepted, numbers[:, 0], numbers[:, 1])

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Use: ...

    @overload
    def __getitem__(self, index: slice) -> list[Use]: ...

    def __getitem__(self, index: int | slice) -> Use | list[Use]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        draw = self._ledger.at_row(self._rows[i])
        at, label_noise = self._numbers[2 * i], self._numbers[2 * i + 1]
        return Use(self._positions[i], draw, bool(self._accepted[i]), at, label_noise)


def _in_first_order(identifier: bytes) -> bytes:
    """Returns an id without the bit of its order; an empty id stays empty."""
    return identifier[:-1] + bytes([identifier[-1] & 0xFE]) if identifier else identifier


class _Names:
    """Texts by an index, so that a column can hold them."""

    def __init__(self) -> None:
        self._indices: dict[str, int] = {}
        self._texts: list[str] = []

    def __getitem__(self, index: int) -> str:
        return self._texts[index]

    def index(self, text: str) -> int:
        """Returns the index of a text; -1 for an unknown one."""
        return self._indices.get(text, -1)

    def add(self, text: str) -> int:
        """Returns the index of a text, and adds an unknown one."""
        index = self._indices.get(text)
        if index is None:
            self._texts.append(text)
            index = self._indices[text] = len(self._texts) - 1
        return index


def _first_after(rows: Sequence[int], positions: Sequence[int], after: int) -> int:
    """Returns the index of the first row whose position is above `after`."""
    low, high = 0, len(rows)
    while low < high:
        middle = (low + high) // 2
        if positions[rows[middle]] <= after:
            low = middle + 1
        else:
            high = middle
    return low
