"""Entries of a log of audits for tests."""

import hashlib
from typing import Any

from app.core.comparison import Label
from app.service.auditing.entries import CriterionKey, DrawEntry, Entry, LabelEntry
from app.service.auditing.ledger import Ledger

MARGINAL = CriterionKey(0.1, "marginal", None)
PAC = CriterionKey(0.1, "pac", 0.1)


def draw_id(number: int, *, mirrored: bool = False) -> str:
    """Returns the id of the comparison with this number, in one of its orders."""
    return f"{number:030x}0{int(mirrored)}"


def drawn(number: int, **changes: Any) -> DrawEntry:
    """Returns a draw of the comparison with this number, made at this time in seconds."""
    entry = DrawEntry(
        id=draw_id(number),
        calibration="default",
        fingerprint="f" * 64,
        digest=hashlib.sha256(f"pair {number}".encode()).hexdigest(),
        question=hashlib.sha256(f"question {number}".encode()).hexdigest(),
        gap_fwd=1.5,
        gap_rev=-0.25,
        label_mass=0.75,
        write_id="w1",
        version=1,
        criterion=MARGINAL,
        label_noise=0.0,
        accepted=True,
        rate=0.5,
        at=float(number),
    )
    return entry._replace(**changes)


def labelled(
    number: int, label: Label, *, at: float = 100.0, by: str = "ana", mirrored: bool = False
) -> LabelEntry:
    """Returns a label for the comparison with this number, in one of its orders."""
    return LabelEntry(draw_id(number, mirrored=mirrored), label, by, at)


def folded(*entries: Entry | None) -> Ledger:
    """Returns the ledger after these entries at the positions 1, 2, 3, ..."""
    ledger = Ledger()
    for position, entry in enumerate(entries, 1):
        ledger.apply(position, entry)
    return ledger
