"""Folds old draws of the log of audits into counts, so that the log does not grow for ever.

A draw goes with all of its entries, or stays with all of them. It stays

- if a judgment by the version in force has it. So no figure of the monitor depends on folds;
- if it is younger than the days to keep, or than a draw of the version in force;
- if its label was changed, or if it was closed: these are entries of the trail;
- if it is not older than a label that absorb has not taken. Absorb refuses a period with draws that
  have no label, because people choose which draws they label. Without the other draws of their
  period, labels that were chosen would pass for a random sample;
- if it is the newest of the log, by which a start recognises its secret.

A step removes about a thousand entries and appends their counts, and does nothing if the log has
grown since it was planned. So replicas can fold at once, and a process may end at any moment.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.core.calibration import Calibration
from app.core.errors import StoreCorruptError, StoreUnavailableError
from app.ports import CalibrationStore, Version
from app.service.auditing.absorption import example_of
from app.service.auditing.auditor import Auditor
from app.service.auditing.entries import Decider, Fold, FoldedCount, written
from app.service.auditing.figures import is_error
from app.service.auditing.ledger import CLOSED, NO_LABEL, TIE, Audit, Ledger, Rows, SetView
from app.service.calibration.batch import JudgedBatch
from app.service.calibration.cache import Calibrations
from app.service.calibration.trail import Change
from app.service.off_loop import off_loop

DAY_S = 86400.0
# Entries that a step removes, unless one draw has more.
STEP_ENTRIES = 1000
_FIRST_S = 60.0
_EVERY_S = 3600.0
# A step is followed by a pause that is so many times as long.
_REST = 2.0

logger = logging.getLogger("app.audits")


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """Old labels that absorb has not taken, and that hold the folding of their set up.

    Args:
        labels: Their number.
        id: Id of the draw of the oldest one.
        at: Time of the judgment that was drawn, in seconds since 1970.
    """

    labels: int
    id: str
    at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class FoldedAudits:
    """The folded draws of a set.

    Args:
        keep_days: Days after which draws are folded; None if they are kept.
        until: Time of the newest folded comparison, in seconds since 1970; None without one.
        held: The labels that hold further folding up; None if none do.
        counts: The folded judgments by version and criterion, oldest first.
    """

    keep_days: float | None
    until: float | None
    held: Held | None
    counts: Sequence[FoldedCount]


class Retention:
    """Folds the old draws of all sets of this judge, and of deleted sets.

    Args:
        auditor: Keeps the audits.
        calibrations: The cache of the sets.
        store: The store of the sets.
        fingerprint: Fingerprint of the judge.
        keep_days: Days after which draws are folded; None to keep them.
        now: Clock in seconds since 1970.
    """

    def __init__(
        self,
        auditor: Auditor,
        calibrations: Calibrations,
        store: CalibrationStore,
        *,
        fingerprint: str,
        keep_days: float | None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._auditor = auditor
        self._calibrations = calibrations
        self._store = store
        self._fingerprint = fingerprint
        self._keep_days = keep_days
        self._now = now
        # Set -> the labels that the log of this process has named.
        self._told: dict[str, Held | None] = {}

    async def follow(self) -> None:
        """Folds every hour, unless all draws are kept; runs until it is cancelled."""
        if self._keep_days is None:
            return
        await asyncio.sleep(_FIRST_S)
        while True:
            with suppress(StoreUnavailableError, StoreCorruptError):
                await self.run()
            await asyncio.sleep(_EVERY_S)

    async def run(self) -> int:
        """Folds all that can be folded now, in steps; returns the number of judgments.

        Raises:
            StoreUnavailableError: The store does not answer; the steps so far are done.
        """
        await self._auditor.catch_up()
        folded = 0
        for name in self._auditor.ledger.calibrations:
            try:
                folded += await self._fold_set(name)
            except StoreCorruptError as exc:
                logger.warning("the audits of calibration %r are not folded: %s", name, exc.detail)
        return folded

    async def of(self, name: str) -> FoldedAudits:
        """Returns the folded draws of a set, and what holds further folding up.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        await self._auditor.catch_up()
        plan, folds = await self._plan(name), self._auditor.ledger.folds
        return FoldedAudits(
            keep_days=self._keep_days,
            until=folds.until(name),
            held=None if plan is None else plan.held,
            counts=folds.counts(name),
        )

    def held(self, name: str) -> Held | None:
        """Returns the labels that held the folding of a set up when this process last tried."""
        return self._told.get(name)

    async def _fold_set(self, name: str) -> int:
        """Folds the draws of a set; returns the number of judgments."""
        judgments = entries = 0
        plan = await self._plan(name)
        while plan is not None and (rows := plan.step()) is not None:
            begun = time.monotonic()
            if await self._store.version(name) != plan.version:
                # Draws of this version must stay, and labels may have left the set.
                break
            fold = await self._auditor.fold(plan.fold_of(rows, at=self._now()))
            if fold is not None:
                judgments += sum(count.draws for count in fold.counts)
                entries += sum(last - first + 1 for first, last in fold.positions)
            elif plan.view.ledger is not self._auditor.ledger:
                plan = await self._plan(name)
            await asyncio.sleep(_REST * (time.monotonic() - begun))
        if judgments:
            logger.info(
                "folded %d audits of calibration %r, all before %s: %d entries of the log",
                judgments,
                name,
                written(self._auditor.ledger.folds.until(name) or 0.0),
                entries,
            )
        self._tell(name, None if plan is None else plan.held)
        return judgments

    def _tell(self, name: str, held: Held | None) -> None:
        """Logs the labels that hold the folding of a set up, if they are others than before."""
        if held is not None and held != self._told.get(name):
            logger.warning(
                "audits of calibration %r from %s on are not folded: %d labels wait for absorb, "
                "the oldest is that of audit %s; docs/guides/audits.md says what to do",
                name,
                written(held.at),
                held.labels,
                held.id,
            )
        self._told[name] = held

    async def _plan(self, name: str) -> "_Plan | None":
        """Returns the old draws of a set; None if there are none, or if they are not to be folded.

        Raises:
            StoreUnavailableError: The store does not answer.
            StoreCorruptError: The set cannot be read.
        """
        if self._keep_days is None:
            return None
        view, before = self._auditor.ledger.view(name), self._now() - self._keep_days * DAY_S
        if not await off_loop(_has_old, view, before):
            return None
        calibration = await self._calibrations.current(name)
        if calibration is None and not await self._is_deleted(name):
            # A restore may bring the set back.
            return None
        if calibration is not None and calibration.fingerprint != self._fingerprint:
            return None
        return await off_loop(_Plan.of, view, name, calibration=calibration, before=before)

    async def _is_deleted(self, name: str) -> bool:
        """Whether somebody has deleted the set; the store may also have lost it."""
        records = await self._store.records(name, before=None, limit=1)
        return bool(records) and Change.parse(name, records[0]).action == "delete"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Candidates:
    """Draws to fold, in the order of the log.

    Args:
        rows: Shape (n,). Their rows.
        labels: Shape (n,). Codes of their labels.
        entries: Shape (n,). Numbers of their entries.
        uses: Rows of all of these entries, draw after draw.
    """

    rows: NDArray[np.intp]
    labels: NDArray[np.uint8]
    entries: NDArray[np.int64]
    uses: NDArray[np.intp]


