"""Entries of a log of audits for tests."""

import hashlib
from dataclasses import replace
from typing import Any

from app.audits.entries import (
    AuditLabel,
    Decider,
    Draw,
    Entry,
    LabelEntry,
)
from app.audits.ledger import Audit, Ledger
from app.core.comparison import Criterion
from app.core.score import Score

MARGINAL = Criterion(alpha=0.1, guarantee="marginal", delta=None, calibration="default")
PAC = Criterion(alpha=0.1, guarantee="pac", delta=0.1, calibration="default")
EXPIRES_S = 1000.0


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
    **changes: Any,
) -> Draw:
    """Returns a draw of the comparison with this number, made at this time in seconds."""
    draw = Draw(
        id=draw_id(number),
        fingerprint="f" * 64,
        digest=hashlib.sha256(f"pair {number}".encode()).hexdigest(),
        question=hashlib.sha256(f"question {number}".encode()).hexdigest(),
        score=Score(gap_fwd=gap_fwd, gap_rev=gap_rev, label_mass=0.75),
        decider=Decider(
            criterion=replace(criterion, calibration=calibration),
            write_id=write_id,
            version=version,
        ),
        accepted=True,
        rate=0.5,
        at=float(number),
        by="kim",
    )
    return replace(draw, **changes)


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


def folded(*entries: Entry) -> Ledger:
    """Returns the ledger after these entries at the positions 1, 2, 3, ..."""
    ledger = Ledger(expires_s=EXPIRES_S)
    for entry in entries:
        apply(ledger, entry)
    return ledger


def apply(ledger: Ledger, entry: Entry) -> None:
    """Applies the next entry."""
    ledger.apply(ledger.position + 1, entry.text, entry)


def audit_of(ledger: Ledger, number: int) -> Audit:
    """Returns the audit of the comparison with this number, which was drawn."""
    audit = ledger.audit(draw_id(number))
    assert audit is not None
    return audit
