"""Reads the texts of open audits, and removes those of expired ones.

The store takes texts with their draw, and forgets them with their label, in one step. A round here
removes those of expired audits, whatever the setting of this service.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from app.audits.auditor import Auditor
from app.audits.entries import Audit
from app.audits.texts import read_texts
from app.core.errors import StoreCorruptError, StoreUnavailableError
from app.ports import AuditStore
from scope_judge import records

# Labels count in the order of the draws, so everybody labels the oldest ones, in an own order. Of
# the labels of two people at once, 12% are the second of their pair, and 30% if these are 16.
_OLDEST = 64
# Interval at which the texts of expired audits are removed.
_ROUND_S = 60.0


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
    ) -> records.AuditPage:
        """Returns open audits with their texts, in an order that depends on the person.

        These are the audits whose labels end an alarm, as long as there are some, or else the
        oldest ones. The order differs, so that two people seldom label the same pair.

        Args:
            calibration: Only audits of this set; None for all sets.
            person: Name of the person who labels.
            after: Only pairs after this place of the order.
            limit: Most pairs to return.
            may_use: Whether the person may use a calibration set; audits of others are left out.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        audits = [
            audit
            for audit in await self._auditor.open_audits(calibration, may_use=may_use)
            if self._auditor.book(audit.calibration).alarms.needs_label(audit)
        ]
        with_texts = [audit for audit in audits if audit.has_texts]
        names = {audit.calibration for audit in with_texts}
        ending = {audit.key for name in names for audit in self._auditor.ending(name)}
        first = [audit for audit in with_texts if audit.key in ending] or with_texts[:_OLDEST]
        places = {_place(person, audit): audit for audit in first}
        following = sorted(place for place in places if place > after)
        shown = following[:limit]
        texts = await self._texts(places[place] for place in shown)
        now = self._auditor.now()
        pairs = (_pair(places[place], place, texts, now=now) for place in shown)
        return records.AuditPage(
            # A text is gone if its pair was labeled in the meantime.
            audits=tuple(pair for pair in pairs if pair is not None),
            open=len(audits),
            without_texts=len(audits) - len(with_texts),
            next_after=shown[-1] if len(following) > limit else None,
        )

    async def _texts(self, audits: Iterable[Audit]) -> dict[str, str]:
        by_set = dict[str, list[str]]()
        for audit in audits:
            by_set.setdefault(audit.calibration, []).append(audit.key)
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


def _place(person: str, audit: Audit) -> int:
    """The place of a pair in the order of a person: 52 random bits, the same at each request."""
    digest = hashlib.sha256(f"{person}\n{audit.key}".encode()).digest()
    return int.from_bytes(digest[:8]) >> 12


def _pair(
    audit: Audit, place: int, texts: Mapping[str, str], *, now: float
) -> records.Audit | None:
    """The record of an audit with its texts, response B first for every other place."""
    known = read_texts(texts.get(audit.key), audit.id)
    if known is None:
        return None
    identifier, pair = known
    if place % 2 == 0:
        identifier = f"{int(identifier, 16) ^ 1:032x}"
        pair = replace(pair, response_a=pair.response_b, response_b=pair.response_a)
    return replace(audit.record(now), id=identifier, texts=pair)