class _Plan:
    """The draws of a set that can be folded, as far as another thread could see.

    Args:
        view: The draws.
        name: Name of the set.
        version: The version in force; None for a deleted set.
        candidates: The draws to fold.
        held: The labels that hold further folding up; None if none do.
    """

    def __init__(
        self,
        view: SetView,
        name: str,
        *,
        version: Version | None,
        candidates: _Candidates,
        held: Held | None,
    ) -> None:
        self.view = view
        self.version = version
        self.held = held
        self._name = name
        self._all = candidates
        self._ends = np.cumsum(candidates.entries)
        self._next = 0

    @classmethod
    def of(
        cls, view: SetView, name: str, *, calibration: Calibration | None, before: float
    ) -> "_Plan":
        """Looks for the draws to fold; long work.

        Args:
            view: The draws.
            name: Name of the set.
            calibration: The set as it is now; None if it was deleted.
            before: The end of the time that may be folded, in seconds since 1970.
        """
        draws, uses = view.draws, view.uses
        write_id = None if calibration is None else calibration.write_id
        codes = [n for n, decider in enumerate(view.deciders) if decider.write_id == write_id]
        in_force = uses[np.isin(uses["decider"], codes)]
        stays = np.zeros(len(draws), dtype=bool)
        stays[in_force["draw"]] = True
        before = min(before, in_force["at"].min(initial=before))
        # Copied before labels are compared: a step finds labels that have changed since.
        labels = draws["label"].copy()
        waiting = _not_absorbed(view, calibration, before=before)
        before = min([before, *(audit.draw.at for audit in waiting)])
        first_at = uses["at"][draws["first_use"]]
        stays |= (first_at >= before) | (draws["last_at"] >= before)
        stays |= (labels == CLOSED) | (draws["label_changes"] > 0)
        stays[-1:] = True
        rows = np.flatnonzero((draws["calibration"] == view.number) & ~stays)
        candidates = _Candidates(
            rows=rows,
            labels=labels[rows],
            # Not the present numbers of entries: `uses` does not have the newest ones.
            entries=np.bincount(uses["draw"], minlength=len(draws))[rows],
            uses=_entries_of(rows, uses, draws=len(draws)),
        )
        version = None
        if calibration is not None:
            version = Version(calibration.write_id, calibration.version)
        return cls(view, name, version=version, candidates=candidates, held=_held(waiting))

    def step(self) -> slice | None:
        """Returns the next candidates, with about `STEP_ENTRIES` entries; None after the last."""
        begin = self._next
        if begin == len(self._ends):
            return None
        before = self._ends[begin - 1] if begin else 0
        end = int(np.searchsorted(self._ends, before + STEP_ENTRIES, side="right"))
        self._next = max(end, begin + 1)
        return slice(begin, self._next)

    def fold_of(self, chosen: slice, *, at: float) -> Callable[[Ledger], Fold | None]:
        """Returns a function that folds some candidates, but for those that have changed since.

        Args:
            chosen: The candidates.
            at: Time of the fold, in seconds since 1970.
        """

        def fold_of(ledger: Ledger) -> Fold | None:
            if ledger is not self.view.ledger:
                return None
            view = ledger.view(self._name)
            uses = view.uses[self._unchanged(view, chosen)]
            return _fold(self._name, view, uses, at=at) if len(uses) else None

        return fold_of

    def _unchanged(self, view: SetView, chosen: slice) -> NDArray[np.intp]:
        """Returns the entries of the candidates that are unchanged."""
        rows, entries = self._all.rows[chosen], self._all.entries[chosen]
        draws = view.draws[rows]
        is_same = draws["calibration"] == view.number
        is_same &= draws["entries"] == entries
        is_same &= (draws["label"] == self._all.labels[chosen]) & (draws["label_changes"] == 0)
        end = self._ends[chosen.stop - 1]
        uses = self._all.uses[end - entries.sum() : end]
        unchanged: NDArray[np.intp] = uses[np.repeat(is_same, entries)]
        return unchanged


