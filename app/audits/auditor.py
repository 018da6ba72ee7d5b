"""Draws judgments for audits, takes labels for them, and follows the audits of all replicas.

Each change of a set's audits is one compare-and-set step of the store: it succeeds only if this
process knows the present state of each row that it changes. So replicas agree on the first label of
a pair and on alarms, and no draw waits for labels of other pairs.
"""

import asyncio
import heapq
import logging
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from app.audits.book import MOST_CRITERIA, Book
from app.audits.entries import (
    AboutAlarm,
    Audit,
    AuditLabel,
    Decider,
    Draw,
    LabelEntry,
    Row,
    Status,
    TrailEntry,
    Use,
    key_of_row,
    pair_of,
    place_of_criterion,
    read_row,
    to_text,
)
from app.audits.sampling import Drawn, Sampler
from app.core.calibration import Calibration
from app.core.comparison import AuditReference, Criterion, CriterionDefaults
from app.core.errors import (
    ForbiddenError,
    LabelChangesError,
    StoreCorruptError,
    StoreUnavailableError,
)
from app.judges.judged import JudgedComparison
from app.observability.telemetry import Telemetry
from app.off_loop import off_loop
from app.ports import AuditStore, StoredRow, placed

# Interval at which changes of other processes are asked for.
_FOLLOW_S = 1.0
# A judgment waits for so long until the store has taken its draw.
_PATIENCE_S = 2.0
# More candidates are hashed, and more rows are written as JSON, on another thread.
_MOST_ON_LOOP = 32
_MOST_CHARACTERS_ON_LOOP = 2**16
# A person corrects a label a few times; a program that goes back and forth would fill the trail.
MOST_LABEL_CHANGES = 100
# Rows that are read in one step, which takes 5 ms.
_PAGE = 200
# Attempts at a change while other processes change the same set's audits.
_ATTEMPTS = 100
# Rows that one step removes, or whose texts it removes.
_STEP = 500

logger = logging.getLogger("app.audits")


@dataclass(frozen=True, kw_only=True, slots=True)
class SentLabel:
    """A label for a draw, as somebody sends it.

    Args:
        id: Id of the draw, in either order.
        label: The side that a person prefers, in the order of the id; "none" closes the draw.
        reason: Why the draw cannot be labeled; None with any other label.
    """

    id: str
    label: AuditLabel
    reason: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelReport:
    """The outcome of a batch of labels.

    Args:
        labelled: Number of draws that got their first label.
        closed: Number of draws without a label that were closed.
        updated: Number of labels that replaced another one.
        unchanged: Number of labels that the draws had already, or that have a later one in the
            batch.
        unknown: Ids without a draw.
        expired: Ids of draws that were not labeled in time, and take no more labels.
        earlier: Id of a draw that keeps the label of another key -> the name of that key.
    """

    labelled: int
    closed: int
    updated: int
    unchanged: int
    unknown: tuple[str, ...]
    expired: tuple[str, ...]
    earlier: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditPage:
    """Audits, oldest first.

    Args:
        audits: The audits.
        at: Time of their statuses, in seconds since 1970.
        next_after: Position after which the next page begins; None for the last page.
    """

    audits: Sequence[Audit]
    at: float
    next_after: int | None


class _Change:
    """A change of a set's audits that a store makes in one step.

    Args:
        book: The audits as they are.
        at: The time, in seconds since 1970.
    """

    def __init__(self, book: Book, *, at: float) -> None:
        # Where the next draw is in the order of draws.
        self.place = max(book.latest + 1, int(at * 1e6))
        self.rows = dict[str, Row | None]()
        self.texts = dict[str, str]()
        self.forgotten = set[str]()
        self.removed = set[str]()

    def put(self, row: Row) -> None:
        """Adds a row, or replaces its state."""
        self.rows[key_of_row(row)] = row

    def audit(self, book: Book, key: str) -> Audit | None:
        """Returns an audit as it is after the change so far."""
        row = self.rows[key] if key in self.rows else book.audits.get(key)
        return row if isinstance(row, Audit) else None

    def expected(self, book: Book) -> dict[str, int]:
        """Returns the positions of the rows that it changes or removes."""
        keys = (*self.rows, *self.removed)
        return {key: book.places[key] for key in keys if key in book.places}

    def stored_rows(self, position: int) -> list[StoredRow]:
        """Returns its rows as the store keeps them, which are after a position."""
        return [StoredRow(key, position, to_text(row)) for key, row in self.rows.items()]

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        return not self.rows and not self.removed


