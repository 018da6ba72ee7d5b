"""The read side of calibration sets: kept in memory, a new version is noticed within a second.

A store that tells of changes is listened to, so that a new version is here before anybody asks; and
whoever judges has the version confirmed every half second all the same.

Judging goes on without the store for a while: with what is in memory, saying how old that is.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import aclosing, suppress
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
from app.ports import Announcing, CalibrationStore, StoredCalibration, Version
from app.service.calibration.codec import decode, release
from app.service.calibration.drift import Drift
from app.service.off_loop import off_loop
from app.telemetry import CalibrationFigures, Telemetry

# A replica learns of a new version within a second; asking the store costs one short read.
_FRESH_S = 0.5
# How long a judgment waits for a store that hangs before it goes on with what is in memory.
_PATIENCE_S = 0.25
# Between two tries to listen to the store.
_LISTEN_AGAIN_S = 1.0
# Between two looks at the sets that nobody judges by.
_CONFIRM_S = 15.0
# Callers name sets: so many at most are kept in memory, and are labels of the metrics.
_MOST_KEPT = 1000
_MOST_SHOWN = 100

DEFAULT_CALIBRATION = "default"

logger = logging.getLogger("app.calibrations")


class Usable(NamedTuple):
    """A calibration to judge by.

    Args:
        calibration: As the store had it last.
        age_s: Seconds since the store said so; 0 while it answers.
    """

    calibration: Calibration
    age_s: float


class _Asked(NamedTuple):
    """A question to the store that is under way, or that it did not answer."""

    answer: asyncio.Task[Calibration | None]
    begun: float
    wait_until: float


class Calibrations:
    """Calibration sets as the store has them, at most half a second ago.

    Args:
        store: Where they are kept.
        telemetry: Counts reads that fail.
        max_staleness_s: How long judging goes on with a set that the store does not confirm.
        min_label_mass: Examples on which the judge said less than this of the labels count as
            never accepted.
        clock: Monotonic, in seconds.
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
        # Name -> the set and when the store last confirmed it.
        self._known: dict[str, tuple[Calibration, float]] = {}
        self._asked: dict[str, _Asked] = {}
        self._store_is_lost = False
        self.drift = Drift()
        telemetry.show_calibrations(self._figures, count=lambda: len(self._known))

    async def usable(self, name: str, *, fingerprint: str) -> Usable:
        """The set to judge by, at most half a second old, or older while the store is gone.

        Args:
            name: Of the set.
            fingerprint: The judge that wants to use it.

        Raises:
            CalibrationNotFoundError: There is none.
            JudgeMismatchError: It was made with another judge.
            StoreUnavailableError: The store does not answer, and nothing in memory is young enough.
        """
        known = self._known.get(name)
        if known is not None and self._clock() - known[1] < _FRESH_S:
            usable = Usable(known[0], 0.0)
        elif known is None:
            usable = Usable(_found(name, await asyncio.shield(self._ask(name).answer)), 0.0)
        else:
            usable = await self._confirmed(name, *known)
        refuse_other_judge(usable.calibration, fingerprint)
        return usable

    async def _confirmed(self, name: str, known: Calibration, confirmed: float) -> Usable:
        """Asks the store, and goes on without it where it does not answer."""
        asked = self._ask(name)
        try:
            async with asyncio.timeout(max(0.0, asked.wait_until - self._clock())):
                # Shielded: it is the others' question too, and goes on when this one has left.
                return Usable(_found(name, await asyncio.shield(asked.answer)), 0.0)
        except (TimeoutError, StoreUnavailableError) as exc:
            age_s = self._clock() - confirmed
            if age_s > self._max_staleness_s:
                raise StoreUnavailableError(
                    f"the calibration store has not answered for {age_s:.0f} s, and thresholds "
                    f"may be {self._max_staleness_s:g} s old (SCOPE_MAX_STALENESS_S)"
                ) from exc
            return Usable(known, age_s)

    def _ask(self, name: str) -> _Asked:
        """One question at a time for a set, and after a failure none for half a second."""
        asked, now = self._asked.get(name), self._clock()
        if asked is None or (asked.answer.done() and now - asked.begun >= _FRESH_S):
            # After a failure nobody waits again: the next who asks sees whether it is back.
            wait_until = now + _PATIENCE_S if asked is None else now
            asked = _Asked(asyncio.ensure_future(self.current(name)), now, wait_until)
            asked.answer.add_done_callback(lambda answer: self._note(name, answer))
            self._asked[name] = asked
        return asked

    def _note(self, name: str, answer: "asyncio.Task[Calibration | None]") -> None:
        """Keeps only failures: what was found is known, and what was not may come any moment."""
        failed = not answer.cancelled() and isinstance(answer.exception(), StoreUnavailableError)
        asked = self._asked.get(name)
        if asked is not None and asked.answer is answer and not (failed and name in self._known):
            del self._asked[name]

    async def get(self, name: str) -> Calibration:
        """The version that the store has right now.

        Raises:
            CalibrationNotFoundError: There is none.
            StoreUnavailableError: The store does not answer.
        """
        return _found(name, await self.current(name))

    async def current(self, name: str, *, read_anew: bool = False) -> Calibration | None:
        """The version that the store has right now; None if there is none.

        Args:
            name: Of the set.
            read_anew: Read and check the set even where its version is in memory: something else
                than this service may have changed it and left the version as it was.

        Raises:
            StoreCorruptError: The store holds something that this version did not write. What is in
                memory stays there.
        """
        before = known = self._in_memory(name)
        asked = self._clock()
        try:
            version = await self._store.version(name)
            if version is None:
                known = None
            elif read_anew or known is None or version != Version(known.write_id, known.version):
                stored = await self._store.read(name)
                # Thresholds are computed off the event loop: a million points take a second.
                known = await off_loop(self._decoded, name, stored) if stored else None
        except StoreUnavailableError as exc:
            self.count_store_error()
            self._note_store(lost=exc.detail)
            raise
        self._note_store(lost=None)
        # Whoever wrote or deleted meanwhile knows better than what was read before.
        if self._in_memory(name) is before:
            if known is None:
                self._known.pop(name, None)
            else:
                self._keep(known, asked)
        return known

    def _in_memory(self, name: str) -> Calibration | None:
        known = self._known.get(name)
        return None if known is None else known[0]

    async def follow(self) -> None:
        """Keeps the sets in memory as the store has them, also while nobody judges.

        Takes new versions in as soon as the store tells of them, and has all confirmed now and
        then; runs until it is cancelled.
        """
        async with asyncio.TaskGroup() as both:
            both.create_task(self._confirm())
            if isinstance(self._store, Announcing):
                both.create_task(self._listen(self._store))

    async def _confirm(self) -> None:
        """What was not told is found here; and a store that goes was there a moment ago."""
        while True:
            await asyncio.sleep(_CONFIRM_S)
            await self._refresh(self._known)

    async def _listen(self, store: Announcing) -> None:
        deaf = False
        while True:
            try:
                async with aclosing(store.changes()) as changes:
                    async for name in changes:
                        if name is None and deaf:
                            logger.warning("the calibration store tells of new versions again")
                        deaf = deaf and name is not None
                        await self._refresh(self._known if name is None else [name])
            except StoreUnavailableError as exc:
                if not deaf:
                    logger.warning("new versions are asked for, and not told of: %s", exc.detail)
                deaf = True
            await asyncio.sleep(_LISTEN_AGAIN_S)
            await self._refresh(self._known)

    async def _refresh(self, names: Iterable[str]) -> None:
        """Reads what has changed of these, as far as they are in memory."""
        for name in list(names):
            if name in self._known:
                # Counted there, or told to whoever judges by the set.
                with suppress(ScopeJudgeError):
                    await self.current(name)

    def _note_store(self, *, lost: str | None) -> None:
        """Logs that the store is gone, or back, once each."""
        if lost is not None and not self._store_is_lost:
            logger.warning(
                "judging goes on without the calibration store for at most %g s: %s",
                self._max_staleness_s,
                lost,
            )
        elif lost is None and self._store_is_lost:
            logger.warning("the calibration store is back")
        self._store_is_lost = lost is not None

    def count_store_error(self) -> None:
        """Counts a call that the store did not answer, for the metrics."""
        self._telemetry.count_store_error()

    def _decoded(self, name: str, stored: StoredCalibration) -> Calibration:
        calibration = decode(name, stored, min_label_mass=self.min_label_mass)
        _ = calibration.curve
        release(stored.examples)
        return calibration

    async def find_shown_thresholds(self, *, within_s: float) -> None:
        """Computes what the metrics show of each set, as far as there is time for it."""
        known = self._known.copy()
        shown = [known[name][0] for name in self._shown(known)]
        await self.find_thresholds(shown, within_s=within_s)

    async def find_thresholds(
        self, sets: Iterable[Calibration], *, within_s: float = math.inf
    ) -> None:
        """Computes the standard thresholds of sets, which they then keep, off the event loop.

        Args:
            sets: Those whose thresholds will be shown.
            within_s: What is not begun by then is left out.
        """
        until = time.monotonic() + within_s
        for each in sets:
            if "standard_rows" not in vars(each) and time.monotonic() < until:
                # One at a time, so that others have their turn between two.
                await off_loop(getattr, each, "standard_rows")

    def _figures(self) -> list[CalibrationFigures]:
        """The gauges of the sets that are shown."""
        # A copy: this runs in the thread that writes the metrics.
        now, sets = self._clock(), self._known.copy()
        return [
            CalibrationFigures(
                name=name,
                version=known.version,
                n=known.n,
                changed_at=known.changed_at,
                unconfirmed_s=now - confirmed if self._store_is_lost else 0.0,
                thresholds=_found_thresholds(known),
                traffic=self.drift.figures(known),
            )
            for name in self._shown(sets)
            for known, confirmed in (sets[name],)
        ]

    def _shown(self, sets: Collection[str]) -> list[str]:
        """The sets that have gauges: the default one, then those that were judged by last.

        So nobody takes the gauges of a set in use away by making others.
        """
        wanted = (DEFAULT_CALIBRATION, *self.drift.names(), *sorted(sets))
        known = dict.fromkeys(name for name in wanted if name in sets)
        return sorted(islice(known, _MOST_SHOWN))

    def known(self) -> list[Calibration]:
        """The sets that are in memory, by name, without asking the store."""
        return [calibration for _, (calibration, _) in sorted(self._known.items())]

    def usable_without_store(self) -> bool:
        """Whether any set in memory could be judged by if the store did not answer now."""
        oldest = self._clock() - self._max_staleness_s
        return any(confirmed >= oldest for _, confirmed in self._known.values())

    def remember(self, calibration: Calibration) -> None:
        """Takes a version that was just written."""
        self._keep(calibration, self._clock())
        self._asked.pop(calibration.name, None)

    def _keep(self, calibration: Calibration, confirmed: float) -> None:
        """Keeps a set in memory, and drops the oldest that is not in use where there are many."""
        self._known[calibration.name] = (calibration, confirmed)
        if len(self._known) > _MOST_KEPT:
            in_use = {DEFAULT_CALIBRATION, *self.drift.names()[: _MOST_KEPT // 2]}
            self.forget(next(name for name in self._known if name not in in_use))

    def forget(self, name: str) -> None:
        """Drops a set that is gone; what was asked of it before is no answer any more."""
        self._known.pop(name, None)
        self._asked.pop(name, None)

    async def all(self) -> list[Calibration]:
        """Every set that can be read, by name."""
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
            'judge with "alpha": null, which promises nothing'
        )
    return calibration


def _found_thresholds(calibration: Calibration) -> list[tuple[str, float, float]]:
    """The standard thresholds, if they have been computed."""
    rows = vars(calibration).get("standard_rows", ())
    return [(row.guarantee, row.alpha, row.threshold) for row in rows]


def refuse_other_judge(calibration: Calibration, fingerprint: str) -> None:
    """Raises JudgeMismatchError unless the calibration was made with this very judge."""
    if calibration.fingerprint != fingerprint:
        raise JudgeMismatchError(
            f"calibration {calibration.name!r} was made with judge {calibration.judge!r} "
            f"({calibration.fingerprint[:12]}), this judge is {fingerprint[:12]}: model, prompt, "
            "prefill or label tokens differ. Calibrate under another name, or delete it first"
        )
