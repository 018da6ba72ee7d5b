"""Draws judgments for audits, takes labels for them, and follows the log of both."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from app.core.comparison import AuditReference, Label
from app.core.errors import ForbiddenError, StoreCorruptError, StoreUnavailableError
from app.ports import AuditStore
from app.service.auditing.entries import LabelEntry
from app.service.auditing.ledger import Draw, Ledger, Status
from app.service.auditing.replay import PlacedEntry, Replay
from app.service.auditing.sampling import Candidate, Drawn, Sampler
from app.service.off_loop import off_loop
from app.telemetry import Telemetry

# Interval at which the end of the log is asked for.
_FOLLOW_S = 1.0
# A judgment waits for so long until the store has taken its draw.
_PATIENCE_S = 2.0
# More candidates, or more characters of them, are hashed on another thread.
_MOST_ON_LOOP = 32
_MOST_CHARACTERS_ON_LOOP = 2**16
# More draws are searched on another thread.
_MOST_SEARCHED_ON_LOOP = 2000

logger = logging.getLogger("app.audits")


class LabelReport(NamedTuple):
    """The outcome of a batch of labels.

    Args:
        labelled: Number of draws that got their first label.
        updated: Number of labels that replaced another one.
        unchanged: Number of labels that the draws had already.
        unknown: Ids without a draw.
        expired: Ids of draws that were not labelled in time, and take no label any more.
    """

    labelled: int
    updated: int
    unchanged: int
    unknown: tuple[str, ...]
    expired: tuple[str, ...]


class AuditPage(NamedTuple):
    """Some draws with their status, oldest first.

    Args:
        draws: The draws.
        next_after: Position after which the next page begins; None for the last page.
    """

    draws: list[tuple[Draw, Status]]
    next_after: int | None


class Auditor:
    """Keeps the audits of one service.

    Args:
        store: The store of the log.
        telemetry: Counts draws, and calls that the store does not answer.
        fingerprint: Fingerprint of the judge.
        rate: Probability with which a comparison is drawn, in [0, 1].
        expires_s: Seconds after its judgment until which a draw waits for its label.
        now: Returns the current time in seconds since 1970.
    """

    def __init__(
        self,
        store: AuditStore,
        telemetry: Telemetry,
        *,
        fingerprint: str,
        rate: float,
        expires_s: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._telemetry = telemetry
        self._fingerprint = fingerprint
        self.rate = rate
        self.expires_s = expires_s
        self._now = now
        self._replay = Replay()
        self._sampler: Sampler | None = None
        self._is_lost = False
        # Held while the ledger is brought to a certain position.
        self._reading = asyncio.Lock()

    @property
    def ledger(self) -> Ledger:
        """The state of all audits; another object after the log of the store was replaced."""
        return self._replay.ledger

    async def open(self) -> None:
        """Reads the secret and the whole log.

        Raises:
            StoreUnavailableError: The store does not answer.
            StoreCorruptError: Another program changed the secret or the log.
        """
        with self._watched():
            await self._read_secret()
        await self.catch_up()

    async def _read_secret(self) -> None:
        """Reads the secret, which no draw needs at rate 0."""
        if self.rate > 0:
            secret = await self._store.secret()
            self._sampler = Sampler(secret, rate=self.rate, fingerprint=self._fingerprint)

    async def follow(self) -> None:
        """Keeps the ledger in step with the log; runs until it is cancelled."""
        while True:
            await asyncio.sleep(_FOLLOW_S)
            with suppress(StoreUnavailableError, StoreCorruptError):
                # After an outage the store may be another one, with another secret.
                await (self.open() if self._is_lost else self.catch_up())

    async def catch_up(self) -> None:
        """Applies all entries that the log has now.

        Raises:
            StoreUnavailableError: The store does not answer.
            StoreCorruptError: Another program changed the log.
        """
        async with self._reading:
            with self._watched():
                await self._read_all()
        self._note_found()

    async def _read_all(self) -> None:
        """Applies all entries of the log; begins anew if it is another log than before."""
        position = self.ledger.position
        end = await self._store.last_audit()
        if end >= position and await self._replay.read_to(self._store, end):
            return
        logger.warning("the store has another log of audits than before, which is read from 1")
        await self._read_secret()
        fresh = Replay()
        await fresh.read_to(self._store, end)
        self._replay = fresh

    async def draw(self, candidates: Sequence[Candidate]) -> list[AuditReference | None]:
        """Draws some judgments, and keeps the draws before the judgments are answered.

        A judgment whose draw cannot be kept is not drawn. That is counted, and does not depend on
        whether its verdict is right.

        Args:
            candidates: The judgments.

        Returns:
            For each candidate, in order, its id and rate, or None.
        """
        if self._sampler is None:
            return [None] * len(candidates)
        if _is_small(candidates):
            found = self._sampler.drawn(candidates, at=self._now())
        else:
            found = await off_loop(self._sampler.drawn, candidates, at=self._now())
        if not any(found):
            return [None] * len(candidates)
        new = {
            (each.entry.digest, each.entry.write_id, each.entry.criterion): each
            for each in found
            if each is not None and not self.ledger.knows_use(each.entry)
        }
        kept = await self._keep(list(new.values())) if new else False
        return [None if each is None else self._reference(each, kept=kept) for each in found]

    async def _keep(self, drawn: Sequence[Drawn]) -> bool:
        """Appends draws to the log; returns False if the store does not take them."""
        # Judgments do not wait for a store that has failed; `follow` notices when it is back.
        last = None if self._is_lost else await self._append(drawn)
        if last is None:
            self._telemetry.count_audit_draws(missed=len(drawn))
            return False
        self._telemetry.count_audit_draws(taken=len(drawn))
        first = last - len(drawn) + 1
        # If another replica has written in between, `follow` applies the entries in their order.
        if first == self.ledger.position + 1:
            self._replay.apply(
                PlacedEntry(position, each.text, each.entry)
                for position, each in enumerate(drawn, first)
            )
        return True

    async def _append(self, drawn: Sequence[Drawn]) -> int | None:
        """Returns the last position; None if the store does not answer in time."""
        with suppress(TimeoutError, StoreUnavailableError, StoreCorruptError), self._watched():
            async with asyncio.timeout(_PATIENCE_S):
                # A draw that a power cut takes is missed; who was right has nothing to do with it.
                # Waiting for the disk would take longer than a small judge needs.
                texts = [each.text for each in drawn]
                return await self._store.append_audits(texts, synced=False)
        return None

    def _reference(self, drawn: Drawn, *, kept: bool) -> AuditReference | None:
        """Returns what a drawn judgment is answered with."""
        entry = drawn.entry
        draw = self.ledger.draw(entry.id) if self.ledger.knows_use(entry) else None
        # Nobody should spend a label on a draw that takes none any more.
        if self._status(draw) == "expired" if draw else not kept:
            return None
        return AuditReference(entry.id, entry.rate)

    def _status(self, draw: Draw) -> Status:
        return draw.status(now=self._now(), expires_s=self.expires_s)

    async def label(
        self, labels: Sequence[tuple[str, Label]], *, by: str, may_use: Callable[[str], bool]
    ) -> LabelReport:
        """Takes labels of draws in one atomic step; sending them again changes nothing.

        Args:
            labels: Id and label, in order; the last label of a draw counts.
            by: Name of the key that sent the labels.
            may_use: Whether the sender may use a calibration set.

        Raises:
            ForbiddenError: A draw belongs to a set that the sender may not use; no label was taken.
            StoreUnavailableError: No label was taken; or all were, if the connection to the store
                broke. Sending them again is safe.
        """
        async with self._reading:
            with self._watched():
                await self._read_all()
            found = self._assessed(labels, by=by, may_use=may_use)
            with self._watched():
                before = await self._appended(found.entries)
        first = sum(label is None for label, _ in before)
        updated = sum(label not in (None, new) for label, new in before)
        refused = len(found.unknown) + len(found.expired)
        return LabelReport(
            labelled=first,
            updated=updated,
            unchanged=len(labels) - first - updated - refused,
            unknown=tuple(found.unknown),
            expired=tuple(found.expired),
        )

    def _assessed(
        self, labels: Sequence[tuple[str, Label]], *, by: str, may_use: Callable[[str], bool]
    ) -> "_Assessed":
        """Sorts labels into those that change something, unknown and expired ones."""
        found = _Assessed([], [], [])
        at, touched = self._now(), set[int]()
        for identifier, label in labels:
            draw = self.ledger.draw(identifier)
            if draw is None:
                found.unknown.append(identifier)
                continue
            if not may_use(draw.calibration):
                raise ForbiddenError(
                    f"the audit {identifier} belongs to the calibration {draw.calibration!r}, which"
                    f" the key {by!r} may not use; none of the labels was taken. Send only labels"
                    " of the sets that `scope-judge keys list` shows for this key"
                )
            if self._status(draw) == "expired":
                found.expired.append(identifier)
            elif draw.position in touched or self.ledger.label(identifier) != label:
                touched.add(draw.position)
                found.entries.append(LabelEntry(identifier, label, by, at))
        return found

    async def _appended(self, entries: Sequence[LabelEntry]) -> list[tuple[Label | None, Label]]:
        """Appends labels; returns for each the label before it and its own."""
        if not entries:
            return []
        texts = [each.text for each in entries]
        first = await self._store.append_audits(texts) - len(entries) + 1
        # Entries of other replicas may lie in between; these labels come after them.
        await self._replay.read_to(self._store, first - 1)
        before: list[tuple[Label | None, Label]] = []
        for position, (entry, text) in enumerate(zip(entries, texts, strict=True), first):
            before.append((self.ledger.label(entry.id), entry.label))
            self._replay.apply([PlacedEntry(position, text, entry)])
        return before

    async def page(
        self,
        *,
        calibration: str | None,
        status: Status | None,
        after: int,
        limit: int,
        may_use: Callable[[str], bool],
    ) -> AuditPage:
        """Returns draws, oldest first.

        Args:
            calibration: Only draws of this set; None for all sets.
            status: Only draws with this status; None for all of them.
            after: Only draws whose first entry lies after this position of the log.
            limit: Most draws to return, at least 1.
            may_use: Whether the caller may use a calibration set; draws of others are left out.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        await self.catch_up()
        ledger, now = self.ledger, self._now()

        def found() -> AuditPage:
            draws: list[tuple[Draw, Status]] = []
            for row in ledger.rows(calibration, after=after):
                own = ledger.status_of_row(row, now=now, expires_s=self.expires_s)
                if status not in (None, own) or not may_use(ledger.set_of_row(row)):
                    continue
                if len(draws) == limit:
                    return AuditPage(draws, draws[-1][0].position)
                draws.append((ledger.at_row(row), own))
            return AuditPage(draws, None)

        return found() if len(ledger) <= _MOST_SEARCHED_ON_LOOP else await off_loop(found)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Counts calls that the store does not answer, and logs the first one."""
        try:
            yield
        except (TimeoutError, StoreUnavailableError, StoreCorruptError) as exc:
            self._telemetry.count_store_error()
            if not self._is_lost:
                late = f"the store has not answered within {_PATIENCE_S:g} s"
                reason = late if isinstance(exc, TimeoutError) else exc.detail
                logger.warning("judging continues without draws for audits: %s", reason)
            self._is_lost = True
            raise

    def _note_found(self) -> None:
        """Logs one line when the store is back."""
        if self._is_lost:
            logger.warning("the store takes draws for audits again")
        self._is_lost = False


def _is_small(candidates: Sequence[Candidate]) -> bool:
    """Whether hashing candidates takes less than a millisecond."""
    if len(candidates) > _MOST_ON_LOOP:
        return False
    characters = sum(sum(map(len, each.comparison.texts)) for each in candidates)
    return characters <= _MOST_CHARACTERS_ON_LOOP


class _Assessed(NamedTuple):
    """Labels by their effect.

    Args:
        entries: Labels that change something.
        unknown: Ids without a draw.
        expired: Ids of draws that take no label any more.
    """

    entries: list[LabelEntry]
    unknown: list[str]
    expired: list[str]
