"""Pages of audits: all of them, and those that a person should label, with their texts."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from app.audits.auditor import Auditor
from app.audits.entries import Audit
from app.audits.texts import read_texts
from app.ports import AuditStore
from scope_judge import records
from scope_judge.records import Status

# Labels count in the order of the draws, so everybody labels the oldest ones, in an own order. Of
# the labels of two people at once, 12% are the second of their pair, and 30% if these are 16.
_OLDEST = 64


async def page(
    auditor: Auditor,
    *,
    calibration: str | None,
    status: Status | None,
    after: int,
    limit: int,
    may_use: Callable[[str], bool],
) -> records.AuditPage:
    """Returns audits, oldest first.

    Args:
        calibration: Only audits of this set; None for all sets.
        after: Only audits that were drawn after this position.
        limit: Most audits to return, at least 1; a few more if several sets have draws at the same
            position.
    """
    books = await auditor.usable(calibration, may_use)
    now = auditor.now()
    audits = sorted(
        (
            audit
            for book in books
            for audit in book.audits.values()
            if audit.position > after and status in (None, audit.status(now))
        ),
        key=lambda audit: audit.position,
    )
    end = limit
    while end < len(audits) and audits[end].position == audits[end - 1].position:
        end += 1
    return records.AuditPage(
        audits=tuple(audit.record(now) for audit in audits[:end]),
        open=None,
        without_texts=None,
        next_after=audits[end - 1].position if end < len(audits) else None,
    )


async def page_to_label(
    auditor: Auditor,
    store: AuditStore,
    *,
    calibration: str | None,
    person: str,
    after: int,
    limit: int,
    may_use: Callable[[str], bool],
) -> records.AuditPage:
    """Returns open audits with their texts, in an order that depends on the person; see `page`.

    These are the audits whose labels end an alarm, as long as there are some, or else the oldest
    ones. The order differs, so that two people seldom label the same pair.

    Args:
        after: Only pairs after this place of the order.
    """
    audits, ending = list[Audit](), set[str]()
    for book in await auditor.usable(calibration, may_use):
        audits += filter(book.needs_label, book.open(auditor.now()))
        alarm = book.first_alarm()
        if alarm is not None and alarm.audits is not None:
            own = book.since(alarm.position, fingerprint=auditor.fingerprint)
            ending.update(audit.key for audit in own[: alarm.audits])
    with_texts = sorted(
        (audit for audit in audits if audit.has_texts), key=lambda audit: audit.position
    )
    first = [audit for audit in with_texts if audit.key in ending] or with_texts[:_OLDEST]
    places = {_place(person, audit): audit for audit in first}
    following = sorted(place for place in places if place > after)
    shown = following[:limit]
    texts = await _texts(store, (places[place] for place in shown))
    pairs = (_pair(places[place], place, texts, now=auditor.now()) for place in shown)
    return records.AuditPage(
        # A text is gone if its pair was labeled in the meantime.
        audits=tuple(pair for pair in pairs if pair is not None),
        open=len(audits),
        without_texts=len(audits) - len(with_texts),
        next_after=shown[-1] if len(following) > limit else None,
    )


async def _texts(store: AuditStore, audits: Iterable[Audit]) -> dict[str, str]:
    keys = defaultdict[str, list[str]](list)
    for audit in audits:
        keys[audit.calibration].append(audit.key)
    texts = dict[str, str]()
    for name, of_set in keys.items():
        texts |= await store.audit_texts(name, of_set)
    return texts


def _place(person: str, audit: Audit) -> int:
    """The place of a pair in the order of a person: 52 random bits, the same at each request."""
    digest = hashlib.sha256(f"{person}\n{audit.key}".encode()).digest()
    return int.from_bytes(digest[:8]) >> 12


def _pair(
    audit: Audit, place: int, texts: Mapping[str, str], *, now: float
) -> records.Audit | None:
    """The record of an audit with its texts, response B first for every other place."""
    known = read_texts(texts.get(audit.key))
    if known is None:
        return None
    identifier, pair = known
    if place % 2 == 0:
        identifier = f"{int(identifier, 16) ^ 1:032x}"
        pair = replace(pair, response_a=pair.response_b, response_b=pair.response_a)
    return replace(audit.record(now), id=identifier, texts=pair)