class Auditor:
    """Keeps the audits of one service.

    Args:
        store: The store of the audits.
        telemetry: Counts draws, and calls that the store does not answer.
        fingerprint: Fingerprint of the judge.
        rate: Probability with which a comparison is drawn, in [0, 1].
        expires_s: Seconds after its judgment until which a draw waits for its label.
        default: The service's own criterion of a set, which always has a place among those whose
            draws count; None for none.
        keeps_texts: Whether the store keeps the texts of drawn pairs until they have labels.
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
        default: CriterionDefaults | None = None,
        keeps_texts: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._telemetry = telemetry
        self._fingerprint = fingerprint
        self.rate = rate
        self.expires_s = expires_s
        self._default = default
        self.keeps_texts = keeps_texts
        self.now = now
        # The audits by the name of their set.
        self._books: dict[str, Book] = {}
        self._deciders: dict[Decider, Decider] = {}
        self._sampler: Sampler | None = None
        # Write id of a version -> number of refused draws.
        self._refused = Counter[str]()
        self._store_is_away = False
        # Whether the last write failed; reads may still work.
        self._store_refuses = False
        # Held while the audits are read.
        self._reading = asyncio.Lock()
        # Name of a set -> held while draws of it are written, so that they know of each other.
        self._drawing = defaultdict[str, asyncio.Lock](asyncio.Lock)
        # Name of a set -> the draws that wait for it, and the task that then writes all of them.
        self._waiting: dict[str, tuple[list[Drawn], asyncio.Task[None]]] = {}

    def book(self, name: str) -> Book:
        """Returns the audits of a set as they were read; another object once they were replaced."""
        return self._books.setdefault(name, Book(name=name))

    @property
    def books(self) -> Sequence[Book]:
        """The audits of all sets."""
        return list(self._books.values())

    async def open(self) -> None:
        """Reads the secret and all audits.

        Raises:
            StoreUnavailableError: The store does not answer.
            StoreCorruptError: Another program changed the secret or the audits.
        """
        async with self._reading:
            with self._watched():
                await self._read_all()
                await self._read_secret()
                self._check_secret()
        self._note_back()

    def _check_secret(self) -> None:
        """Ends drawing and raises StoreCorruptError if there are draws of another secret.

        A comparison would have two ids then, and count twice.
        """
        newest = max(
            (audit for book in self.books if (audit := book.newest()) is not None),
            key=lambda audit: audit.position,
            default=None,
        )
        if self._sampler is None or newest is None or self._sampler.made(newest.draw):
            return
        self._sampler = None
        raise StoreCorruptError(
            "the secret of the audits is not the one that made their draws. It was deleted or "
            "replaced: restore the store from a backup, or set SCOPE_AUDIT_RATE=0 to judge without "
            "draws"
        )

    async def _read_secret(self) -> None:
        """Reads the secret, which no draw needs at rate 0."""
        if self.rate > 0:
            secret = await self._store.secret()
            self._sampler = Sampler(
                secret,
                rate=self.rate,
                fingerprint=self._fingerprint,
                keeps_texts=self.keeps_texts,
            )

    async def follow(self) -> None:
        """Reads the changes of other processes; runs until it is cancelled.

        In an idle service this is also the call that notices a store that was replaced.
        """
        while True:
            await asyncio.sleep(_FOLLOW_S)
            with suppress(StoreUnavailableError, StoreCorruptError):
                # After an outage the store may be another one, with another secret.
                await (self.open() if self._store_is_away else self.catch_up())

    async def catch_up(self) -> None:
        """Reads all changes that the store has now.

        Raises:
            StoreUnavailableError: The store does not answer.
            StoreCorruptError: Another program changed the audits.
        """
        await self._read_changes()
        self._note_back()

    async def _read_changes(self) -> None:
        async with self._reading:
            with self._watched():
                await self._read_all()

    async def _read_all(self) -> None:
        """Reads the changes of all sets; starts over if the store has others than before."""
        # Before the store is asked: own writes may be newer than its answer.
        known = {name: book.position for name, book in self._books.items() if book.position}
        states = await self._store.audit_states()
        if any(name not in states or states[name].position < known[name] for name in known):
            logger.warning("the audits of the store were replaced: all of them are read again")
            self._books = {}
            await self._read_secret()
        elif states and not known:
            # A restore fills an empty store, and brings the secret of its draws along.
            await self._read_secret()
        for name, state in states.items():
            book = self.book(name)
            if book.position < state.position:
                await self._read(book, end=state.position)
            is_known = book.latest == book.position == state.position
            if is_known and len(book.places) != state.rows:
                # Another process has removed rows, or the store has lost some.
                await self._read_secret()
                book = Book(name=name)
                await self._read(book, end=state.position)
                self._books[name] = book

    async def _read(self, book: Book, *, end: int) -> None:
        """Reads the rows of a set that have changed, at least those up to a position."""
        while page := await self._store.audits(book.name, after=book.position, limit=_PAGE):
            for stored in page:
                book.apply(stored.key, stored.position, self._read_row(stored))
            book.position = max(book.position, page[-1].position)
            # The store in memory answers without a pause.
            await asyncio.sleep(0)
        book.position = max(book.position, end)
        book.latest = max(book.latest, end)

    def _read_row(self, stored: StoredRow) -> Row | None:
        """Reads a row; this service's setting decides when an audit expires."""
        row = read_row(stored)
        if not isinstance(row, Audit):
            return row
        # What thousands of rows have in common is kept once.
        uses = tuple(
            replace(use, decider=self._shared(use.decider), by=sys.intern(use.by))
            for use in row.uses
        )
        draw = replace(
            row.draw,
            decider=self._shared(row.draw.decider),
            fingerprint=sys.intern(row.draw.fingerprint),
            by=sys.intern(row.draw.by),
        )
        return replace(row, draw=draw, uses=uses, wait_s=self._wait_s(draw))

    def _shared(self, decider: Decider) -> Decider:
        return self._deciders.setdefault(decider, decider)

    def _wait_s(self, draw: Draw) -> float:
        return min(self.expires_s, draw.wait_s or self.expires_s)

    async def _change(
        self,
        name: str,
        plan: Callable[[Book, _Change], None],
        *,
        synced: bool = True,
    ) -> None:
        """Changes the audits of a set, in one step of the store.

        Args:
            name: Name of the set.
            plan: Puts the rows into a change, by the audits as they are. It is called again if
                somebody else has changed one of the rows.
            synced: Whether the change must be on the disk then.

        Raises:
            StoreUnavailableError: The store does not answer, or other processes were always first.
        """
        for _ in range(_ATTEMPTS):
            book = self.book(name)
            change = _Change(book, at=self.now())
            plan(book, change)
            if change.is_empty:
                return
            expected, position = change.expected(book), int(self.now() * 1e6)
            if len(change.rows) <= _MOST_ON_LOOP:
                rows = change.stored_rows(position)
            else:
                rows = await off_loop(change.stored_rows, position)
            with self._watched(writing=True):
                before = await self._store.write_audits(
                    name,
                    rows,
                    expected=expected,
                    texts=change.texts,
                    forgotten=change.forgotten,
                    removed=change.removed,
                    synced=synced,
                )
            if before is not None:
                if not self._take(self.book(name), change, placed(rows, after=before), before):
                    await self._read_changes()
                return
            await self._read_changes()
        raise StoreUnavailableError(
            f"other processes keep changing the audits of the calibration {name!r}; try again"
        )

    @staticmethod
    def _take(book: Book, change: _Change, stored: Sequence[StoredRow], before: int) -> bool:
        """Takes an own change into a book; returns False if others that it needs lie before it.

        Draws and labels are taken in any order, entries of the trail in their own.
        """
        follows = before == book.position
        for row, (key, position, _) in zip(change.rows.values(), stored, strict=True):
            if not isinstance(row, TrailEntry):
                book.apply(key, position, row)
            elif follows:
                book.apply(key, position, replace(row, position=position))
        book.remove(change.removed)
        if follows:
            last = stored[-1].position if stored else before
            book.position = last + bool(change.removed)
            book.latest = max(book.latest, book.position)
        return follows or not any(isinstance(row, TrailEntry) for row in change.rows.values())

    async def observe(self, judged: Sequence[JudgedComparison]) -> None:
        """Draws some of the judgments that used a set, and names the draws in them."""
        candidates = [item for item in judged if item.calibration is not None]
        if self.rate == 0 or not candidates:
            return
        for item, audit in zip(candidates, await self.draw(candidates), strict=True):
            if audit is not None:
                item.judgment = replace(item.judgment, audit=audit)

    async def draw(self, candidates: Sequence[JudgedComparison]) -> list[AuditReference | None]:
        """Draws some judgments, and keeps the draws before the judgments are answered.

        A judgment whose draw cannot be kept is not drawn. That is counted, and does not depend on
        whether its verdict is right. Nor is a comparison drawn while `MOST_OPEN` draws of its set
        are open, or a judgment under further criteria than the first `MOST_CRITERIA` of a version.

        Args:
            candidates: Judgments that used a set.

        Returns:
            For each candidate, in order, its id and rate, or None.
        """
        if self._sampler is None:
            return [None] * len(candidates)
        if _are_few(candidates):
            drawn = self._sampler.drawn(candidates, at=self.now())
        else:
            drawn = await off_loop(self._sampler.drawn, candidates, at=self.now())
        new = dict[str, list[Drawn]]()
        for each in drawn:
            if each is not None and self._use(each) is None:
                new.setdefault(each.draw.calibration, []).append(each)
        for name, draws in new.items():
            await self._keep(name, draws)
        return [None if each is None else self._reference(each) for each in drawn]

    def _use(self, drawn: Drawn) -> Use | None:
        audit = self.book(drawn.draw.calibration).audit(drawn.draw.id)
        return None if audit is None else audit.use(drawn.draw.decider)

    def _reference(self, drawn: Drawn) -> AuditReference | None:
        """Returns the audit reference for the answer to a drawn judgment."""
        draw = drawn.draw
        audit = self.book(draw.calibration).audit(draw.id)
        # Nobody should spend a label on a draw that takes no more labels.
        if (
            audit is None
            or audit.use(draw.decider) is None
            or audit.status(self.now()) == "expired"
        ):
            return None
        return AuditReference(id=draw.id, rate=draw.rate)

    async def _keep(self, name: str, draws: Sequence[Drawn]) -> None:
        """Keeps draws of a set, unless the store does not take them.

        Draws that come while others are written wait, and are then written together, in one step.
        """
        if name not in self._waiting:
            self._waiting[name] = [], asyncio.create_task(self._write_waiting(name))
        waiting, writing = self._waiting[name]
        waiting += draws
        # A caller may leave; the draws of the others are written all the same.
        await asyncio.shield(writing)

    async def _write_waiting(self, name: str) -> None:
        async with self._drawing[name]:
            draws, _ = self._waiting.pop(name)
            await self._write_draws(name, draws)

    async def _write_draws(self, name: str, draws: Sequence[Drawn]) -> None:
        """Writes draws of a set in one step, and counts what becomes of them."""
        refused, taken = list[Drawn](), 0

        def plan(book: Book, change: _Change) -> None:
            nonlocal taken
            refused.clear()
            taken = 0
            begun = {
                each.draw.decider.write_id: dict(book.begun(each.draw.decider.write_id))
                for each in draws
            }
            room = book.room(self.now())
            for each in draws:
                draw, key = each.draw, each.key
                audit = change.audit(book, key)
                if audit is not None and audit.use(draw.decider) is not None:
                    continue
                criteria = begun[draw.decider.write_id]
                if not self._has_room(each, criteria) or (audit is None and room <= 0):
                    refused.append(each)
                    continue
                use = Use(
                    position=change.place,
                    decider=draw.decider,
                    accepted=draw.accepted,
                    by=draw.by,
                    at=draw.at,
                )
                change.place += 1
                if draw.decider.criterion not in criteria:
                    place = place_of_criterion(len(criteria), draw.decider.write_id)
                    change.rows[place] = None
                    criteria[draw.decider.criterion] = use
                if audit is None:
                    audit = Audit(draw=draw, uses=(use,), wait_s=self._wait_s(draw))
                    room -= 1
                else:
                    audit = audit.used(use)
                if each.pair is not None and audit.label is None and not audit.has_texts:
                    audit = replace(audit, has_texts=True)
                    change.texts[key] = each.pair
                change.put(audit)
                taken += 1

        # Judgments do not wait for a store that has failed; `follow` notices when it is back.
        if not self._store_is_away:
            with suppress(TimeoutError, StoreUnavailableError, StoreCorruptError):
                # A draw that a power cut takes is missed; who was right has nothing to do with it.
                # Waiting for the disk would take longer than a small judge needs.
                with self._watched():
                    async with asyncio.timeout(_PATIENCE_S):
                        await self._change(name, plan, synced=False)
                for each in refused:
                    self._refused[each.draw.decider.write_id] += 1
                self._telemetry.count_audit_draws(taken=taken, refused=len(refused))
                return
        self._telemetry.count_audit_draws(missed=len(draws))

    def _has_room(self, drawn: Drawn, criteria: Mapping[Criterion, Use]) -> bool:
        """Whether the criterion of a draw is audited; the last place is that of the default."""
        criterion, room = drawn.draw.decider.criterion, MOST_CRITERIA - len(criteria)
        if criterion in criteria or self._is_default(criterion):
            return criterion in criteria or room > 0
        keeps_one = self._default is not None and not any(map(self._is_default, criteria))
        return room > keeps_one

    def _is_default(self, criterion: Criterion) -> bool:
        default = self._default
        return (
            default is not None
            and (criterion.alpha, criterion.guarantee)
            == (
                default.alpha,
                default.guarantee,
            )
            and criterion.delta in (None, default.delta)
        )

    def refused(self, calibration: Calibration) -> int:
        """Returns the number of draws that this process refused under further criteria."""
        return self._refused[calibration.write_id]

    async def label(
        self,
        labels: Sequence[SentLabel],
        *,
        by: str,
        may_use: Callable[[str], bool],
        yields: bool = False,
    ) -> LabelReport:
        """Takes labels of draws, in one step for each set; sending them again changes nothing.

        The label "none" closes a draw that nobody can label: other labels do not wait for it.

        Args:
            labels: The labels, in order; only the last label of a draw is written.
            by: Name of the key that sent the labels.
            may_use: Whether the sender may use a calibration set.
            yields: Whether labels of other keys stay, whichever process has taken them.

        Raises:
            ForbiddenError: A draw belongs to a set that the sender may not use; no label was taken.
            LabelChangesError: A label was changed 100 times already; no label was taken.
            StoreUnavailableError: Some labels were not taken. Sending all again is safe.
        """
        batch = _LabelBatch()
        await self._read_changes()
        by_set = self._sorted(labels, batch, by=by, may_use=may_use)
        assess = _Assessment(by=by, at=self.now(), yields=yields)
        if len(by_set) > 1:
            for name, sent in by_set.items():
                # So that nothing is taken if one of them is refused.
                assess(sent, self.book(name))
        await asyncio.sleep(0)
        for name, sent in by_set.items():
            await self._label_set(name, sent, assess, batch)
        _log_changes(batch.both)
        first = [entry.label for earlier, entry in batch.both if earlier is None]
        updated = len(batch.both) - len(first)
        refused = len(batch.unknown) + len(batch.expired) + len(batch.taken)
        return LabelReport(
            labelled=len(first) - first.count("none"),
            closed=first.count("none"),
            updated=updated,
            unchanged=len(labels) - len(first) - updated - refused,
            unknown=tuple(batch.unknown),
            expired=tuple(batch.expired),
            earlier=dict(batch.taken),
        )

    def _sorted(
        self,
        labels: Sequence[SentLabel],
        batch: "_LabelBatch",
        *,
        by: str,
        may_use: Callable[[str], bool],
    ) -> dict[str, list[SentLabel]]:
        """Returns the labels of each set; notes unknown ids in the batch."""
        by_set = dict[str, list[SentLabel]]()
        books = self.books
        for sent in labels:
            key = pair_of(sent.id)
            name = next((book.name for book in books if key in book.audits), None)
            if name is None:
                batch.unknown.append(sent.id)
            elif not may_use(name):
                raise ForbiddenError(
                    f"the audit {sent.id} belongs to the calibration {name!r}, which the key {by!r}"
                    " may not use; none of the labels was taken. Send only labels of the sets that "
                    "`scope-judge keys list` shows for this key"
                )
            else:
                by_set.setdefault(name, []).append(sent)
        return by_set

    async def _label_set(
        self, name: str, sent: Sequence[SentLabel], assess: "_Assessment", batch: "_LabelBatch"
    ) -> None:
        of_set = _LabelBatch()

        def plan(book: Book, change: _Change) -> None:
            nonlocal of_set
            of_set = assess(sent, book)
            for earlier, entry in of_set.both:
                audit = book.audit(entry.id)
                assert audit is not None, "labels of unknown draws are left out"
                labelled = audit.labelled(entry)
                change.put(labelled)
                change.forgotten.add(key_of_row(labelled))
                if earlier is not None or entry.label == "none":
                    number = labelled.label_changes
                    change.put(TrailEntry(entry=entry, before=earlier, number=number))

        await self._change(name, plan)
        batch.both += of_set.both
        batch.unknown += of_set.unknown
        batch.expired += of_set.expired
        batch.taken += of_set.taken

    async def page(
        self,
        *,
        calibration: str | None,
        status: Status | None,
        after: int,
        limit: int,
        may_use: Callable[[str], bool],
    ) -> AuditPage:
        """Returns audits, oldest first.

        Args:
            calibration: Only audits of this set; None for all sets.
            status: Only audits with this status; None for all of them.
            after: Only audits that were drawn after this position.
            limit: Most audits to return, at least 1; a few more if several sets have draws at the
                same position.
            may_use: Whether the caller may use a calibration set; audits of others are left out.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        await self.catch_up()
        now = self.now()
        audits = [
            audit
            for book in self._usable(calibration, may_use)
            for audit in book.audits.values()
            if audit.position > after and status in (None, audit.status(now))
        ]
        page = heapq.nsmallest(limit, audits, key=lambda audit: audit.position)
        is_last = len(page) == len(audits)
        if not is_last:
            shown = {audit.draw.id for audit in page}
            page += [
                audit
                for audit in audits
                if audit.position == page[-1].position and audit.draw.id not in shown
            ]
        return AuditPage(audits=page, at=now, next_after=None if is_last else page[-1].position)

    async def open_audits(
        self, calibration: str | None, *, may_use: Callable[[str], bool]
    ) -> list[Audit]:
        """Returns open audits, oldest first; see `page`."""
        await self.catch_up()
        audits = [
            audit for book in self._usable(calibration, may_use) for audit in book.open(self.now())
        ]
        return sorted(audits, key=lambda audit: audit.position)

    def _usable(self, calibration: str | None, may_use: Callable[[str], bool]) -> list[Book]:
        return [
            book for book in self.books if calibration in (None, book.name) and may_use(book.name)
        ]

    async def record(self, entries: Sequence[AboutAlarm]) -> None:
        """Records entries about alarms, without those that another replica has written.

        Raises:
            StoreUnavailableError: The store does not answer. Recording them again is safe.
        """
        by_set = dict[str, list[AboutAlarm]]()
        for entry in entries:
            by_set.setdefault(entry.calibration, []).append(entry)
        await self._read_changes()
        for name, of_set in by_set.items():

            def plan(book: Book, change: _Change, of_set: Sequence[AboutAlarm] = of_set) -> None:
                for entry in filter(book.alarms.takes, of_set):
                    change.put(TrailEntry(entry=entry))

            await self._change(name, plan)

    async def trail(self, calibration: str, *, before: int | None, limit: int) -> list[TrailEntry]:
        """Returns the trail of a set's audits, newest first.

        It has each changed label and closed draw, and each entry about an alarm.

        Args:
            calibration: Name of the set.
            before: Only entries before this position; None for all of them.
            limit: Most entries to return, at least 1.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        await self.catch_up()
        return self.book(calibration).page_of_trail(before, limit)

    async def remove_texts(self) -> None:
        """Removes the texts of expired audits.

        Raises:
            StoreUnavailableError: The store does not answer.
        """

        def plan(book: Book, change: _Change) -> None:
            for key, audit in book.with_texts():
                if audit.status(self.now()) != "open" and len(change.rows) < _STEP:
                    change.put(replace(audit, has_texts=False))
                    change.forgotten.add(key)

        for book in self.books:
            while any(audit.status(self.now()) != "open" for _, audit in book.with_texts()):
                await self._change(book.name, plan)
                book = self.book(book.name)

    async def forget(self, name: str, *, in_force: str | None, older_than: float) -> int:
        """Removes audits of versions out of force, and the entries about their labels.

        An audit stays while it is open, and while it may be among the draws since an active alarm.

        Args:
            name: Name of the set.
            in_force: Write id of the version in force; None if the set was deleted.
            older_than: Audits that have changed since stay, in seconds since 1970.

        Returns:
            The number of audits that were removed.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        removed = step = 0

        def plan(book: Book, change: _Change) -> None:
            nonlocal step
            old = book.out_of_force(in_force, older_than=older_than, now=self.now())
            change.removed |= set(old[:_STEP])
            step = len(change.removed & book.audits.keys())

        await self._read_changes()
        while self.book(name).out_of_force(in_force, older_than=older_than, now=self.now()):
            await self._change(name, plan)
            removed += step
        return removed

    @contextmanager
    def _watched(self, *, writing: bool = False) -> Iterator[None]:
        """Counts calls that the store does not answer, and logs the first one.

        Args:
            writing: Whether the call writes. A store on a full disk answers all other calls, so
                only a write shows that it takes draws again.
        """
        try:
            yield
        except (TimeoutError, StoreUnavailableError, StoreCorruptError) as exc:
            self._telemetry.count_store_error()
            if not (self._store_is_away or self._store_refuses):
                late = f"the store has not answered within {_PATIENCE_S:g} s"
                reason = late if isinstance(exc, TimeoutError) else exc.detail
                logger.warning("judging continues without draws for audits: %s", reason)
            self._store_is_away = True
            self._store_refuses |= writing
            raise
        if writing and self._store_refuses:
            self._store_refuses = False
            logger.warning("the store takes draws for audits again")

    def _note_back(self) -> None:
        """Logs one line when the store is back, unless its last write failed."""
        if self.rate > 0 and self._sampler is None:
            # Without the secret, the store is not the one that there was before.
            return
        if self._store_is_away and not self._store_refuses:
            logger.warning("the store takes draws for audits again")
        self._store_is_away = False


def _are_few(candidates: Sequence[JudgedComparison]) -> bool:
    """Whether hashing candidates takes less than a millisecond."""
    if len(candidates) > _MOST_ON_LOOP:
        return False
    texts = (text for candidate in candidates for text in candidate.comparison.texts)
    return sum(map(len, texts)) <= _MOST_CHARACTERS_ON_LOOP


@dataclass(kw_only=True, slots=True)
class _LabelBatch:
    """Labels by their effect.

    Args:
        both: Labels that change something, with the label that each one replaces.
        unknown: Ids without a draw.
        expired: Ids of draws that take no more labels.
        taken: Ids of draws that keep the label of another key, with the name of that key.
    """

    both: list[tuple[AuditLabel | None, LabelEntry]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)
    taken: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Assessment:
    """Sorts labels into those that change something, and those that are not taken.

    Args:
        by: Name of the key that sent them.
        at: Their time, in seconds since 1970.
        yields: Whether labels of other keys stay.
    """

    by: str
    at: float
    yields: bool

    def __call__(self, labels: Sequence[SentLabel], book: Book) -> _LabelBatch:
        batch = _LabelBatch()
        last = dict[int, tuple[AuditLabel | None, LabelEntry]]()
        for sent in labels:
            audit = book.audit(sent.id)
            if audit is None:
                batch.unknown.append(sent.id)
                continue
            if audit.status(self.at) == "expired":
                batch.expired.append(sent.id)
                continue
            if self.yields and audit.is_of_another(self.by):
                batch.taken.append((sent.id, audit.labelled_by or "service"))
                continue
            last.pop(audit.position, None)
            earlier = audit.label_of(sent.id)
            if earlier == sent.label:
                continue
            if audit.label_changes >= MOST_LABEL_CHANGES:
                raise LabelChangesError(
                    f"the label of the audit {sent.id} was changed {MOST_LABEL_CHANGES} times, too "
                    "often to change again; no label was taken"
                )
            entry = LabelEntry(
                id=sent.id, label=sent.label, by=self.by, at=self.at, reason=sent.reason
            )
            last[audit.position] = earlier, entry
        batch.both = list(last.values())
        return batch


def _log_changes(changes: Iterable[tuple[AuditLabel | None, LabelEntry]]) -> None:
    """Logs each changed label with both values, and each draw that was closed."""
    for earlier, entry in changes:
        if earlier is None and entry.label == "none":
            logger.info("audit %s: closed without a label by %r", entry.id, entry.by)
        elif earlier not in (None, entry.label):
            logger.warning(
                "audit %s: label changed from %s to %s by %r",
                entry.id,
                earlier,
                entry.label,
                entry.by,
            )
