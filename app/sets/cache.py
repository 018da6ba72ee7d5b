"""Caches calibration sets in memory, and reads a new version within one second.

Each judgment uses a version that the store confirmed within the last half second.

While the store does not answer, judging continues with the cached sets for a limited time. The
judgments then show the age of the calibration.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from app.core.calibration import Calibration
from app.core.errors import (
    CalibrationNotFoundError,
    JudgeMismatchError,
    ScopeJudgeError,
    StoreCorruptError,
    StoreUnavailableError,
)
from app.core.fingerprint import INPUTS_DIFFER
from app.flow import off_loop
from app.observability.telemetry import Row, Telemetry
from app.ports import KEPT_VERSIONS, Head, SetStore
from app.release import RELEASE
from app.sets.change import readable_changes
from app.sets.codec import decode

# A cached version is used for so long without asking the store, which costs one short read.
_FRESH_S = 0.5
# Interval at which all cached sets are confirmed.
_CONFIRM_S = 15.0
# A judgment waits for a hanging store for so long before it uses the cached set.
_PATIENCE_S = 0.25
# Callers choose the names of sets, so the memory of cached sets and the number of metric labels are
# limited. A set takes so many bytes with its thresholds, and so many more for each pair (measured).
_MOST_BYTES = 256 * 2**20
_BYTES_OF_SET = 130_000
_BYTES_OF_PAIR = 310
_MOST_SHOWN = 100
# Lost sets that are named; a store that was emptied has lost all.
_MOST_LOST = 100

DEFAULT_CALIBRATION = "default"

logger = logging.getLogger("app.calibrations")


class _Read(NamedTuple):
    """A read of the store that is in progress or has failed.

    Args:
        begun: Time of the clock at which the read began.
        wait_until: Time of the clock until which judgments wait for the read.
    """

    task: asyncio.Task[Calibration | None]
    begun: float
    wait_until: float


class Calibrations:
    """The calibration sets of a store, at most half a second old while the store answers.

    Args:
        max_staleness_s: Seconds for which judging continues with a set that the store does not
            confirm.
        min_label_mass: Examples with a smaller label mass count as never accepted, in [0, 1).
    """

    def __init__(
        self,
        store: SetStore,
        telemetry: Telemetry,
        *,
        max_staleness_s: float,
        min_label_mass: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._telemetry = telemetry
        self._max_staleness_s = max_staleness_s
        self._clock = clock
        self.min_label_mass = min_label_mass
        # Name -> the set, and the time at which the store last confirmed its version.
        self._known: dict[str, tuple[Calibration, float]] = {}
        # Name of a set that is gone from the store and was not deleted -> last number of its trail.
        self._lost: dict[str, int] = {}
        self._reads: dict[str, _Read] = {}
        self._store_is_away = False
        # Names of cached sets that were judged by, the last one last.
        self._used: dict[str, None] = {}
        telemetry.show(self._rows)

    async def usable(self, name: str, *, fingerprint: str) -> tuple[Calibration, float]:
        """Returns the set to judge by: at most half a second old, or older if the store is gone.

        Returns:
            The newest version that the cache has read, and the seconds since the store last
            confirmed it; 0 while the store answers.

        Raises:
            StoreCorruptError: The set is gone from the store, and nobody has deleted it.
            StoreUnavailableError: The store does not answer, and the cached set is too old or
                missing.
            RequestError: The set does not exist, or another judge made it.
        """
        known = self._known.get(name)
        if known is not None and self._clock() - known[1] < _FRESH_S:
            usable = known[0], 0.0
        elif known is None:
            read = await asyncio.shield(self._read(name).task)
            usable = self._existing(name, read), 0.0
        else:
            usable = await self._confirmed(name, *known)
        refuse_other_judge(usable[0], fingerprint)
        self._used.pop(name, None)
        self._used[name] = None
        return usable

    async def _confirmed(
        self, name: str, known: Calibration, confirmed: float
    ) -> tuple[Calibration, float]:
        """Reads the set from the store, or returns the cached set if the store does not answer."""
        read = self._read(name)
        try:
            async with asyncio.timeout(max(0.0, read.wait_until - self._clock())):
                # Shielded: other callers wait for the same read, so one cancelled caller must not
                # cancel it.
                return self._existing(name, await asyncio.shield(read.task)), 0.0
        except (TimeoutError, StoreUnavailableError) as exc:
            age_s = self._clock() - confirmed
            if age_s > self._max_staleness_s:
                raise StoreUnavailableError(
                    f"the calibration store has not answered for {age_s:.0f} s, and thresholds "
                    f"may be at most {self._max_staleness_s:g} s old (SCOPE_MAX_STALENESS_S)"
                ) from exc
            return known, age_s

    def _read(self, name: str) -> _Read:
        """Returns the read of a set that all callers share (single flight).

        After a failure the next read begins half a second after the failed one began.
        """
        read, now = self._reads.get(name), self._clock()
        if read is None or (read.task.done() and now - read.begun >= _FRESH_S):
            # After a failure nobody waits for the next read; a later judgment sees its result.
            wait_until = now + _PATIENCE_S if read is None else now
            read = _Read(asyncio.ensure_future(self.current(name)), now, wait_until)
            read.task.add_done_callback(lambda task: self._forget_read(name, task))
            self._reads[name] = read
        return read

    def _forget_read(self, name: str, task: "asyncio.Task[Calibration | None]") -> None:
        """Drops a finished read, unless it failed for a cached set: that read limits the rate.

        A successful read has updated the cache, and a missing set may be made at any moment.
        """
        failed = not task.cancelled() and isinstance(task.exception(), StoreUnavailableError)
        read = self._reads.get(name)
        if read is not None and read.task is task and not (failed and name in self._known):
            del self._reads[name]

    async def get(self, name: str) -> Calibration:
        """Returns the version that the store has right now, or raises CalibrationNotFoundError."""
        return self._existing(name, await self.current(name))

    async def current(self, name: str, *, keep: bool = True) -> Calibration | None:
        """Returns the version that the store has right now; None if there is no such set.

        Args:
            keep: Whether a set that is not cached is cached.
        """
        before = known = self.in_memory(name)
        begun = self._clock()
        try:
            head = await self._store.head(name)
            if head is None or not head.write_id:
                known = None
            elif known is None or head != Head(known.write_id, known.version):
                blob = await self._store.read(name)
                # In a thread: decoding a large set takes a while.
                known = await off_loop(self._decoded, name, blob) if blob else None
        except StoreUnavailableError as exc:
            self._telemetry.store_errors.inc()
            self._note_store(outage=exc.detail)
            raise
        self._note_store(outage=None)
        # If the cached set changed during the read, a write or a deletion was newer than the read.
        if self.in_memory(name) is before:
            if known is None:
                self._note_absence(name, before, head.number if head else 0)
                self._known.pop(name, None)
                self._used.pop(name, None)
            else:
                self._note_presence(known, before)
                if keep or before is not None:
                    self._keep(known, begun)
        return known

    async def is_newest(self, calibration: Calibration) -> bool:
        """Whether no change was made after this version, by the store's head."""
        head = await self._store.head(calibration.name)
        return head == Head(calibration.write_id, calibration.version)

    async def author(self, calibration: Calibration) -> str:
        """Returns the name of the key that made a version, by the trail."""
        before = calibration.version + 1
        entries = await self._store.trail(calibration.name, before=before, limit=1)
        changes = readable_changes(calibration.name, entries)
        return changes[0].by if changes else "service"

    async def is_renewed(self, after: Calibration, *, since: Head) -> bool:
        """Whether half of a set's labeled examples are in no kept version up to an earlier one.

        Args:
            after: The set, or the set after a change that is not written yet.
            since: The earlier version. If it is not kept any more, nothing counts as new.
        """
        seen = set[str]()
        for number in range(since.number, max(0, since.number - KEPT_VERSIONS), -1):
            blob = await self._store.read(after.name, number)
            version = await off_loop(decode, after.name, blob) if blob else None
            if number == since.number and (version is None or version.write_id != since.write_id):
                return False
            if version is not None:
                seen.update(version.examples)
        newer = await off_loop(_count_newer, after, seen)
        return 0 < after.labelled <= 2 * newer

    def _note_absence(self, name: str, before: Calibration | None, last: int) -> None:
        """Records a set that is gone although nobody deleted it: the store has lost data.

        Args:
            before: The set that was cached; None if it was not.
            last: Highest number of the trail in the store. A deletion makes it higher.
        """
        if before is not None and last <= before.version:
            self._lost[name] = last
            logger.error(
                "the calibration %r, version %d, is gone from the store, and nobody has deleted "
                "it: restore the store from a backup, or calibrate again",
                name,
                before.version,
            )
        elif last > self._lost.get(name, last):
            # Somebody has made the set again since, and then deleted it.
            del self._lost[name]

    def _note_presence(self, present: Calibration, before: Calibration | None) -> None:
        if self._lost.pop(present.name, None) is not None:
            logger.warning("the calibration %r is in the store again", present.name)
        if before is not None and present.version < before.version:
            logger.warning(
                "the calibration %r went back from version %d to version %d: the store was "
                "replaced by an earlier copy, and later labels are lost",
                present.name,
                before.version,
                present.version,
            )

    def lost(self) -> list[str]:
        """Returns the names of the sets that the store has lost, sorted."""
        return sorted(self._lost.copy())

    def _existing(self, name: str, calibration: Calibration | None) -> Calibration:
        if calibration is not None:
            return calibration
        if name in self._lost:
            raise StoreCorruptError(
                f"the calibration {name!r} is gone from the store, and nobody has deleted it: "
                "restore the store from a backup, or calibrate again"
            )
        raise CalibrationNotFoundError(name)

    def in_memory(self, name: str) -> Calibration | None:
        """Returns the cached set without asking the store; None if it is not cached."""
        known = self._known.get(name)
        return None if known is None else known[0]

    async def refresh(self) -> None:
        """Reads new versions of cached and lost sets; judgments report errors."""
        for name in [*self._known, *self._lost]:
            with suppress(ScopeJudgeError):
                await self.current(name)

    async def follow(self) -> None:
        """Confirms all cached sets until it is cancelled, so that an outage finds them young."""
        while True:
            await asyncio.sleep(_CONFIRM_S)
            await self.refresh()

    def _note_store(self, *, outage: str | None) -> None:
        """Logs one line when the store goes away and one when it is back."""
        if outage is not None and not self._store_is_away:
            logger.warning(
                "judging continues without the calibration store for at most %g s: %s",
                self._max_staleness_s,
                outage,
            )
        elif outage is None and self._store_is_away:
            logger.warning("the calibration store is back")
        self._store_is_away = outage is not None

    def _decoded(self, name: str, blob: bytes) -> Calibration:
        calibration = decode(name, blob, min_label_mass=self.min_label_mass)
        # Computed here, in a thread, so that neither a judgment nor the metrics wait for it.
        _ = calibration.standard_rows
        return calibration

    def _rows(self) -> Iterator[Row]:
        """The numbers of the sets that the metrics show, and the first sets that are lost."""
        for name in self.lost()[:_MOST_LOST]:
            yield "calibration_lost", (name,), 1
        # A copy, because this runs in the thread that writes the metrics.
        now, sets = self._clock(), self._known.copy()
        for name in self._shown(sets):
            known, confirmed = sets[name]
            yield "calibration_examples", (name,), known.n
            yield "calibration_version", (name,), known.version
            away_s = now - confirmed if self._store_is_away else 0.0
            yield "calibration_unconfirmed_seconds", (name,), away_s
            if known.changed_at is not None:
                yield "calibration_changed_timestamp_seconds", (name,), known.changed_at
            for row in known.standard_rows:
                if not row.labels_missing:
                    place = (name, row.guarantee, f"{row.alpha:.2f}")
                    yield "calibration_feasible", place, row.feasible
                    if row.threshold is not None:
                        yield "calibration_threshold_nats", place, row.threshold

    def shown(self) -> list[Calibration]:
        """Returns the cached sets that have gauges, sorted by name; safe in any thread."""
        sets = self._known.copy()
        return [sets[name][0] for name in self._shown(sets)]

    def _shown(self, sets: Collection[str]) -> list[str]:
        """Returns the names of the sets that have gauges, sorted; at most 100.

        The default set comes first, then the sets used most recently. So new sets cannot push out
        the gauges of a set in use.
        """
        wanted = (DEFAULT_CALIBRATION, *reversed(self._used.copy()), *sorted(sets))
        known = dict.fromkeys(name for name in wanted if name in sets)
        return sorted(islice(known, _MOST_SHOWN))

    def known(self) -> list[Calibration]:
        """Returns the cached sets, sorted by name, without asking the store."""
        return [calibration for _, (calibration, _) in sorted(self._known.items())]

    def usable_without_store(self) -> bool:
        """Whether any cached set is young enough to judge by if the store does not answer now."""
        oldest = self._clock() - self._max_staleness_s
        return any(confirmed >= oldest for _, confirmed in self._known.values())

    def remember(self, calibration: Calibration) -> None:
        """Caches a version that was just written."""
        self._keep(calibration, self._clock())
        self._lost.pop(calibration.name, None)
        self._reads.pop(calibration.name, None)

    def _keep(self, calibration: Calibration, confirmed: float) -> None:
        """Caches a set; above the limit, drops others, those in use and the default set last."""
        is_new = self.in_memory(calibration.name) is not calibration
        self._known[calibration.name] = (calibration, confirmed)
        if not is_new:
            return
        size = sum(map(_bytes_of, self.known()))
        wanted = (
            calibration.name,
            DEFAULT_CALIBRATION,
            *reversed(self._used),
            *reversed(self._known),
        )
        for name in reversed(dict.fromkeys(wanted)):
            if size <= _MOST_BYTES:
                return
            if name in self._known:
                size -= _bytes_of(self._known[name][0])
                self.forget(name)

    def forget(self, name: str) -> None:
        """Drops a deleted set, and reads of it that began before the deletion."""
        for kept in (self._known, self._used, self._lost, self._reads):
            kept.pop(name, None)

    async def readable(self, names: Iterable[str]) -> AsyncIterator[Calibration]:
        """Yields the sets that can be read, one at a time, and caches none of them."""
        for name in names:
            try:
                calibration = await self.current(name, keep=False)
            except StoreCorruptError as exc:
                logger.warning("%s", exc.detail)
                continue
            if calibration is not None:
                yield calibration


def _bytes_of(calibration: Calibration) -> int:
    """Returns about how much memory a cached set takes."""
    return _BYTES_OF_SET + _BYTES_OF_PAIR * calibration.n


def _count_newer(now: Calibration, seen: set[str]) -> int:
    """Returns how many labeled examples of a set are not among those that were seen."""
    return sum(
        example.label in ("A", "B") and digest not in seen for digest, example in now.table.items()
    )


def refuse_other_judge(calibration: Calibration, fingerprint: str) -> None:
    """Raises JudgeMismatchError if another judge made the calibration."""
    if calibration.fingerprint == fingerprint:
        return
    made, here = f"made with judge {calibration.judge!r}", "this judge is"
    wrote = calibration.release
    if wrote != RELEASE:
        made = f"made by scope-judge {wrote} with judge {calibration.judge!r}"
        here = f"this is scope-judge {RELEASE} with judge"
    raise JudgeMismatchError(
        f"calibration {calibration.name!r} was {made} ({calibration.fingerprint[:12]}), {here} "
        f"{fingerprint[:12]}: {INPUTS_DIFFER}. Run `scope-judge calibrate` on the labeled pairs "
        "under another name, or delete the calibration first"
    )
