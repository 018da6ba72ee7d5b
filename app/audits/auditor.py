"""Draws judgments for audits, takes labels for them, and follows the log of both."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from app.audits.entries import (
    AboutAlarm,
    AuditLabel,
    Decider,
    Draw,
    Entry,
    LabelEntry,
    readable_entry,
)
from app.audits.ledger import Audit, AuditPage, Ledger, Status
from app.audits.periods import Period, periods_of
from app.audits.sampling import Drawn, Sampler
from app.audits.texts import key_of
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
from app.ports import AuditStore

# Interval at which the end of the log is asked for.
_FOLLOW_S = 1.0
# A judgment waits for so long until the store has taken its draw.
_PATIENCE_S = 2.0
# More candidates, or more characters of them, are hashed on another thread.
_MOST_ON_LOOP = 32
_MOST_CHARACTERS_ON_LOOP = 2**16
# A person corrects a label a few times; a program that goes back and forth would fill the log.
MOST_LABEL_CHANGES = 100
# Entries of the log that are applied in one step, which takes 5 ms.
_PAGE = 200

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
class TrailEntry:
    """One entry of the trail of a set's audits.

    Args:
        position: Its position in the log.
        entry: A label that closed a draw or replaced another one, or an entry about an alarm.
        before: The label that it replaced; None if there was none.
    """

    position: int
    entry: Entry
    before: AuditLabel | None


class Auditor:
    """Keeps the audits of one service.

    Args:
        store: The store of the log.
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
        # The state of all audits; another object after the log of the store was replaced.
        self.ledger = Ledger(expires_s=expires_s)
        self._sampler: Sampler | None = None
        # Deciders whose first draws are being appended, with the key that began each.
        self._begun = dict[Decider, str]()
        # Write id of a version -> number of refused draws.
        self._refused = Counter[str]()
        self._store_is_away = False
        # Whether the last write failed; reads may still work.
        self._store_refuses = False
        # Held while the ledger is brought to a certain position.
        self._reading = asyncio.Lock()

    async def open(self) -> None:
        """Reads the secret and the whole log.

        Raises:
            StoreUnavailableError: The store does not answer.
            StoreCorruptError: Another program changed the secret or the log.
        """
        async with self._reading:
            with self._watched():
                await self._read_all()
                await self._read_secret()
                self._check_secret()
        self._note_back()

    def _check_secret(self) -> None:
        """Ends drawing and raises StoreCorruptError if the log has draws of another secret.

        A comparison would have two ids then, and count twice.
        """
        newest = self.ledger.newest()
        if self._sampler is None or newest is None or self._sampler.made(newest.draw):
            return
        self._sampler = None
        raise StoreCorruptError(
            "the secret of the audits is not the one that made the draws of their log. It was "
            "deleted or replaced: restore the store from a backup, or set SCOPE_AUDIT_RATE=0 to "
            "judge without draws"
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
        """Keeps the ledger in step with the log; runs until it is cancelled.

        In an idle service this is also the call that notices a store that was replaced.
        """
        while True:
            await asyncio.sleep(_FOLLOW_S)
            with suppress(StoreUnavailableError, StoreCorruptError):
                # After an outage the store may be another one, with another secret.
                await (self.open() if self._store_is_away else self.catch_up())

    async def catch_up(self) -> None:
        """Applies all entries that the log has now.

        Raises:
            StoreUnavailableError: The store does not answer.
            StoreCorruptError: Another program changed the log.
        """
        async with self._reading:
            with self._watched():
                await self._read_all()
        self._note_back()

    async def _read_all(self) -> None:
        """Applies all entries of the log; starts over if it is another log than before."""
        end, ledger = await self._store.last_audit(), self.ledger
        if await self._is_another(ledger):
            logger.warning("the audit log of the store was replaced: it is read from 1")
            await self._read_secret()
            ledger = Ledger(expires_s=self.expires_s)
        elif end and not ledger.position:
            # A restore fills an empty store, and brings the secret of its log along.
            await self._read_secret()
        await self._read_to(end, ledger)
        self.ledger = ledger

    async def _is_another(self, ledger: Ledger) -> bool:
        """Whether the log of the store is another one than a ledger has read.

        Its last entry is in another log only by chance.
        """
        position, text = ledger.position, ledger.last_text
        if text is None:
            return False
        return await self._store.audits(after=position - 1, limit=1) != [(position, text)]

    async def _read_to(self, end: int, ledger: Ledger) -> None:
        """Applies the entries of the log up to a position."""
        while ledger.position < end:
            limit = min(_PAGE, end - ledger.position)
            page = await self._store.audits(after=ledger.position, limit=limit)
            if not page:
                return
            for position, text in page:
                ledger.apply(position, text, readable_entry(text))
            # The store in memory answers without a pause.
            await asyncio.sleep(0)

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
        whether its verdict is right.

        Judgments under further criteria than the first `MOST_CRITERIA` of a version are not drawn.
        One key begins at most `MOST_CRITERIA_OF_KEY` of them.

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
        with self._placed(drawn) as placed:
            new = {
                (each.draw.digest, each.draw.decider): each
                for each in placed
                if each is not None and not self.ledger.knows_use(each.draw)
            }
            kept = await self._keep(list(new.values())) if new else False
        return [None if each is None else self._reference(each.draw, kept=kept) for each in placed]

    @contextmanager
    def _placed(self, drawn: Sequence[Drawn | None]) -> Iterator[list[Drawn | None]]:
        """Yields the draws that count; places of new criteria are reserved until the block ends."""
        placed, begun = list[Drawn | None](), list[Decider]()
        for each in drawn:
            if (
                each is None
                or self.ledger.counts(each.draw.decider)
                or each.draw.decider in self._begun
            ):
                placed.append(each)
            elif self._has_room(each.draw):
                begun.append(each.draw.decider)
                self._begun[each.draw.decider] = each.draw.by
                placed.append(each)
            else:
                self._refused[each.draw.decider.write_id] += 1
                self._telemetry.count_audit_draws(refused=1)
                placed.append(None)
        try:
            yield placed
        finally:
            for decider in begun:
                del self._begun[decider]

    def _has_room(self, draw: Draw) -> bool:
        """Whether the key of a draw may begin its criterion; the last place is the default's."""
        write_id, room = draw.decider.write_id, self.ledger.room(draw.decider, None)
        begun = [key for decider, key in self._begun.items() if decider.write_id == write_id]
        if self._is_default(draw.decider.criterion):
            return len(begun) < room
        counted = [*self.ledger.criteria(draw.calibration, write_id)]
        counted += [each.criterion for each in self._begun if each.write_id == write_id]
        if self._default is not None and not any(map(self._is_default, counted)):
            room -= 1
        of_key = self.ledger.room(draw.decider, draw.by)
        return len(begun) < room and begun.count(draw.by) < of_key

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

    async def _keep(self, drawn: Sequence[Drawn]) -> bool:
        """Appends draws to the log; returns False if the store does not take them."""
        # Judgments do not wait for a store that has failed; `follow` notices when it is back.
        last = None if self._store_is_away else await self._append(drawn)
        if last is None:
            self._telemetry.count_audit_draws(missed=len(drawn))
            return False
        self._telemetry.count_audit_draws(taken=len(drawn))
        first = last - len(drawn) + 1
        if first == self.ledger.position + 1:
            for position, each in enumerate(drawn, first):
                self.ledger.apply(position, each.text, each.draw)
        elif any(each.draw.decider in self._begun for each in drawn):
            await self._apply_up_to(last)
        # Otherwise `follow` applies the draws, after those entries of others that came in between.
        return True

    async def _apply_up_to(self, end: int) -> None:
        """Applies the draws that began a criterion, so that later ones do not get its place, too.

        `follow` does it if the store does not answer in time.
        """
        with suppress(TimeoutError, StoreUnavailableError, StoreCorruptError), self._watched():
            async with asyncio.timeout(_PATIENCE_S), self._reading:
                await self._read_to(end, self.ledger)

    async def _append(self, drawn: Sequence[Drawn]) -> int | None:
        """Returns the last position; None if the store does not answer in time."""
        # A label of an earlier criterion or version serves this draw, too.
        pairs = {
            key_of(each.draw.id): each.pair
            for each in drawn
            if each.pair is not None and not self.ledger.has_label(each.draw.id)
        }
        with (
            suppress(TimeoutError, StoreUnavailableError, StoreCorruptError),
            self._watched(writing=True),
        ):
            async with asyncio.timeout(_PATIENCE_S):
                # A draw that a power cut takes is missed; who was right has nothing to do with it.
                # Waiting for the disk would take longer than a small judge needs.
                return await self._store.append_audits(
                    [each.text for each in drawn],
                    synced=False,
                    texts=pairs,
                )
        return None

    def _reference(self, draw: Draw, *, kept: bool) -> AuditReference | None:
        """Returns the audit reference for the answer to a drawn judgment."""
        audit = self.ledger.audit(draw.id) if self.ledger.knows_use(draw) else None
        # Nobody should spend a label on a draw that takes no more labels.
        if audit is not None and audit.status(self.now()) == "expired":
            return None
        return AuditReference(id=draw.id, rate=draw.rate) if audit is not None or kept else None

    async def label(
        self,
        labels: Sequence[SentLabel],
        *,
        by: str,
        may_use: Callable[[str], bool],
        yields: bool = False,
    ) -> LabelReport:
        """Takes labels of draws in one atomic step; sending them again changes nothing.

        The label "none" closes a draw that nobody can label: other labels do not wait for it.

        Args:
            labels: The labels, in order; only the last label of a draw is written.
            by: Name of the key that sent the labels.
            may_use: Whether the sender may use a calibration set.
            yields: Whether labels of other keys stay, whichever process has taken them.

        Raises:
            ForbiddenError: A draw belongs to a set that the sender may not use; no label was taken.
            LabelChangesError: A label was changed 100 times already; no label was taken.
            StoreUnavailableError: No label was taken; or all were, if the connection to the store
                broke. Sending them again is safe.
        """
        async with self._reading:
            with self._watched():
                await self._read_all()
            batch = self._assessed(labels, by=by, may_use=may_use, yields=yields)
            entries = list(batch.entries.values())
            with self._watched(writing=bool(entries)):
                audits = await self._audits_before(entries)
        both = list[tuple[AuditLabel | None, LabelEntry]]()
        for audit, entry in zip(audits, entries, strict=True):
            if audit is not None and _is_taken(audit, entry):
                # It came in between, from another process.
                batch.taken.append(entry.id)
            else:
                both.append((None if audit is None else _earlier(audit, entry), entry))
        _log_changes(both)
        first = [entry.label for earlier, entry in both if earlier is None]
        updated = sum(earlier not in (None, entry.label) for earlier, entry in both)
        refused = len(batch.unknown) + len(batch.expired) + len(batch.taken)
        return LabelReport(
            labelled=len(first) - first.count("none"),
            closed=first.count("none"),
            updated=updated,
            unchanged=len(labels) - len(first) - updated - refused,
            unknown=tuple(batch.unknown),
            expired=tuple(batch.expired),
            earlier={each: self._labeler(each) for each in batch.taken},
        )

    def _labeler(self, identifier: str) -> str:
        audit = self.ledger.audit(identifier)
        return "service" if audit is None or audit.labelled_by is None else audit.labelled_by

    def _assessed(
        self,
        labels: Sequence[SentLabel],
        *,
        by: str,
        may_use: Callable[[str], bool],
        yields: bool,
    ) -> "_LabelBatch":
        """Sorts labels into those that may change something, and those that are not taken."""
        batch, at = _LabelBatch(), self.now()
        for sent in labels:
            audit = self.ledger.audit(sent.id)
            if audit is None:
                batch.unknown.append(sent.id)
                continue
            if not may_use(audit.draw.calibration):
                raise ForbiddenError(
                    f"the audit {sent.id} belongs to the calibration"
                    f" {audit.draw.calibration!r}, which the key {by!r} may not use; none of the"
                    " labels was taken. Send only labels of the sets that `scope-judge keys list`"
                    " shows for this key"
                )
            if audit.status(at) == "expired":
                batch.expired.append(sent.id)
                continue
            entry = _entry_of(sent, by=by, at=at, yields=yields)
            if _is_taken(audit, entry):
                batch.taken.append(sent.id)
                continue
            batch.entries.pop(audit.position, None)
            if _earlier(audit, entry) != sent.label:
                _check_changes(audit, sent)
                batch.entries[audit.position] = entry
        return batch

    async def _audits_before(self, entries: Sequence[LabelEntry]) -> list[Audit | None]:
        """Appends labels; returns the audit of each, in order, as it was before."""
        if not entries:
            return []
        texts = [entry.text for entry in entries]
        forgotten = {key_of(entry.id) for entry in entries}
        last = await self._store.append_audits(texts, forgotten=forgotten)
        first = last - len(entries) + 1
        # Entries of other replicas may lie in between; these labels come after them.
        await self._read_to(first - 1, self.ledger)
        before: list[Audit | None] = []
        for position, (entry, text) in enumerate(zip(entries, texts, strict=True), first):
            before.append(self.ledger.audit(entry.id))
            self.ledger.apply(position, text, entry)
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
        """Returns audits, oldest first; see `Ledger.page`.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        await self.catch_up()
        return self.ledger.page(
            calibration=calibration,
            status=status,
            after=after,
            limit=limit,
            may_use=may_use,
            now=self.now(),
        )

    async def open_ids(
        self, calibration: str | None, *, may_use: Callable[[str], bool]
    ) -> NDArray[np.void]:
        """Returns the ids of open audits, oldest first; see `Ledger.open_ids`.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        await self.catch_up()
        return self.ledger.open_ids(calibration, may_use=may_use, now=self.now())

    def count(self, calibration: str, *, status: Status | None = None) -> int:
        """Returns the number of audits of a set that were read; see `Ledger.count`."""
        return self.ledger.count(calibration, status=status, now=self.now())

    def open_pairs(self, keys: Iterable[str]) -> set[str]:
        """Returns the given pairs that still wait for a label according to the ledger."""
        return self.ledger.open_pairs(keys, now=self.now())

    async def record(self, entries: Sequence[AboutAlarm]) -> None:
        """Appends entries about alarms, without those that another replica has written.

        Raises:
            StoreUnavailableError: The store does not answer. Recording them again is safe.
        """
        async with self._reading:
            with self._watched():
                await self._read_all()
                new = [entry for entry in entries if self.ledger.alarms.takes(entry)]
            if new:
                with self._watched(writing=True):
                    await self._store.append_audits([entry.text for entry in new])
                    await self._read_all()

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
        trail = list[TrailEntry]()
        with self._watched():
            # The texts are only in the store: reasons may be as long as everything else together.
            for place in self.ledger.trail(calibration, before=before, limit=limit):
                for position, text in await self._store.audits(after=place.position - 1, limit=1):
                    entry = readable_entry(text)
                    if position == place.position and entry is not None:
                        trail.append(
                            TrailEntry(position=position, entry=entry, before=place.before)
                        )
        return trail

    async def periods(self, calibration: str) -> Sequence[Period]:
        """Counts the drawn judgments of a set over time, as far as this process has read them."""
        view, now = self.ledger.view(calibration), self.now()
        return await off_loop(periods_of, view, now=now)

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


def _entry_of(sent: SentLabel, *, by: str, at: float, yields: bool) -> LabelEntry:
    return LabelEntry(
        id=sent.id, label=sent.label, by=by, at=at, reason=sent.reason, yields=yields or None
    )


def _earlier(audit: Audit, entry: LabelEntry) -> AuditLabel | None:
    """Returns the label that an entry would replace or repeat, in the order of its id."""
    return audit.label_of(entry.id)


def _is_taken(audit: Audit, entry: LabelEntry) -> bool:
    """Whether an entry changes nothing, because what others have said stays."""
    return entry.yields is not None and audit.is_of_another(entry.by)


def _check_changes(audit: Audit, sent: SentLabel) -> None:
    """Refuses a label that would change the one of its draw too often."""
    if audit.label_changes >= MOST_LABEL_CHANGES:
        raise LabelChangesError(
            f"the label of the audit {sent.id} was changed {MOST_LABEL_CHANGES} times, too often "
            "to change again; no label was taken"
        )


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


@dataclass(kw_only=True, slots=True)
class _LabelBatch:
    """Labels by their effect.

    Args:
        entries: Labels that may change something, by the position of their draw: the last label
            of each draw.
        unknown: Ids without a draw.
        expired: Ids of draws that take no more labels.
        taken: Ids of draws that have a label of another key.
    """

    entries: dict[int, LabelEntry] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
