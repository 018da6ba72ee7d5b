"""The queue of a set: its open audits, for people who label blind.

The service has the texts of a pair, or the person has them in a file and names the pair by its
digest. Pairs of the pool that a person names so come after the audits; their labels are examples,
so they do not come back here.

With two reviewers, a pair goes to two people, and each gives an opinion. Equal opinions are its
label, and a pair with two that differ leaves the queue for somebody who decides.

A pair that a person gets is leased to that person for some minutes, so that nobody else gets it
meanwhile. The lease only decides who gets which pair. The log of audits decides whether a label
counts: the first label of a pair stays, and only the person who gave it can correct it here. An
opinion stays.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Protocol

from app.core.calibration import Calibration, LabelledExample
from app.core.errors import AlreadyLabelledError, InvalidRequestError, RequestError
from app.core.fingerprint import is_reversed
from app.ports import AuditStore, Lease, LeaseStore
from app.service.auditing.absorption import Absorber
from app.service.auditing.auditor import Auditor, LabelReport, SentLabel
from app.service.auditing.ledger import Opinion, Rows
from app.service.auditing.monitor import Monitor
from app.service.auditing.texts import DrawnTexts, key_of, read_texts
from app.service.calibration.cache import Calibrations
from app.service.labelling.pairs import BlindPair, Choice, left_side
from app.service.labelling.progress import progress_of
from app.service.labelling.tickets import Ticket, ticket_of
from app.service.labelling.waiting import Textless, WaitingPair, waiting_pairs
from app.service.off_loop import off_loop

# A pair takes seconds, and a long one a few minutes.
LEASE_S = 600
# Most pairs that somebody gets at once: the one on the screen, and the next ones.
MOST_TAKEN = 5
# Pairs that are asked for besides, in case others lease the first ones at this moment.
_SPARE = 64
_LOOKS = 2
# The ticket of a pair of the pool is its digest.
_POOLED = re.compile(r"[0-9a-f]{64}")
# The coin that decides the sides is the same for everybody, so a ticket can be checked.
_SEED = 0


class QueueStore(AuditStore, LeaseStore, Protocol):
    """A store with the texts of audits and with leases."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeasedPair:
    """A pair that one person has.

    Args:
        pair: The pair, whose key is the id of its audit, or the digest of a pair of the pool;
            without texts if the service has none.
        until: End of the lease, in seconds since 1970.
        digest: Digest of the comparison, if only the person has its texts; else None.
    """

    pair: BlindPair
    until: float
    digest: str | None = None

    @property
    def ticket(self) -> str:
        """The ticket with which the answer comes back; the digest for a pair of the pool."""
        return self.pair.key if self.is_pooled else ticket_of(self.pair)

    @property
    def is_pooled(self) -> bool:
        """Whether this is a pair of the pool and no audit."""
        return self.pair.key == self.digest

    @property
    def left_is_first(self) -> bool:
        """Whether the left response comes before the other one by their code points."""
        return (self.pair.left == "A") != is_reversed(self.pair.key)


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueState:
    """The queue of a set at one moment.

    Args:
        open: Number of pairs that wait for a label and whose texts the service has.
        disagreements: Number of pairs that wait for a decision instead, after two opinions.
        leased: Number of the open pairs that somebody has.
        without_texts: Number of open audits whose texts the service does not have.
        keeps_texts: Whether the service keeps texts.
        words: How far the labelling is, in a sentence.
    """

    open: int
    disagreements: int
    leased: int
    without_texts: int
    keeps_texts: bool
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """Pairs that one person has got, and the queue after it."""

    pairs: Sequence[LeasedPair]
    state: QueueState


@dataclass(frozen=True, kw_only=True, slots=True)
class Released:
    """The number of leases that one person returned, and the queue afterwards."""

    released: int
    state: QueueState


