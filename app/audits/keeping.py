"""Removes texts of expired audits, and audits of versions out of force."""

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import replace

from app.audits.auditor import AuditChange, Auditor
from app.audits.book import Book
from app.core.errors import StoreCorruptError, StoreUnavailableError
from app.ports import SetStore

_TEXTS_S = 60.0
_AUDITS_S = 3600.0
_DAY_S = 86_400.0
# Rows that one step changes or removes.
_STEP = 500

logger = logging.getLogger("app.audits")


async def keep_few(auditor: Auditor, store: SetStore, *, keep_days: float) -> None:
    """Removes texts once a minute, and audits once an hour; runs until it is cancelled."""
    due = time.monotonic()
    while True:
        with suppress(StoreUnavailableError, StoreCorruptError):
            await remove_texts(auditor)
            if time.monotonic() >= due:
                await remove_old_audits(auditor, store, keep_days=keep_days)
                due = time.monotonic() + _AUDITS_S
        await asyncio.sleep(_TEXTS_S)


async def remove_texts(auditor: Auditor) -> None:
    """Removes the texts of expired audits, also if this service keeps none."""

    def plan(book: Book, change: AuditChange) -> None:
        for audit in book.expired_with_texts(auditor.now())[:_STEP]:
            change.put(replace(audit, has_texts=False))
            change.forgotten.add(audit.key)

    for book in auditor.books:
        while await auditor.change(book.name, plan):
            pass


async def remove_old_audits(auditor: Auditor, store: SetStore, *, keep_days: float) -> None:
    """Removes the audits of versions out of force that have not changed for so many days."""
    await auditor.catch_up()
    older_than = auditor.now() - keep_days * _DAY_S
    for name in [book.name for book in auditor.books]:
        head = await store.head(name)
        in_force = None if head is None else head.write_id
        await forget(auditor, name, in_force=in_force, older_than=older_than)


async def forget(auditor: Auditor, name: str, *, in_force: str | None, older_than: float) -> None:
    """Removes audits of versions out of force, and their entries; see `Book.out_of_force`."""

    def plan(book: Book, change: AuditChange) -> None:
        old = book.out_of_force(in_force, older_than=older_than, now=auditor.now())
        change.removed.update(old[:_STEP])

    while await auditor.change(name, plan):
        logger.info("audits of replaced versions of %r were deleted", name)
