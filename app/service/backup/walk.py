"""Reads a complete store while services use it, and fills an empty one."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

from app.ports import AuditsPart, ChangePart, SecretPart, SetPart, Store, StorePart

# A change holds as much as its set, if it was a deletion; an audit has about 400 bytes.
_CHANGES_AT_ONCE = 16
_AUDITS_AT_ONCE = 1000


async def entries_in(store: Store) -> int:
    """Returns about how many changes and audits a store has, for a progress bar."""
    changes = [await store.last_number(name) for name in await store.trails()]
    return sum(changes) + await store.last_audit()


async def parts_of(store: Store) -> AsyncIterator[StorePart]:
    """Yields all that a store had when this began, and perhaps later changes, too.

    Each set is as it was at one version, with the trail that leads to this version. The audits are
    read last: the log knows all versions that the sets have.

    Raises:
        StoreUnavailableError: The store does not answer.
        StoreCorruptError: Another program changed the store.
    """
    for name in await store.trails():
        async for part in _set_parts(store, name):
            yield part
    if await store.last_audit():
        yield SecretPart(secret=await store.secret())
    position, end = 0, await store.last_audit()
    while position < end:
        limit = min(_AUDITS_AT_ONCE, end - position)
        entries = await store.audits(after=position, limit=limit)
        if not entries:
            return
        yield AuditsPart(entries=entries)
        position = entries[-1][0]


async def _set_parts(store: Store, name: str) -> AsyncIterator[StorePart]:
    """Yields the trail of a set, and the set."""
    last = await store.last_number(name)
    state = await store.read(name)
    while state is None and last != (now := await store.last_number(name)):
        # It was deleted, and perhaps made again, between the two reads.
        last, state = now, await store.read(name)
    end = last if state is None else state.version.number
    number = 0
    while number < end:
        changes = await store.changes(name, after=number, limit=_CHANGES_AT_ONCE)
        for change in changes:
            if change.number <= end:
                yield ChangePart(name=name, change=change)
        number = changes[-1].number if changes else end
    if state is not None:
        yield SetPart(name=name, state=state)


class _StoppedError(Exception):
    """The load was cancelled."""


async def fill(
    store: Store,
    parts: Iterable[StorePart],
    *,
    replace: bool,
    on_part: Callable[[StorePart], object],
) -> bool:
    """Fills a store in one step; a cancelled call leaves it as it was.

    Args:
        store: The store.
        parts: The content of a store; a thread iterates over them.
        replace: Whether to remove everything that the store keeps.
        on_part: Called with each part when the store has taken it, perhaps in that thread.

    Returns:
        False if the store has a set, a trail or an audit, and `replace` is not set.

    Raises:
        StoreUnavailableError: Nothing was changed, or everything was.
    """
    stopped = threading.Event()

    def until_stopped() -> Iterator[StorePart]:
        for part in parts:
            # The thread of a cancelled call would continue, and write everything.
            if stopped.is_set():
                raise _StoppedError
            yield part
            on_part(part)

    try:
        return await store.load(until_stopped(), replace=replace)
    except asyncio.CancelledError:
        stopped.set()
        raise