@dataclass(frozen=True, kw_only=True, slots=True)
class PairAnswer:
    """The answer to one pair.

    Args:
        ticket: The ticket of the pair.
        choice: The better side, or "tie"; None if the pair cannot be labelled.
        reason: Why it cannot be labelled; None with a choice.
    """

    ticket: str
    choice: Choice | None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerReport:
    """The outcome of answers.

    Args:
        labelled: Number of pairs that got their first label, were closed, or got an opinion.
        corrected: Number of labels that replaced one of the same person.
        again: Number of answers that the service had already.
        errors: Index of an answer that was not taken -> its error.
        state: The queue after them.
    """

    labelled: int
    corrected: int
    again: int
    errors: Mapping[int, RequestError]
    state: QueueState


@dataclass(frozen=True, kw_only=True, slots=True)
class _Waiting:
    """The open audits of a set.

    Args:
        keys: Keys of the pairs that the person can be given, oldest first.
        named: Those of them whose texts only the person has, by key.
        opinions: Key of a pair of the set -> its opinions.
        disagreements: Number of pairs that wait for a decision.
        total: Number of all pairs that wait for a label.
        without_texts: Number of those whose texts the service does not have.
    """

    keys: Sequence[str]
    named: Mapping[str, WaitingPair]
    opinions: Mapping[str, Sequence[Opinion]]
    disagreements: int
    total: int
    without_texts: int

    @classmethod
    def of(
        cls,
        rows: Rows,
        kept: Collection[str],
        opinions: Mapping[str, Sequence[Opinion]],
        digests: Collection[str],
        pool: Mapping[str, LabelledExample],
    ) -> "_Waiting":
        """Sorts audits by what they wait for; long work for 100,000 of them.

        Args:
            rows: The audits of `Ledger.open_draws`.
            kept: Keys of the pairs whose texts the service has.
            opinions: Key of a pair of the set -> its opinions.
            digests: Digests of pairs whose texts the person has, in the order to give them.
            pool: Digest -> example of further pairs, which wait for a label if they have none.
        """
        labelled = waiting_pairs(rows, opinions)
        keys = list[str]()
        named = dict[str, WaitingPair]()
        without_texts = 0
        for key, pair in labelled.items():
            if key in kept:
                keys.append(key)
                continue
            without_texts += 1
            if pair.digest in digests:
                named[key] = pair
                keys.append(key)
        audited = {pair.digest for pair in labelled.values()}
        for digest in digests:
            example = pool.get(digest)
            if example is not None and example.label is None and digest not in audited:
                named[digest] = WaitingPair(id=digest, digest=digest)
                keys.append(digest)
        return cls(
            keys=keys,
            named=named,
            opinions=opinions,
            disagreements=len(rows) - len(labelled),
            total=len(labelled),
            without_texts=without_texts,
        )

    def wanted(
        self,
        leases: Mapping[str, Lease],
        skipped: Mapping[str, Lease],
        *,
        reviewer: str,
        reviewers: int,
    ) -> list[str]:
        """The leases that a person may get: held ones first, then the oldest, skipped ones last.

        Args:
            leases: All leases of the set.
            skipped: The pairs that this person has skipped.
            reviewer: Name of the person.
            reviewers: Number of people who label each pair.
        """
        own, free, last = list[str](), list[str](), list[tuple[float, str]]()
        for key in self.keys:
            given = self.opinions.get(key, ()) if reviewers > 1 else ()
            if any(opinion.by == reviewer for opinion in given):
                continue
            holders = {item: leases[item].holder for item in _items(key) if item in leases}
            if reviewer in holders.values():
                own += [item for item, holder in holders.items() if holder == reviewer]
            elif len(holders) + len(given) < reviewers:
                item = next(item for item in _items(key) if item not in holders)
                if key in skipped:
                    last.append((skipped[key].until, item))
                else:
                    free.append(item)
        return [*own, *free, *(item for _, item in sorted(last))]


