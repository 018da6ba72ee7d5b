"""Draws judgments for audits, takes labels for them, and follows the audits of all replicas.

Each change of a set's audits is one compare-and-set step of the store: it succeeds only if this
process knows the present state of each row that it changes. So replicas agree on the first label of
a pair and on alarms, and no draw waits for labels of other pairs.
"""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from app.audits.book import MOST_CRITERIA, Book
from app.audits.entries import (
    Audit,
    AuditLabel,
    LabelEntry,
    Row,
    TrailEntry,
    key_of_row,
    pair_of,
    read_row,
    to_text,
    written,
)
from app.audits.sampling import Drawn, Sampler
from app.core.calibration import Calibration
from app.core.comparison import Case, Criterion, CriterionDefaults
from app.core.errors import (
    ForbiddenError,
    StoreCorruptError,
    StoreUnavailableError,
)
from app.flow import off_loop
from app.observability.telemetry import Telemetry
from app.ports import AuditState, AuditStore, RowsChange, StoredRow, placed
from scope_judge import records

# Interval at which changes of other processes are asked for.
_FOLLOW_S = 1.0
# A judgment waits for so long for its turn to draw, and until the store has taken its draw.
_PATIENCE_S = 2.0
# More candidates are hashed on another thread.
_MOST_ON_LOOP = 32
# Rows that are read in one step, which takes 5 ms.
_PAGE = 200
# Attempts at a change while other processes change the same set's audits.
_ATTEMPTS = 100

logger = logging.getLogger("app.audits")


@dataclass(kw_only=True, slots=True)
class AuditChange:
    """A change of a set's audits that a store makes in one step."""

    rows: dict[str, Row] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)

    def put(self, row: Row) -> None:
        """Adds a row, or replaces its state."""
        self.rows[key_of_row(row)] = row


