"""Deletes audits of replaced versions after `SCOPE_AUDIT_KEEP_DAYS`."""

import asyncio
import logging
from contextlib import suppress

from app.audits.auditor import Auditor
from app.core.errors import StoreCorruptError, StoreUnavailableError
from app.ports import SetStore

_ROUND_S = 3600.0
_DAY_S = 86_400.0

logger = logging.getLogger("app.audits")


async def remove_old_audits(auditor: Auditor, store: SetStore, *, keep_days: float) -> None:
    """Deletes audits of versions out of force once an hour; runs until it is cancelled."""
    while True:
        with suppress(StoreUnavailableError, StoreCorruptError):
            await remove_once(auditor, store, keep_days=keep_days)
        await asyncio.sleep(_ROUND_S)


async def remove_once(auditor: Auditor, store: SetStore, *, keep_days: float) -> None:
    """Deletes the audits of versions out of force that have not changed for so many days.

    Raises:
        StoreUnavailableError: The store does not answer.
    """
    for book in auditor.books:
        head = await store.head(book.name)
        removed = await auditor.forget(
            book.name,
            in_force=None if head is None else head.write_id,
            older_than=auditor.now() - keep_days * _DAY_S,
        )
        if removed:
            logger.info("%d audits of replaced versions of %r were deleted", removed, book.name)