class LabelQueue:
    """The queues of all sets of one service.

    Args:
        store: Keeps texts and leases.
        auditor: Has the audits, and takes their labels.
        calibrations: The sets.
        monitor: Has the alarms.
        absorber: Knows how many labels an alarm needs.
        lease_s: Length of a lease in seconds.
    """

    def __init__(
        self,
        store: QueueStore,
        auditor: Auditor,
        calibrations: Calibrations,
        monitor: Monitor,
        absorber: Absorber,
        *,
        lease_s: int = LEASE_S,
    ) -> None:
        self._store = store
        self._auditor = auditor
        self._calibrations = calibrations
        self._monitor = monitor
        self._absorber = absorber
        self._lease_s = lease_s

    async def take(
        self,
        name: str,
        *,
        reviewer: str,
        most: int,
        reviewers: int,
        digests: Collection[str] = (),
    ) -> Taken:
        """Leases pairs to a person: held ones first, then the oldest, skipped ones last.

        Args:
            name: Name of the calibration set.
            reviewer: Name of the person.
            most: Most pairs.
            reviewers: Number of people who label each pair: 1, or 2 for opinions.
            digests: Digests of pairs whose texts the person has, in the order to give them.

        Raises:
            CalibrationNotFoundError: The set does not exist.
            StoreUnavailableError: The store does not answer.
        """
        calibration = await self._calibrations.get(name)
        # An opinion is about an audit: a pair of the pool has one label.
        pool = calibration.table if reviewers == 1 else {}
        waiting = await self._waiting(name, dict.fromkeys(digests), pool)
        pairs = list[LeasedPair]()
        if waiting.keys:
            granted = await self._lease(waiting, name, reviewer, reviewers, most=most)
            written = await self._store.audit_texts(list(granted))
            pairs = await off_loop(_leased_pairs, granted, written, waiting.named)
            read = {key_of(each.pair.key) for each in pairs}
            if unread := written.keys() - read:
                # Texts of another program must not keep this person from all other pairs.
                await self._skip(name, unread, reviewer)
        return Taken(pairs=pairs, state=await self._state(calibration, waiting))

    async def answer(
        self, name: str, answers: Sequence[PairAnswer], *, reviewer: str, reviewers: int
    ) -> AnswerReport:
        """Takes answers, all in one step, and ends their leases; an answer sent twice counts once.

        A lease that has passed to another person does not matter until that person answers.

        Args:
            name: Name of the calibration set.
            answers: The answers, in order; the last one of a pair counts.
            reviewer: Name of the person, who becomes the sender of the labels.
            reviewers: Number of people who label each pair: 1, or 2 for opinions.

        Raises:
            CalibrationNotFoundError: The set does not exist.
            LabelChangesError: A label was changed 100 times already; no answer was taken.
            StoreUnavailableError: No answer was taken; or all were, if the connection to the store
                broke. Sending them again is safe.
        """
        calibration = await self._calibrations.get(name)
        await self._auditor.catch_up()
        errors = await self._faults(name, answers)
        sent = {index: _sent(answer) for index, answer in enumerate(answers) if index not in errors}
        report = await self._auditor.label(
            list(sent.values()),
            by=reviewer,
            may_use=lambda of: of == name,
            yields=True,
            opinions=reviewers > 1,
        )
        errors |= _refusals(sent, report, reviewers=reviewers)
        if sent:
            await self._end_leases(name, {key_of(label.id) for label in sent.values()}, reviewer)
        labelled = report.labelled + report.closed
        return AnswerReport(
            labelled=labelled,
            corrected=report.updated,
            again=len(answers) - len(errors) - labelled - report.updated,
            errors=errors,
            state=await self._state(calibration, await self._waiting(name)),
        )

    async def release(self, name: str, tickets: Sequence[str], *, reviewer: str) -> Released:
        """Ends leases of a person, who then gets these pairs after all others for a while.

        Raises:
            InvalidRequestError: A text is not a ticket; nothing was released.
            CalibrationNotFoundError: The set does not exist.
            StoreUnavailableError: The store does not answer.
        """
        calibration = await self._calibrations.get(name)
        released = await self._skip(name, {_released(text) for text in tickets}, reviewer)
        state = await self._state(calibration, await self._waiting(name))
        return Released(released=released, state=state)

    async def textless(self, name: str) -> Textless:
        """Lists the pairs of a set that wait for a label and whose texts the service does not have.

        Raises:
            CalibrationNotFoundError: The set does not exist.
            StoreUnavailableError: The store does not answer.
        """
        calibration = await self._calibrations.get(name)
        rows, kept, opinions = await self._open(name)
        return await off_loop(Textless.of, rows, kept, opinions, calibration.fingerprint)

    async def _waiting(
        self,
        name: str,
        digests: Collection[str] = (),
        pool: Mapping[str, LabelledExample] = MappingProxyType({}),
    ) -> _Waiting:
        rows, kept, opinions = await self._open(name)
        return await off_loop(_Waiting.of, rows, kept, opinions, digests, pool)

    async def _open(
        self, name: str
    ) -> tuple[Rows, Collection[str], Mapping[str, Sequence[Opinion]]]:
        """The open audits of a set, the keys of the texts that the service has, and opinions."""
        rows = await self._auditor.open_draws(name)
        # No wait in between: two equal opinions of an audit that was open would differ then.
        opinions = self._auditor.ledger.opinions(name)
        keeps = self._auditor.keeps_texts and len(rows)
        return rows, await self._store.audit_text_keys() if keeps else set[str](), opinions

    async def _lease(
        self, waiting: _Waiting, name: str, reviewer: str, reviewers: int, *, most: int
    ) -> dict[str, float]:
        """Leases pairs to a person; returns the end of each lease by the key of the pair."""
        skipped = await self._store.leases(_skips(name, reviewer))
        granted = dict[str, float]()
        # Others may take the same leases at this moment; the second look sees theirs.
        for _ in range(_LOOKS):
            leases = await self._store.leases(name)
            wanted = await off_loop(
                waiting.wanted, leases, skipped, reviewer=reviewer, reviewers=reviewers
            )
            granted = await self._store.lease(
                name, wanted[: most + _SPARE], holder=reviewer, most=most, seconds=self._lease_s
            )
            if granted:
                break
        return {_key(item): until for item, until in granted.items()}

    async def _end_leases(self, name: str, keys: Collection[str], reviewer: str) -> int:
        items = [item for key in keys for item in _items(key)]
        return await self._store.end_leases(name, items, holder=reviewer)

    async def _skip(self, name: str, keys: Collection[str], reviewer: str) -> int:
        """Ends the leases of a person, and remembers the pairs as skipped."""
        released = await self._end_leases(name, keys, reviewer)
        # The skipped pairs of a person are leases in a separate room.
        await self._store.lease(
            _skips(name, reviewer),
            sorted(keys),
            holder=reviewer,
            most=len(keys),
            seconds=self._lease_s,
        )
        return released

    async def _state(self, calibration: Calibration, waiting: _Waiting) -> QueueState:
        leases = await self._store.leases(calibration.name)
        await self._monitor.of(calibration)
        recovery = await self._absorber.recovery(calibration)
        return QueueState(
            open=waiting.total - waiting.without_texts,
            disagreements=waiting.disagreements,
            leased=len(
                {_key(item) for item in leases} & (set(waiting.keys) - waiting.named.keys())
            ),
            without_texts=waiting.without_texts,
            keeps_texts=self._auditor.keeps_texts,
            words=progress_of(waiting.total, recovery),
        )

    async def _faults(self, name: str, answers: Sequence[PairAnswer]) -> dict[int, RequestError]:
        """Returns the errors of answers with tickets of other queues, by index."""
        tickets = [Ticket.of(answer.ticket) for answer in answers]
        keys = {key_of(ticket.audit) for ticket in tickets if ticket is not None}
        written = await self._store.audit_texts(sorted(keys))
        errors = dict[int, RequestError]()
        own = await off_loop(lambda: [_is_own(answer.ticket, written) for answer in answers])
        for index, ticket in enumerate(tickets):
            audit = None if ticket is None else self._auditor.ledger.audit(ticket.audit)
            if audit is None or audit.draw.calibration != name or not own[index]:
                errors[index] = _not_a_ticket()
        return errors


