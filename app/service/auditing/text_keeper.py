"""Reads the texts of open audits, and removes those of all others.

The store keeps texts with their draw, and forgets them with their label, in one step. A round here
removes the rest, whatever the setting of this service: an audit has expired, an older release took
the label, or a replica drew the pair again before it knew the label.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from app.core.errors import StoreCorruptError, StoreUnavailableError
from app.ports import AuditStore
from app.service.auditing.auditor import Auditor
from app.service.auditing.ledger import Audit
from app.service.auditing.texts import DrawnTexts, key_of, read_texts

# Interval at which the texts of audits that are not open are removed.
_ROUND_S = 60.0
# Pairs of one step, which takes 2 ms of the event loop, and 35 ms of SQLite to remove all of them.
_STEP = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class TextsPage:
    """Open audits with their texts, oldest first.

    Args:
        audits: The audits.
        written: Key of a pair -> its texts as the store has them.
        keeps: Whether the service keeps the texts of new draws.
        next_after: Position after which the next page begins; None for the last page.
    """

    audits: Sequence[Audit]
    written: Mapping[str, str]
    keeps: bool
    next_after: int | None

    def texts(self, audit: Audit) -> DrawnTexts | None:
        """Reads the texts of an audit of this page; None if the store has none."""
        written = self.written.get(key_of(audit.draw.id))
        return None if written is None else read_texts(written, audit.draw.id)


class TextKeeper:
    """The texts of drawn pairs in the store of one service."""

    def __init__(self, store: AuditStore, auditor: Auditor) -> None:
        self._store = store
        self._auditor = auditor

    async def page(
        self,
        *,
        calibration: str | None,
        after: int,
        limit: int,
        may_use: Callable[[str], bool],
    ) -> TextsPage:
        """Returns open audits with their texts; see `Ledger.page`.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        page = await self._auditor.page(
            calibration=calibration, status="open", after=after, limit=limit, may_use=may_use
        )
        audits = list(page.audits)
        written = await self._store.audit_texts([key_of(audit.draw.id) for audit in audits])
        return TextsPage(
            audits=audits,
            written=written,
            keeps=self._auditor.keeps_texts,
            next_after=page.next_after,
        )

    async def follow(self) -> None:
        """Removes the texts of audits that are not open; runs until it is cancelled."""
        while True:
            with suppress(StoreUnavailableError, StoreCorruptError):
                await self.remove_others()
            await asyncio.sleep(_ROUND_S)

    async def remove_others(self) -> None:
        """Removes the texts of audits that are not open, once.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        keys = sorted(await self._store.audit_text_keys())
        if not keys:
            return
        # After the keys: each of them came with its draw, which the ledger then has.
        await self._auditor.catch_up()
        for start in range(0, len(keys), _STEP):
            step = set(keys[start : start + _STEP])
            if others := step - self._auditor.open_pairs(step):
                await self._store.forget_audit_texts(others)
            # The store in memory answers without a pause.
            await asyncio.sleep(0)