def _has_old(view: SetView, before: float) -> bool:
    """Whether a set has draws that nobody has judged since a time."""
    old = (view.draws["calibration"] == view.number) & (view.draws["last_at"] < before)
    return bool(old.any())


def _not_absorbed(view: SetView, calibration: Calibration | None, *, before: float) -> list[Audit]:
    """Returns the audits before a time whose labels would change the set if they were absorbed."""
    draws = view.draws
    is_labelled = (draws["label"] != NO_LABEL) & (draws["label"] != CLOSED)
    is_before = view.uses["at"][draws["first_use"]] < before
    rows = np.flatnonzero((draws["calibration"] == view.number) & is_labelled & is_before)
    # A label that was closed meanwhile is found by the step.
    audits = [audit for audit in view.ledger.audits_at(rows) if audit.label not in (None, "none")]
    # A tie that the set does not have changes no threshold.
    known = {} if calibration is None else calibration.examples
    audits = [audit for audit in audits if audit.label != "tie" or audit.draw.digest in known]
    if calibration is None or not audits:
        return audits
    batch = JudgedBatch(
        examples=[example_of(audit) for audit in audits],
        fingerprint=calibration.fingerprint,
        label_noise=None,
        action="absorb",
    )
    changed = batch.changed_in(calibration)
    return [audit for audit in audits if audit.draw.digest in changed]


def _held(waiting: Sequence[Audit]) -> Held | None:
    oldest = min(waiting, key=lambda audit: audit.draw.at, default=None)
    if oldest is None:
        return None
    return Held(labels=len(waiting), id=oldest.draw.id, at=oldest.draw.at)


def _entries_of(rows: NDArray[np.intp], uses: Rows, *, draws: int) -> NDArray[np.intp]:
    """Returns the rows of the entries of some draws, draw after draw, in the order of the log.

    Args:
        rows: The draws.
        uses: All entries.
        draws: Number of all draws.
    """
    is_wanted = np.zeros(draws, dtype=bool)
    is_wanted[rows] = True
    entries = np.flatnonzero(is_wanted[uses["draw"]])
    return entries[np.argsort(uses["draw"][entries], kind="stable")]


def _fold(name: str, view: SetView, uses: Rows, *, at: float) -> Fold:
    """Returns the fold of some entries."""
    draws = view.draws[uses["draw"]]
    until = view.uses["at"][draws["first_use"]].max()
    positions = np.sort(uses["position"])
    begins = np.flatnonzero(np.diff(positions, prepend=-1) != 1)
    ends = np.append(begins[1:], len(positions)) - 1
    runs = zip(positions[begins].tolist(), positions[ends].tolist(), strict=True)
    return Fold(
        calibration=name,
        positions=tuple(runs),
        until=float(until),
        counts=tuple(
            _count(view.deciders[number], uses[of_one], draws=draws[of_one])
            for number in np.unique(uses["decider"]).tolist()
            if number >= 0
            for of_one in (uses["decider"] == number,)
        ),
        at=at,
    )


def _count(decider: Decider, uses: Rows, *, draws: Rows) -> FoldedCount:
    """Counts the judgments of one decider; `draws` has the draw of each."""
    accepted = draws[uses["accepted"]]
    label = accepted["label"]
    is_sided = (label != NO_LABEL) & (label != TIE)
    wrong = is_sided & is_error(accepted)
    return FoldedCount(
        decider=decider,
        abstained=len(draws) - len(accepted),
        right=int((is_sided & ~wrong).sum()),
        wrong=int(wrong.sum()),
        ties=int((label == TIE).sum()),
        unlabelled=int((label == NO_LABEL).sum()),
        first_at=float(uses["at"].min()),
        last_at=float(uses["at"].max()),
    )