def _skips(name: str, reviewer: str) -> str:
    """The room of the pairs that a person has skipped; no set has a slash in its name."""
    return f"{name}/{reviewer}"


def _items(key: str) -> tuple[str, str]:
    """The leases of the people who may have a pair at once; one person alone has the first."""
    return key, f"{key}/2"


def _key(item: str) -> str:
    return item.partition("/")[0]


def _released(ticket: str) -> str:
    """The key of a pair that somebody gives back."""
    parsed = Ticket.of(ticket)
    if parsed is not None:
        return key_of(parsed.audit)
    if _POOLED.fullmatch(ticket) is None:
        raise _not_a_ticket()
    return ticket


def _leased_pairs(
    granted: Mapping[str, float], written: Mapping[str, str], named: Mapping[str, WaitingPair]
) -> list[LeasedPair]:
    """Returns leased pairs, without those whose texts are gone or cannot be read; long work."""
    leased = list[LeasedPair]()
    for key, until in granted.items():
        if (pair := pair_of(key, written.get(key))) is not None:
            leased.append(LeasedPair(pair=pair, until=until))
        elif (of := named.get(key)) is not None:
            leased.append(LeasedPair(pair=_textless(of.id), until=until, digest=of.digest))
    return leased


def _textless(identifier: str) -> BlindPair:
    fields = dict.fromkeys(("question", "response_a", "response_b"), "")
    return BlindPair(key=identifier, fields=fields, left=left_side(_SEED, identifier))


