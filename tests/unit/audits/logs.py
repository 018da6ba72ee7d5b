"""Entries of a log of audits for tests."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from app.audits.book import Book
from app.audits.entries import (
    Audit,
    AuditLabel,
    LabelEntry,
    Row,
    Use,
    key_of_row,
    pair_of,
    read_row,
    to_text,
)
from app.core.comparison import Criterion
from app.core.preference import Score
from app.ports import AuditState, AuditStore, RowsChange, StoredRow

MARGINAL = Criterion(alpha=0.1, guarantee="marginal", delta=None, calibration="default")
PAC = Criterion(alpha=0.1, guarantee="pac", delta=0.1, calibration="default")
EXPIRES_S = 1000.0

# An audit with one use is a draw.
Entry = Audit | LabelEntry


def draw_id(number: int, *, mirrored: bool = False) -> str:
    """Returns the id of the comparison with this number, in one of its orders."""
    return f"{number:030x}0{int(mirrored)}"


def drawn(
    number: int,
    *,
    criterion: Criterion = MARGINAL,
    calibration: str = "default",
    write_id: str = "w1",
    version: int = 1,
    gap_fwd: float = 1.5,
    gap_rev: float = -0.25,
    accepted: bool = True,
    by: str = "kim",
    at: float | None = None,
    **changes: Any,
) -> Audit:
    """Returns a draw of the comparison with this number, made at this time in seconds."""
    use = Use(
        position=1,
        criterion=replace(criterion, calibration=calibration),
        write_id=write_id,
        version=version,
        accepted=accepted,
        by=by,
        at=float(number) if at is None else at,
    )
    audit = Audit(
        id=draw_id(number),
        fingerprint="f" * 64,
        digest=hashlib.sha256(f"pair {number}".encode()).hexdigest(),
        question=hashlib.sha256(f"question {number}".encode()).hexdigest(),
        score=Score(gap_fwd=gap_fwd, gap_rev=gap_rev, label_mass=0.75),
        rate=0.5,
        wait_s=EXPIRES_S,
        uses=(use,),
    )
    return replace(audit, **changes)


def labelled(
    number: int, label: AuditLabel, *, at: float = 100.0, by: str = "ana", mirrored: bool = False
) -> LabelEntry:
    """Returns a label for the comparison with this number, in one of its orders."""
    return LabelEntry(
        id=draw_id(number, mirrored=mirrored),
        label=label,
        by=by,
        at=at,
        reason="no text" if label == "none" else None,
    )


def folded(*entries: Entry, calibration: str = "default") -> Book:
    """Returns the audits after these entries at the positions 1, 2, 3, ..."""
    book = Book(name=calibration)
    for entry in entries:
        apply(book, entry)
    return book


def apply(book: Book, entry: Entry) -> StoredRow | None:
    """Applies the next entry; returns its row, None if it changes nothing."""
    position = book.position + 1
    row = _row_of(book, entry, position)
    if row is None:
        return None
    book.apply(key_of_row(row), position, row)
    book.position = position
    return StoredRow(key_of_row(row), position, to_text(row))


def _row_of(book: Book, entry: Entry, position: int) -> Row | None:
    if isinstance(entry, LabelEntry):
        labelled = book.audits.get(pair_of(entry.id))
        return None if labelled is None else labelled.labelled(entry)
    audit = book.audits.get(entry.key)
    use = replace(entry.uses[0], position=position)
    if audit is None:
        return replace(entry, uses=(use,))
    return None if audit.has_use(use.criterion, use.write_id) else audit.used(use)


async def append(store: AuditStore, *entries: Entry) -> None:
    """Writes entries as another replica would; labels are those of the set "default"."""
    by_set = dict[str, list[Entry]]()
    for entry in entries:
        name = entry.calibration if isinstance(entry, Audit) else "default"
        by_set.setdefault(name, []).append(entry)
    for name, of_set in by_set.items():
        await _append(store, name, of_set)


async def _append(store: AuditStore, calibration: str, entries: Sequence[Entry]) -> None:
    book = Book(name=calibration)
    for stored in await store.audits(calibration, after=0, limit=10**6):
        book.apply(stored.key, stored.position, read_row(stored))
    state = (await store.audit_states()).get(calibration, AuditState(0, 0))
    book.position = state.position
    expected = dict(book.places)
    rows = {row.key: row for entry in entries if (row := apply(book, entry)) is not None}
    in_order = sorted(rows.values(), key=lambda row: row.position)
    change = RowsChange(rows=in_order, expected=expected)
    assert await store.write_audits(calibration, change) is not None
