"""Reads the texts of open audits, and removes those of expired ones.

The store keeps texts with their draw, and forgets them with their label, in one step. A round here
removes those of expired audits, whatever the setting of this service.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from app.audits.auditor import Auditor
from app.audits.entries import Audit
from app.audits.texts import DrawnTexts, key_of, read_texts
from app.core.errors import StoreCorruptError, StoreUnavailableError
from app.ports import AuditStore

# Everybody labels the oldest pairs, in an own order: labels count in the order of the draws.
_OLDEST = 64
# Interval at which the texts of expired audits are removed.
_ROUND_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PairToLabel:
    """An open audit with its texts.

    Args:
        audit: The audit.
        texts: Its texts, on random sides; their id says which order this is.
    """

    audit: Audit
    texts: DrawnTexts


@dataclass(frozen=True, kw_only=True, slots=True)
class PairsToLabel:
    """Open audits with their texts, in the order in which one person labels them.

    Args:
        pairs: The pairs.
        open: Number of all open audits.
        without_texts: Number of those whose texts the store does not have.
        next_after: Place after which the next page begins; None for the last page.
        at: Time of the statuses, in seconds since 1970.
    """

    pairs: Sequence[PairToLabel]
    open: int
    without_texts: int
    next_after: int | None
    at: float


class TextKeeper:
    """The texts of drawn pairs in the store of one service."""

    def __init__(self, store: AuditStore, auditor: Auditor) -> None:
        self._store = store
        self._auditor = auditor

    async def to_label(
        self,
        *,
        calibration: str | None,
        person: str,
        after: int,
        limit: int,
        may_use: Callable[[str], bool],
    ) -> PairsToLabel:
        """Returns open audits with their texts, in an order that depends on the person.

        Labels count in the order of the draws, so everybody works on the oldest pairs. The order
        among these differs, so that two people seldom label the same pair.

        Args:
            calibration: Only audits of this set; None for all sets.
            person: Name of the person who labels.
            after: Only pairs after this place of the order.
            limit: Most pairs to return.
            may_use: Whether the person may use a calibration set; audits of others are left out.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        audits = await self._auditor.open_audits(calibration, may_use=may_use)
        known = [audit for audit in audits if audit.has_texts]
        places = {_place(person, audit.draw.id): audit for audit in known[:_OLDEST]}
        following = sorted(place for place in places if place > after)
        shown = following[:limit]
        written = await self._texts_of([places[place] for place in shown])
        pairs = list[PairToLabel]()
        for place in shown:
            audit = places[place]
            texts = read_texts(written.get(key_of(audit.draw.id)), audit.draw.id)
            # It may have been labeled in the meantime.
            if texts is not None:
                pairs.append(PairToLabel(audit=audit, texts=_on_random_sides(texts, place)))
        return PairsToLabel(
            pairs=pairs,
            open=len(audits),
            without_texts=len(audits) - len(known),
            next_after=shown[-1] if len(following) > limit else None,
            at=self._auditor.now(),
        )

    async def _texts_of(self, audits: Sequence[Audit]) -> dict[str, str]:
        by_set = dict[str, list[str]]()
        for audit in audits:
            by_set.setdefault(audit.draw.calibration, []).append(key_of(audit.draw.id))
        texts = dict[str, str]()
        for name, keys in by_set.items():
            texts |= await self._store.audit_texts(name, keys)
        return texts

    async def follow(self) -> None:
        """Removes the texts of expired audits; runs until it is cancelled."""
        while True:
            with suppress(StoreUnavailableError, StoreCorruptError):
                await self._auditor.remove_texts()
            await asyncio.sleep(_ROUND_S)


def _place(person: str, identifier: str) -> int:
    """The place of a pair in the order of a person: 52 random bits, the same at each request."""
    digest = hashlib.sha256(f"{person}\n{key_of(identifier)}".encode()).digest()
    return int.from_bytes(digest[:8]) >> 12


def _on_random_sides(texts: DrawnTexts, place: int) -> DrawnTexts:
    """The texts with response B first for every other place, and the id of that order."""
    if place % 2:
        return texts
    return DrawnTexts(
        id=f"{int(texts.id, 16) ^ 1:032x}",
        question=texts.question,
        response_a=texts.response_b,
        response_b=texts.response_a,
    )
