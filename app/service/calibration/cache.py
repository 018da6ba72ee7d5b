"""Caches calibration sets in memory, and reads a new version within one second.

Each judgment uses a version that the store confirmed within the last half second. `following` also
reads new versions as soon as the store announces them.

While the store does not answer, judging continues with the cached sets for a limited time. The
judgments then show the age of the calibration.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable
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
from app.gauges import CalibrationFigures
from app.ports import CalibrationStore, StoredCalibration, Version
from app.service.auditing.traffic import Traffic
from app.service.calibration.codec import decode, release
from app.service.off_loop import off_loop
from app.telemetry import Telemetry

# A cached version is used for so long without asking the store, which costs one short read.
_FRESH_S = 0.5
# A judgment waits for a hanging store for so long before it uses the cached set.
_PATIENCE_S = 0.25
# Callers choose the names of sets, so the numbers of cached sets and of metric labels are limited.
_MOST_KEPT = 1000
_MOST_SHOWN = 100

DEFAULT_CALIBRATION = "default"

logger = logging.getLogger("app.calibrations")


class Usable(NamedTuple):
    """A calibration to judge by.

    Args:
        calibration: The newest version that the cache has read from the store.
        age_s: Seconds since the store last confirmed the version; 0 while the store answers.
    """

    calibration: Calibration
    age_s: float


class _Read(NamedTuple):
    """A read of the store that is in progress or has failed.

    Args:
        task: The read itself.
        begun: Time of the clock at which the read began.
        wait_until: Time of the clock until which judgments wait for the read.
    """

    task: asyncio.Task[Calibration | None]
    begun: float
    wait_until: float


class Calibrations:
    """The calibration sets of a store, at most half a second old while the store answers.

    Args:
        store: The store that keeps the sets.
        telemetry: Counts calls that the store does not answer, and shows gauges of the sets.
        max_staleness_s: Seconds for which judging continues with a set that the store does not
            confirm.
        min_label_mass: Examples with a smaller label mass count as never accepted, in [0, 1).
        clock: Monotonic clock in seconds.
    """

    def __init__(
        self,
        store: CalibrationStore,
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
        self._reads: dict[str, _Read] = {}
        self._store_is_lost = False
        self.traffic = Traffic()
        telemetry.show_calibrations(self._figures, count=lambda: len(self._known))

    async def usable(self, name: str, *, fingerprint: str) -> Usable:
        """Returns the set to judge by: at most half a second old, or older if the store is gone.

        Args:
            name: Name of the calibration set.
            fingerprint: Fingerprint of the judge that will use the set.

        Raises:
            CalibrationNotFoundError: There is no such set.
            JudgeMismatchError: Another judge made the set.
            StoreUnavailableError: The store does not answer, and the cached set is too old or
                missing.
        """
        known = self._known.get(name)
        if known is not None and self._clock() - known[1] < _FRESH_S:
            usable = Usable(known[0], 0.0)
        elif known is None:
            usable = Usable(_found(name, await asyncio.shield(self._read(name).task)), 0.0)
        else:
            usable = await self._confirmed(name, *known)
        refuse_other_judge(usable.calibration, fingerprint)
        return usable

    async def _confirmed(self, name: str, known: Calibration, confirmed: float) -> Usable:
        """Reads the set from the store, or returns the cached set if the store does not answer."""
        read = self._read(name)
        try:
            async with asyncio.timeout(max(0.0, read.wait_until - self._clock())):
                # Shielded: other callers wait for the same read, so one cancelled caller must not
                # cancel it.
                return Usable(_found(name, await asyncio.shield(read.task)), 0.0)
        except (TimeoutError, StoreUnavailableError) as exc:
            age_s = self._clock() - confirmed
            if age_s > self._max_staleness_s:
                raise StoreUnavailableError(
                    f"the calibration store has not answered for {age_s:.0f} s, and thresholds "
                    f"may be at most {self._max_staleness_s:g} s old (SCOPE_MAX_STALENESS_S)"
                ) from exc
            return Usable(known, age_s)

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
        """Returns the version that the store has right now.

        Raises:
            CalibrationNotFoundError: There is no such set.
            StoreUnavailableError: The store does not answer.
        """
        return _found(name, await self.current(name))

    async def current(self, name: str, *, read_anew: bool = False) -> Calibration | None:
        """Returns the version that the store has right now; None if there is no such set.

        Args:
            name: Name of the calibration set.
            read_anew: Read and check the set even if its version is cached. Another program may
                have changed the set without changing its version.

        Raises:
            StoreCorruptError: This version cannot read the stored set. The cached set is kept.
            StoreUnavailableError: The store does not answer.
        """
        before = known = self.in_memory(name)
        begun = self._clock()
        try:
            version = await self._store.version(name)
            if version is None:
                known = None
            elif read_anew or known is None or version != Version(known.write_id, known.version):
                stored = await self._store.read(name)
                # In a thread: the curve of a million points takes a second.
                known = await off_loop(self._decoded, name, stored) if stored else None
        except StoreUnavailableError as exc:
            self.count_store_error()
            self._note_store(lost=exc.detail)
            raise
        self._note_store(lost=None)
        # If the cached set changed during the read, a write or a deletion was newer than the read.
        if self.in_memory(name) is before:
            if known is None:
                self._known.pop(name, None)
            else:
                self._keep(known, begun)
        return known

    def in_memory(self, name: str) -> Calibration | None:
        """Returns the cached set without asking the store; None if it is not cached."""
        known = self._known.get(name)
        return None if known is None else known[0]

    async def refresh(self, names: Iterable[str] | None = None) -> None:
        """Reads new versions of cached sets; errors are counted, and judgments report them.

        Args:
            names: Names of the sets; sets that are not cached are ignored. None for all sets.
        """
        for name in list(self._known if names is None else names):
            if name in self._known:
                with suppress(ScopeJudgeError):
                    await self.current(name)

    def _note_store(self, *, lost: str | None) -> None:
        """Logs one line when the store is lost and one when it is back."""
        if lost is not None and not self._store_is_lost:
            logger.warning(
                "judging continues without the calibration store for at most %g s: %s",
                self._max_staleness_s,
                lost,
            )
        elif lost is None and self._store_is_lost:
            logger.warning("the calibration store is back")
        self._store_is_lost = lost is not None

    def count_store_error(self) -> None:
        """Counts a call that the store did not answer, in the metrics."""
        self._telemetry.count_store_error()

    def _decoded(self, name: str, stored: StoredCalibration) -> Calibration:
        calibration = decode(name, stored, min_label_mass=self.min_label_mass)
        # Computed here, in a thread, so that the first judgment does not wait for it.
        _ = calibration.pac_pairs if calibration.unlabelled else calibration.curve
        release(stored.examples)
        return calibration

    async def find_shown_thresholds(self, *, within_s: float) -> None:
        """Computes the thresholds that the metrics show, as far as there is time.

        Args:
            within_s: No computation begins after so many seconds.
        """
        await self.find_thresholds(self.shown(), within_s=within_s)

    async def find_thresholds(
        self, sets: Iterable[Calibration], *, within_s: float = math.inf
    ) -> None:
        """Computes the standard thresholds of sets in a thread; each set keeps its thresholds.

        Args:
            sets: Sets whose thresholds will be shown.
            within_s: No computation begins after so many seconds.
        """
        until = time.monotonic() + within_s
        for each in sets:
            if each.kept_standard_rows is None and time.monotonic() < until:
                # One set at a time, so that other work can run in between.
                await off_loop(getattr, each, "standard_rows")

    def _figures(self) -> list[CalibrationFigures]:
        """Returns the gauges of the sets that the metrics show."""
        # A copy, because this runs in the thread that writes the metrics.
        now, sets = self._clock(), self._known.copy()
        return [
            CalibrationFigures(
                name=name,
                version=known.version,
                n=known.n,
                changed_at=known.changed_at,
                unconfirmed_s=now - confirmed if self._store_is_lost else 0.0,
                thresholds=_found_thresholds(known),
                traffic=self.traffic.figures(known),
            )
            for name in self._shown(sets)
            for known, confirmed in (sets[name],)
        ]

    def shown(self) -> list[Calibration]:
        """Returns the cached sets that have gauges, sorted by name; safe in any thread."""
        sets = self._known.copy()
        return [sets[name][0] for name in self._shown(sets)]

    def _shown(self, sets: Collection[str]) -> list[str]:
        """Returns the names of the sets that have gauges, sorted; at most 100.

        The default set comes first, then the sets used most recently. So new sets cannot push out
        the gauges of a set in use.
        """
        wanted = (DEFAULT_CALIBRATION, *self.traffic.names(), *sorted(sets))
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
        self._reads.pop(calibration.name, None)

    def _keep(self, calibration: Calibration, confirmed: float) -> None:
        """Caches a set; above the limit, drops the oldest cached set that is not in use."""
        self._known[calibration.name] = (calibration, confirmed)
        if len(self._known) > _MOST_KEPT:
            in_use = {DEFAULT_CALIBRATION, *self.traffic.names()[: _MOST_KEPT // 2]}
            self.forget(next(name for name in self._known if name not in in_use))

    def forget(self, name: str) -> None:
        """Drops a deleted set, and reads of it that began before the deletion."""
        self._known.pop(name, None)
        self._reads.pop(name, None)

    async def all(self) -> list[Calibration]:
        """Returns every set of the store that can be read, sorted by name."""
        found = []
        for name in await self._store.names():
            try:
                calibration = await self.current(name)
            except StoreCorruptError as exc:
                logger.warning("%s", exc.detail)
                continue
            if calibration is not None:
                found.append(calibration)
        return found


def _found(name: str, calibration: Calibration | None) -> Calibration:
    if calibration is None:
        raise CalibrationNotFoundError(
            f"there is no calibration {name!r}: POST labelled examples to /calibrate first, or "
            'judge with "alpha": null, which has no guarantee'
        )
    return calibration


def _found_thresholds(calibration: Calibration) -> list[tuple[str, float, float]]:
    """Returns guarantee, alpha and threshold of each standard row, if they were computed."""
    rows = calibration.kept_standard_rows or ()
    return [(row.guarantee, row.alpha, row.threshold) for row in rows if not row.labels_missing]


def refuse_other_judge(calibration: Calibration, fingerprint: str) -> None:
    """Raises JudgeMismatchError if another judge made the calibration."""
    if calibration.fingerprint != fingerprint:
        raise JudgeMismatchError(
            f"calibration {calibration.name!r} was made with judge {calibration.judge!r} "
            f"({calibration.fingerprint[:12]}), this judge is {fingerprint[:12]}: model, prompt, "
            "prefill or label tokens differ. Calibrate under another name, or delete the "
            "calibration first"
        )