class Auditor:
    """Keeps the audits of one service.

    Each method that is awaited raises StoreUnavailableError if the store does not answer, and
    StoreCorruptError if another program changed the audits. Trying again is safe.

    Args:
        rate: Probability with which a comparison is drawn, in [0, 1].
        expires_s: Seconds after its judgment until which a draw of this service waits for its
            label.
        default: The service's own criterion of a set, which always has a place among those whose
            draws count; None for none.
        keeps_texts: Whether the store keeps the texts of drawn pairs until they have labels.
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
        self.fingerprint = fingerprint
        self.rate = rate
        self._expires_s = expires_s
        self._default = default
        self._keeps_texts = keeps_texts
        self.now = now
        # The audits by the name of their set.
        self._books: dict[str, Book] = {}
        self._sampler: Sampler | None = None
        # Write id of a version -> number of refused draws.
        self._refused = Counter[str]()
        self._store_is_away = False
        # The kind of call that failed and was logged, until one of this kind succeeds.
        self._outage: Literal["read", "write"] | None = None
        # Locked while the audits are read.
        self._reading = asyncio.Lock()
        # Name of a set -> locked while its draws are written, so that they know of each other.
        self._drawing = defaultdict[str, asyncio.Lock](asyncio.Lock)

    def book(self, name: str) -> Book:
        """Returns the audits of a set as they were read; another object once they were replaced."""
        return self._books.setdefault(name, Book(name=name))

    @property
    def books(self) -> Sequence[Book]:
        """The audits of all sets."""
        return list(self._books.values())

    async def open(self) -> None:
        """Reads the secret and all audits."""
        async with self._reading:
            with self._watched():
                await self._read_all()
                # No draw needs it at rate 0.
                if self.rate > 0:
                    self._sampler = Sampler(
                        await self._store.secret(),
                        rate=self.rate,
                        fingerprint=self.fingerprint,
                        expires_s=self._expires_s,
                        keeps_texts=self._keeps_texts,
                    )

    async def follow(self) -> None:
        """Reads the changes of other processes; runs until it is cancelled.

        In an idle service this is also the call that notices a store that was replaced.
        """
        while True:
            await asyncio.sleep(_FOLLOW_S)
            with suppress(StoreUnavailableError, StoreCorruptError):
                await self.catch_up()

    async def catch_up(self) -> None:
        """Reads all changes that the store has now."""
        async with self._reading:
            with self._watched():
                await self._read_all()

    async def _read_all(self) -> None:
        """Reads the changes of all sets; all audits of a set again if rows are gone."""
        states = await self._store.audit_states()
        for name in states.keys() | self._books.keys():
            book, state = self.book(name), states.get(name, AuditState(0, 0))
            went_back = state.position < book.position
            if book.position < state.position:
                await self._read(book, end=state.position)
            has_lost = book.position == state.position and len(book.places) != state.rows
            if went_back or has_lost:
                # Another store is in place, or another process has removed rows.
                if went_back:
                    logger.warning("the audits of %r were replaced: they are read again", name)
                self._books[name] = Book(name=name)
                await self._read(self.book(name), end=state.position)

    async def _read(self, book: Book, *, end: int = 0) -> None:
        """Reads the rows of a set that have changed, at least those up to a position."""
        while page := await self._store.audits(book.name, after=book.position, limit=_PAGE):
            for stored in page:
                book.apply(stored.key, stored.position, read_row(stored))
            # The store in memory answers without a pause.
            await asyncio.sleep(0)
        book.position = max(book.position, end)

    async def change(
        self,
        name: str,
        plan: Callable[[Book, AuditChange], None],
        *,
        draws: bool = False,
    ) -> bool:
        """Changes the audits of a set, in one step of the store; False if there was nothing to do.

        Args:
            plan: Puts the rows into a change, by the audits as they are. It is called again if
                somebody else has changed one of the rows.
            draws: Whether it draws judgments, which wait neither for the disk nor long.

        Raises:
            TimeoutError: The store has not taken draws in `_PATIENCE_S`.
        """
        for _ in range(_ATTEMPTS):
            book, change = self.book(name), AuditChange()
            plan(book, change)
            keys = (*change.rows, *change.removed)
            if not keys:
                return False
            position = int(self.now() * 1e6)
            rows = [StoredRow(key, position, to_text(row)) for key, row in change.rows.items()]
            step = RowsChange(
                rows=rows,
                expected={key: book.places[key] for key in keys if key in book.places},
                texts=change.texts,
                forgotten=change.forgotten,
                removed=change.removed,
                # A draw that a power failure takes is missed; who was right has nothing to do with
                # it. The disk would take longer than a small judge.
                synced=not draws,
            )
            with self._watched(writing=True):
                async with asyncio.timeout(_PATIENCE_S if draws else None):
                    before = await self._store.write_audits(name, step)
            if before is None:
                await self.catch_up()
                continue
            async with self._reading:
                book = self.book(name)
                if before == book.position:
                    for row in placed(rows, after=before):
                        book.apply(row.key, row.position, read_row(row))
                else:
                    # Rows of others lie before the own ones.
                    with self._watched():
                        await self._read(book)
                book.remove(change.removed)
            return True
        raise StoreUnavailableError(
            f"other processes keep changing the audits of the calibration {name!r}; try again"
        )

    async def observe(self, judged: Sequence[Case]) -> None:
        """Draws some of the judgments that used a set, and names the draws in them.

        The draws are kept before the judgments are answered. A judgment whose draw cannot be kept
        is not drawn. That is counted, and does not depend on whether its verdict is right. Nor is a
        comparison drawn while `MOST_OPEN` draws of its set are open, or a judgment under further
        criteria than the first `MOST_CRITERIA` of a version.
        """
        candidates = [item for item in judged if item.calibration is not None]
        if self._sampler is None or not candidates:
            return
        if len(candidates) <= _MOST_ON_LOOP:
            drawn = self._sampler.drawn(candidates, at=self.now())
        else:
            drawn = await off_loop(self._sampler.drawn, candidates, at=self.now())
        new = dict[str, list[Drawn]]()
        for one in drawn:
            if self._kept(one) is None:
                new.setdefault(one.audit.calibration, []).append(one)
        for name, draws in new.items():
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE_S) as patience, self._drawing[name]:
                    patience.reschedule(None)
                    await self._keep(name, draws)
                    continue
            self._telemetry.missed_draws.inc(len(draws))
        for one in drawn:
            kept = self._kept(one)
            # Nobody should spend a label on a draw that takes no more labels.
            if kept is not None and kept.status(self.now()) != "expired":
                reference = records.AuditReference(id=one.audit.id, rate=one.audit.rate)
                one.case.outcome = replace(one.case.judgment, audit=reference)

    def _kept(self, drawn: Drawn) -> Audit | None:
        """The audit of a draw; None if the store does not have its criterion and version."""
        audit = self.book(drawn.audit.calibration).audits.get(drawn.audit.key)
        use = drawn.use
        return audit if audit is not None and audit.has_use(use.criterion, use.write_id) else None

    async def _keep(self, name: str, draws: Sequence[Drawn]) -> None:
        """Writes draws of a set in one step, and counts what becomes of them."""
        refused, taken = list[Drawn](), 0

        def plan(book: Book, change: AuditChange) -> None:
            nonlocal taken
            refused.clear()
            taken = 0
            begun = {drawn.use.write_id: {*book.begun(drawn.use.write_id)} for drawn in draws}
            room = book.room(self.now())
            place = max(book.position + 1, int(self.now() * 1e6))
            for drawn in draws:
                use, key = drawn.use, drawn.audit.key
                known = change.rows.get(key, book.audits.get(key))
                assert known is None or isinstance(known, Audit), "the key is that of an audit"
                if known is not None and known.has_use(use.criterion, use.write_id):
                    continue
                criteria = begun[use.write_id]
                if not self._has_room(use.criterion, criteria) or (known is None and room <= 0):
                    refused.append(drawn)
                    continue
                criteria.add(use.criterion)
                use = replace(use, position=place + taken)
                if known is None:
                    audit = replace(drawn.audit, uses=(use,), has_texts=drawn.texts is not None)
                    room -= 1
                    if drawn.texts is not None:
                        change.texts[key] = drawn.texts
                else:
                    audit = known.used(use)
                change.put(audit)
                taken += 1

        # Judgments do not wait for a store that has failed; `follow` notices when it is back.
        if not self._store_is_away:
            with suppress(TimeoutError, StoreUnavailableError, StoreCorruptError):
                await self.change(name, plan, draws=True)
                self._refused.update(drawn.use.write_id for drawn in refused)
                self._telemetry.audit_draws.inc(taken)
                self._telemetry.refused_draws.inc(len(refused))
                return
        self._telemetry.missed_draws.inc(len(draws))

    def _has_room(self, criterion: Criterion, begun: Collection[Criterion]) -> bool:
        """Whether a criterion is audited; that of the service always is."""
        default = self._default
        return (
            criterion in begun
            or len(begun) < MOST_CRITERIA
            or (
                default is not None
                and criterion.alpha == default.alpha
                and criterion.guarantee == default.guarantee
                and criterion.delta in (None, default.delta)
            )
        )

    def refused(self, calibration: Calibration) -> int:
        """Returns the number of draws that this process refused under further criteria."""
        return self._refused[calibration.write_id]

    async def label(
        self,
        labels: Sequence[LabelEntry],
        *,
        may_use: Callable[[str], bool],
        yields: bool = False,
    ) -> records.AuditLabels:
        """Takes labels of draws, in one step for each set; sending them again changes nothing.

        The label "none" closes a draw that nobody can label: other labels do not wait for it.

        Args:
            labels: The labels of one key, in order; only the last label of a draw is written.
            yields: Whether labels of other keys stay, whichever process has taken them.

        Raises:
            ForbiddenError: A draw belongs to a set that the sender may not use; no label was taken.
        """
        await self.catch_up()
        by_set, effects = defaultdict[str, list[LabelEntry]](list), list[_Effect]()
        for entry in labels:
            key = pair_of(entry.id)
            name = next((book.name for book in self.books if key in book.audits), None)
            if name is None:
                effects.append(_Effect("unknown", entry))
            elif may_use(name):
                by_set[name].append(entry)
            else:
                raise ForbiddenError(
                    f"the audit {entry.id} belongs to the calibration {name!r}, which the key "
                    f"{entry.by!r} may not use; none of the labels was taken. Send only labels of "
                    "the sets that `scope-judge keys list` shows for this key"
                )
        for name, sent in by_set.items():
            effects += await self._label_set(name, sent, yields=yields)
        ids = defaultdict[str, list[str]](list)
        for effect in effects:
            effect.log()
            ids[effect.kind].append(effect.entry.id)
        # A pair may have been sent twice.
        earlier = {effect.entry.id: effect.by for effect in effects if effect.kind == "earlier"}
        return records.AuditLabels(
            labelled=len(ids["labelled"]),
            closed=len(ids["closed"]),
            updated=len(ids["updated"]),
            unchanged=len(ids["unchanged"]),
            unknown=len(ids["unknown"]),
            expired=len(ids["expired"]),
            unknown_ids=tuple(ids["unknown"]),
            expired_ids=tuple(ids["expired"]),
            earlier=tuple(records.EarlierLabel(id=id, labeler=by) for id, by in earlier.items()),
        )

    async def _label_set(
        self, name: str, labels: Sequence[LabelEntry], *, yields: bool
    ) -> "list[_Effect]":
        effects = list["_Effect"]()

        def plan(book: Book, change: AuditChange) -> None:
            effects[:] = _effects_of(labels, book, yields=yields)
            for effect in effects:
                if effect.kind in ("labelled", "closed", "updated"):
                    entry = effect.entry
                    audit = book.audits[pair_of(entry.id)].labelled(entry)
                    change.put(audit)
                    change.forgotten.add(audit.key)
                    if effect.kind != "labelled":
                        change.put(effect.trail_entry(follows=audit.label_changes))

        await self.change(name, plan)
        return effects

    async def usable(self, calibration: str | None, may_use: Callable[[str], bool]) -> list[Book]:
        """Returns the newest audits of a set, or of all sets, that a caller may use."""
        await self.catch_up()
        return [
            book for book in self.books if calibration in (None, book.name) and may_use(book.name)
        ]

    async def record(self, name: str, entries: Sequence[TrailEntry]) -> None:
        """Records entries about alarms of a set, without those that another replica has written."""

        def plan(book: Book, change: AuditChange) -> None:
            for entry in filter(book.takes, entries):
                change.put(entry)

        await self.catch_up()
        await self.change(name, plan)

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
            self._telemetry.store_errors.inc()
            if self._outage is None:
                late = f"the store has not answered within {_PATIENCE_S:g} s"
                reason = late if isinstance(exc, TimeoutError) else exc.detail
                logger.warning("judging continues without draws for audits: %s", reason)
            self._store_is_away = True
            self._outage = "write" if writing else self._outage or "read"
            raise
        self._store_is_away = False
        if self._outage == "read" or (writing and self._outage):
            self._outage = None
            logger.warning("the store takes draws for audits again")


class _Effect(NamedTuple):
    """The effect of a label; `by` is the key whose earlier label stays."""

    kind: Literal["labelled", "closed", "updated", "unchanged", "unknown", "expired", "earlier"]
    entry: LabelEntry
    before: AuditLabel | None = None
    by: str = ""

    def trail_entry(self, *, follows: int) -> TrailEntry:
        """The entry of the trail about a draw that was closed, or whose label was changed."""
        return TrailEntry.of(
            event="closed" if self.kind == "closed" else "label_changed",
            at=written(self.entry.at),
            by=self.entry.by,
            reason=self.entry.reason,
            id=self.entry.id,
            before=self.before,
            after=self.entry.label,
            follows=follows,
        )

    def log(self) -> None:
        """Logs a changed label with both values, and a draw that was closed."""
        entry = self.entry
        if self.kind == "updated":
            text = "audit %s: label changed from %s to %s by %r"
            logger.warning(text, entry.id, self.before, entry.label, entry.by)
        elif self.kind == "closed":
            logger.info("audit %s: closed without a label by %r", entry.id, entry.by)


def _effects_of(labels: Sequence[LabelEntry], book: Book, *, yields: bool) -> Iterator[_Effect]:
    """Yields the effect of each label of a set; only the last one of a draw has any."""
    last = {pair_of(entry.id): i for i, entry in enumerate(labels)}
    for i, entry in enumerate(labels):
        audit = book.audits.get(pair_of(entry.id))
        if audit is None:
            yield _Effect("unknown", entry)
        elif audit.status(entry.at) == "expired":
            yield _Effect("expired", entry)
        elif yields and audit.label is not None and audit.labelled_by != entry.by:
            yield _Effect("earlier", entry, by=audit.labelled_by or "service")
        elif i != last[audit.key] or audit.label_of(entry.id) == entry.label:
            yield _Effect("unchanged", entry)
        elif audit.label is not None:
            yield _Effect("updated", entry, audit.label_of(entry.id))
        else:
            yield _Effect("closed" if entry.label == "none" else "labelled", entry)
