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
from app.ports import Head, SetStore
from app.release import RELEASE
from app.sets.cache import Calibrations
from app.sets.codec import encode, threshold_fields
from app.sets.trail import Change, Edit

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

    def __init__(self, store: SetStore, calibrations: Calibrations) -> None:
        self._store = store
        self._calibrations = calibrations

    async def counted(self, call: Awaitable[T]) -> T:
        """Awaits a call of the store; counts a failure in the metrics."""
        try:
            return await call
        except StoreUnavailableError:
            self._calibrations.count_store_error()
            raise

    async def until_written(
        self, name: str, attempt: Callable[[Head | None], Awaitable[T | None]]
    ) -> T:
        """Repeats a change until no concurrent change conflicts with it.

        Args:
            name: Name of the calibration set.
            attempt: Reads the set and makes the change on top of the given head, which is None if
                there never was a set. Returns None if a concurrent change conflicted.

        Raises:
            StoreUnavailableError: Every attempt conflicted with another change.
        """
        for _ in range(_ATTEMPTS):
            # The head before the set: a change made after this line has another one, so that our
            # attempt is refused.
            done = await attempt(await self.counted(self._store.head(name)))
            if done is not None:
                return done
            await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE_S))
        raise StoreUnavailableError(
            f"too many other writers change calibration {name!r}; nothing was changed. Try again",
            retry_after_s=1,
        )

    async def write(
        self, head: Head | None, before: Calibration | None, content: Calibration, edit: Edit
    ) -> Calibration | None:
        """Writes the next version of a set.

        Args:
            head: The head on top of which the version is made.
            before: The set at that head; None if there is none.
            content: The new version; its number and write id are ignored.
            edit: The requested change, for the trail.

        Returns:
            The new version; None if a concurrent change conflicted.
        """
        after = replace(
            content,
            write_id=uuid.uuid4().hex,
            version=next_number(head),
            changed_at=edit.at.timestamp(),
            release=RELEASE,
        )
        blob, thresholds, change = await off_loop(_prepared, before, after, edit)
        writing = self._store.write(
            after.name,
            Head(after.write_id, after.version),
            blob=blob,
            thresholds=thresholds,
            record=change.record,
            expected=head,
        )
        if not await _logged(after.name, change, self.counted(writing)):
            return None
        self._calibrations.remember(after)
        return after

    async def delete(self, head: Head, name: str, before: Calibration | None, edit: Edit) -> bool:
        """Removes a set; its last versions are kept.

        Args:
            head: The head of the set.
            name: Name of the calibration set.
            before: The current set; None if it cannot be read.
            edit: The requested deletion, for the trail.

        Returns:
            False if a concurrent change conflicted.
        """
        deletion = Head("", next_number(head))
        change = await off_loop(Change.of, deletion.number, before, None, edit)
        deleting = self._store.write(
            name, deletion, blob=None, thresholds={}, record=change.record, expected=head
        )
        # If the connection breaks here, the set may or may not be deleted. Keep it cached: the next
        # answer of the store decides, and SCOPE_MAX_STALENESS_S bounds its use. Dropping it would
        # stop judging for a deletion that may not have happened.
        deleted = await _logged(name, change, self.counted(deleting))
        if deleted:
            self._calibrations.forget(name)
        return deleted


def next_number(head: Head | None) -> int:
    """Returns the number of the change after a head."""
    return head.number + 1 if head else 1


def _prepared(
    before: Calibration | None, after: Calibration, edit: Edit
) -> tuple[bytes, dict[str, str], Change]:
    """Computes all that a write needs; long work for a large set."""
    thresholds = {field: repr(row.threshold) for field, row in threshold_fields(after).items()}
    return encode(after), thresholds, Change.of(after.version, before, after, edit)


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
