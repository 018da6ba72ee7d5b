"""Writes changes of calibration sets: the set, the entry of its trail, and a line of the log."""

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from app.core.calibration import Calibration
from app.core.errors import StoreUnavailableError
from app.off_loop import off_loop
from app.ports import CalibrationStore, StoredCalibration, StoredChange
from app.release import RELEASE
from app.service.calibration.cache import Calibrations
from app.service.calibration.codec import encode, release
from app.service.calibration.trail import Change, Edit
from app.service.calibration.undo import examples_of, undo_of, version_of

T = TypeVar("T")

# Each conflict means that another writer succeeded, so somebody always makes progress. Fifty in a
# row mean dozens of writers on one set.
_ATTEMPTS = 50
# The pause after a conflict is random, so that writers do not collide again.
_LONGEST_PAUSE_S = 0.05

# The log is a second trail outside the store; it contains no texts.
logger = logging.getLogger("app.calibrations")


class Writer:
    """Writes changes of calibration sets, and updates the cache after each of them.

    Args:
        store: The store that keeps the sets.
        calibrations: The cache of the sets; also used to count failed store calls.
    """

    def __init__(self, store: CalibrationStore, calibrations: Calibrations) -> None:
        self._store = store
        self._calibrations = calibrations

    async def counted(self, call: Awaitable[T]) -> T:
        """Awaits a call of the store; counts a failure in the metrics."""
        try:
            return await call
        except StoreUnavailableError:
            self._calibrations.count_store_error()
            raise

    async def last_number(self, name: str) -> int:
        """Like `CalibrationStore.last_number`; counts a failure in the metrics."""
        return await self.counted(self._store.last_number(name))

    async def until_written(self, name: str, attempt: Callable[[int], Awaitable[T | None]]) -> T:
        """Repeats a change until no concurrent change conflicts with it.

        Args:
            name: Name of the calibration set.
            attempt: Reads the set and makes the change under the given number. Returns None if a
                concurrent change conflicted.

        Raises:
            StoreUnavailableError: Every attempt conflicted with another change.
        """
        for _ in range(_ATTEMPTS):
            # Read the number before the set. A change made after this line uses the same number,
            # so our attempt is refused.
            number = await self.last_number(name) + 1
            done = await attempt(number)
            if done is not None:
                return done
            await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE_S))
        raise StoreUnavailableError(
            f"too many other writers change calibration {name!r}; nothing was changed. Try again",
            retry_after_s=1,
        )

    async def write(
        self, number: int, before: Calibration | None, content: Calibration, edit: Edit
    ) -> Calibration | None:
        """Writes the next version of a set.

        Args:
            number: Number of the new version.
            before: The current set; None if there is none.
            content: The new version; its number and write id are ignored.
            edit: The requested change, for the trail.

        Returns:
            The new version; None if a concurrent change conflicted.
        """
        after = replace(
            content,
            write_id=uuid.uuid4().hex,
            version=number,
            changed_at=edit.at.timestamp(),
            release=RELEASE,
        )
        state, removed, change, stored = await off_loop(prepare, before, after, edit)
        writing = self._store.write(
            after.name, state, change=stored, expected=version_of(before), removed=removed
        )
        if not await _logged(after.name, change, self.counted(writing)):
            return None
        self._calibrations.remember(after)
        await off_loop(release, state.examples)
        return after

    async def delete(self, number: int, name: str, before: Calibration | None, edit: Edit) -> bool:
        """Removes a set.

        Args:
            number: Number of the deletion in the trail.
            name: Name of the calibration set.
            before: The current set; None if it cannot be read. Such a set cannot be restored.
            edit: The requested deletion, for the trail.

        Returns:
            False if a concurrent change conflicted.
        """
        change = await off_loop(Change.of, number, before, None, edit)
        stored = await off_loop(stored_change, before, None, change)
        deleting = self._store.delete(name, change=stored)
        # If the connection breaks here, the set may or may not be deleted. Keep it cached: the next
        # answer of the store decides, and SCOPE_MAX_STALENESS_S bounds its use. Dropping it would
        # stop judging for a deletion that may not have happened.
        deleted = await _logged(name, change, self.counted(deleting))
        if deleted:
            self._calibrations.forget(name)
        return deleted


def stored_change(
    before: Calibration | None, after: Calibration | None, change: Change
) -> StoredChange:
    """Encodes a change and its undo for the store.

    Args:
        before: The set before the change; None if there was none or it could not be read.
        after: The set after the change; None for a deletion.
        change: The entry of the trail.
    """
    return StoredChange(number=change.version, record=change.record, undo=undo_of(before, after))


def prepare(
    before: Calibration | None, after: Calibration, edit: Edit
) -> tuple[StoredCalibration, tuple[str, ...], Change, StoredChange]:
    """Computes everything that one write needs; long work for a large set.

    Returns:
        The state with its changed examples, the digests of removed examples, the change, and the
        change as the store keeps it.
    """
    changed, removed = after.table.since(examples_of(before))
    change = Change.of(after.version, before, after, edit)
    return encode(after, changed=changed), removed, change, stored_change(before, after, change)


async def _logged(name: str, change: Change, writing: Awaitable[bool]) -> bool:
    """Awaits a write and logs its outcome."""
    what = (name, change.version, change.action, change.by)
    try:
        written = await writing
    except (StoreUnavailableError, asyncio.CancelledError):
        logger.warning("calibration %s: version %d (%s by %r) may have been written or not", *what)
        raise
    if written:
        logger.info(
            "calibration %s: version %d (%s by %r), added %d, updated %d, ties %d, removed %s, "
            "failed %d, n %d, rolled back to %s, batch %s",
            *what,
            change.added,
            change.updated,
            change.ties,
            change.removed,
            change.failed,
            change.n,
            change.rolled_back_to,
            change.batch_digest,
        )
    return written