def pair_of(key: str, written: str | None) -> BlindPair | None:
    """Reads a drawn pair from its texts; None if they are gone or cannot be read."""
    # Either order of the pair has this key.
    texts = read_texts(written, f"{int(key, 16) << 1:032x}")
    if texts is None:
        return None
    return BlindPair(key=texts.id, fields=_fields(texts), left=left_side(_SEED, texts.id))


def _fields(texts: DrawnTexts) -> dict[str, object]:
    question = texts.question
    return {
        "question": question if isinstance(question, str) else [asdict(turn) for turn in question],
        "response_a": texts.response_a,
        "response_b": texts.response_b,
    }


def _is_own(text: str, written: Mapping[str, str]) -> bool:
    """Whether a ticket comes from a queue; long work for long texts.

    The seal can be checked only while the pair waits for its label: its texts are gone then.
    """
    ticket = Ticket.of(text)
    if ticket is None or ticket.left != left_side(_SEED, ticket.audit):
        return False
    key = key_of(ticket.audit)
    pair = pair_of(key, written.get(key))
    return pair is None or ticket_of(pair) == text


def _sent(answer: PairAnswer) -> SentLabel:
    ticket = Ticket.of(answer.ticket)
    assert ticket is not None, "other texts are errors before"
    if answer.choice is None:
        return SentLabel(id=ticket.audit, label="none", reason=answer.reason)
    pair = BlindPair(key=ticket.audit, fields={}, left=ticket.left)
    return SentLabel(id=ticket.audit, label=pair.label_of(answer.choice))


def _refusals(
    sent: Mapping[int, SentLabel], report: LabelReport, *, reviewers: int
) -> dict[int, RequestError]:
    """Returns the errors of labels that were not taken, by the index of their answer."""
    errors = dict[int, RequestError]()
    for index, label in sent.items():
        if label.id in report.taken:
            errors[index] = AlreadyLabelledError(
                "somebody else has labelled this pair since you got it, and that label stays"
                if reviewers == 1
                else "two people have labelled this pair already, or you have, and that stays"
            )
        elif label.id in report.expired:
            errors[index] = InvalidRequestError(
                "the time for this pair has ended (SCOPE_AUDIT_EXPIRES_S): it takes no label"
            )
        elif label.id in report.unknown:
            errors[index] = _not_a_ticket()
    return errors


def _not_a_ticket() -> InvalidRequestError:
    return InvalidRequestError("this is not a ticket of the queue of this set")
