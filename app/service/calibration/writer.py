"""Committing: a change of a set, its entry in the trail and its line in the log go together."""

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple, TypeVar

from app.core.calibration import Calibration
from app.core.errors import StoreUnavailableError
from app.ports import CalibrationStore, Revision, StoredCalibration
from app.service.calibration.cache import Calibrations
from app.service.calibration.codec import encode, release
from app.service.calibration.history import (
    Change,
    ChangeRecord,
    Difference,
    record_of,
    revision_of,
    version_of,
)
from app.service.off_loop import off_loop

T = TypeVar("T")

# A conflict means that another writer got through, so two writers never wait for each other; this
# many in a row means that dozens write the same set.
_ATTEMPTS = 50
_LONGEST_PAUSE_S = 0.05

# A second trail, outside the store; it holds no texts.
logger = logging.getLogger("app.calibrations")


class _Prepared(NamedTuple):
    """All that one write needs, computed off the event loop."""

    state: StoredCalibration
    removed: tuple[str, ...]
    record: ChangeRecord
    revision: Revision


class Committer:
    """Writes changes of calibration sets, and tells the read side of them.

    Args:
        store: Where the sets are kept.
        calibrations: The read side, which also counts where the store does not answer.
    """

    def __init__(self, store: CalibrationStore, calibrations: Calibrations) -> None:
        self._store = store
        self._calibrations = calibrations

    async def counted(self, asked: Awaitable[T]) -> T:
        """Waits for the store, and counts it where the store does not answer."""
        try:
            return await asked
        except StoreUnavailableError:
            self._calibrations.count_store_error()
            raise

    async def last_number(self, name: str) -> int:
        """As the store's."""
        return await self.counted(self._store.last_number(name))

    async def until_written(self, name: str, attempt: Callable[[int], Awaitable[T | None]]) -> T:
        """Tries a change until no other one comes between.

        Args:
            name: Of the set.
            attempt: Makes the change under the number it is given, on the set that it reads itself;
                None if another change came between.

        Raises:
            StoreUnavailableError: Others never stop writing.
        """
        for _ in range(_ATTEMPTS):
            # Asked for before the set is read: a change that comes after takes this number.
            number = await self.last_number(name) + 1
            done = await attempt(number)
            if done is not None:
                return done
            await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE_S))
        raise StoreUnavailableError(
            f"calibration {name!r} is being written by too many others; nothing was changed",
            retry_after_s=1,
        )

    async def write(
        self, number: int, before: Calibration | None, content: Calibration, change: Change
    ) -> Calibration | None:
        """Writes the next version of a set.

        Args:
            number: Of the version.
            before: The set; None if there is none.
            content: The version, but for its number and write id.
            change: What is recorded of it.

        Returns:
            The version; None if another change came between.
        """
        after = replace(
            content,
            write_id=uuid.uuid4().hex,
            version=number,
            changed_at=change.at.timestamp(),
        )
        state, removed, record, revision = await off_loop(_prepare, before, after, change)
        writing = self._store.write(
            after.name, state, revision=revision, expected=version_of(before), removed=removed
        )
        if not await _logged(after.name, record, self.counted(writing)):
            return None
        self._calibrations.remember(after)
        await off_loop(release, state.examples)
        return after

    async def delete(
        self, number: int, name: str, before: Calibration | None, change: Change
    ) -> bool:
        """Removes a set.

        Args:
            number: Of the change.
            name: Of the set.
            before: The set; None if it cannot be read, and so cannot be had back.
            change: What is recorded of it.

        Returns:
            False if another change came between.
        """
        record = await off_loop(record_of, number, before, None, change)
        revision = await off_loop(revision_of, before, None, record)
        deleting = self._store.delete(name, revision=revision)
        # Where the store breaks off, nobody knows whether it was removed, and memory keeps what it
        # has: as with a deletion by another replica, the next answer of the store settles it. Until
        # then the thresholds were valid when last confirmed, and max_staleness bounds their use;
        # to forget them would end judging because of a deletion that may have been refused.
        deleted = await _logged(name, record, self.counted(deleting))
        if deleted:
            self._calibrations.forget(name)
        return deleted


def _prepare(before: Calibration | None, after: Calibration, change: Change) -> _Prepared:
    put, take = Difference.between(before, after)
    record = record_of(after.version, before, after, change)
    return _Prepared(encode(after, changed=put), take, record, revision_of(before, after, record))


async def _logged(name: str, record: ChangeRecord, writing: Awaitable[bool]) -> bool:
    """Waits for a change and logs what became of it."""
    what = (name, record.version, record.action, record.by)
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
            record.added,
            record.updated,
            record.ties,
            record.removed,
            record.failed,
            record.n,
            record.rolled_back_to,
            record.batch_digest,
        )
    return written
