"""A store in the memory of this process, for tests, demos and a first try."""

import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from app.ports import (
    MOST_AUDIT_TEXTS,
    NO_TEXTS,
    StoredCalibration,
    StoredChange,
    Version,
)


class MemoryStore:
    """Keeps copies of calibration sets and audits until `close`.

    No method awaits, so each method is one atomic step of the event loop.
    """

    def __init__(self) -> None:
        self._sets: dict[str, StoredCalibration] = {}
        self._trails: dict[str, list[StoredChange]] = {}
        self._secret: bytes | None = None
        # The entry at position 1, 2, 3, ...
        self._audits: list[str] = []
        self._texts: dict[str, str] = {}
        # Slot -> text, and the time at which it expires.
        self._scores: dict[int, tuple[str, float]] = {}

    async def open(self) -> None:
        """Does nothing: there is nothing to connect to."""

    async def close(self) -> None:
        """Drops everything; safe to call twice or without `open`."""
        self._sets.clear()
        self._trails.clear()
        self._secret = None
        self._audits.clear()
        self._texts.clear()
        self._scores.clear()

    async def ping(self) -> None:
        """Returns at once, because memory can always be read."""

    async def names(self) -> list[str]:
        """Returns the names of all sets, sorted."""
        return sorted(self._sets)

    async def version(self, name: str) -> Version | None:
        """Returns the version of a set; None without such a set."""
        stored = self._sets.get(name)
        return stored.version if stored else None

    async def read(self, name: str) -> StoredCalibration | None:
        """Returns a copy of a set; None without such a set."""
        stored = self._sets.get(name)
        return _copy(stored) if stored else None

    async def write(
        self,
        name: str,
        state: StoredCalibration,
        *,
        change: StoredChange,
        expected: Version | None,
        removed: Collection[str] = (),
    ) -> bool:
        """Replaces meta and thresholds, changes examples and extends the trail.

        Returns:
            False if the version in place is not `expected`, or the trail already has this number or
            a higher one. Nothing was written then.
        """
        trail = self._trails.get(name, [])
        if await self.version(name) != expected or (trail and trail[-1].number >= change.number):
            return False
        stored = self._sets.get(name)
        examples = {**(stored.examples if stored else {}), **state.examples}
        for digest in removed:
            examples.pop(digest, None)
        self._sets[name] = _copy(replace(state, examples=examples))
        self._trails.setdefault(name, []).append(change)
        return True

    async def delete(self, name: str, *, change: StoredChange) -> bool:
        """Removes a set and extends the trail.

        Returns:
            False if there is no set, or the number is not above `last_number`.
        """
        if name not in self._sets or change.number <= await self.last_number(name):
            return False
        del self._sets[name]
        self._trails.setdefault(name, []).append(change)
        return True

    async def last_number(self, name: str) -> int:
        """Returns the highest number of the trail and of the set; 0 if both are absent."""
        stored, trail = self._sets.get(name), self._trails.get(name)
        return max(stored.version.number if stored else 0, trail[-1].number if trail else 0)

    async def records(self, name: str, *, before: int | None, limit: int) -> list[str]:
        """Returns the records of a trail, newest first."""
        return [change.record for change in self._newest(name, before, limit)]

    async def undos(self, name: str, *, before: int | None, limit: int) -> dict[int, str]:
        """Returns the undos of a trail by the numbers of their changes, newest first."""
        return {change.number: change.undo for change in self._newest(name, before, limit)}

    async def trails(self) -> list[str]:
        """Returns the names of all sets and of all trails, sorted."""
        return sorted(self._sets.keys() | self._trails.keys())

    async def changes(self, name: str, *, after: int, limit: int) -> list[StoredChange]:
        """Returns changes with numbers above `after`, oldest first."""
        trail = self._trails.get(name, [])
        return [change for change in trail if change.number > after][:limit]

    async def secret(self) -> bytes:
        """Returns 32 random bytes, made by the first call."""
        self._secret = self._secret or secrets.token_bytes(32)
        return self._secret

    async def put_secret(self, secret: bytes) -> None:
        """Replaces the secret."""
        self._secret = secret

    async def append_audits(
        self,
        entries: Sequence[str],
        *,
        synced: bool = True,
        texts: Mapping[str, str] = NO_TEXTS,
        forgotten: Collection[str] = (),
    ) -> int:
        """Appends entries, keeps texts and forgets others; returns the position of the last one."""
        self._audits.extend(entries)
        new = ((key, text) for key, text in texts.items() if key not in self._texts)
        self._texts |= dict(islice(new, MOST_AUDIT_TEXTS - len(self._texts)))
        await self.forget_audit_texts(forgotten)
        return len(self._audits)

    async def audits(self, *, after: int, limit: int) -> list[tuple[int, str]]:
        """Returns position and text of entries after a position, in order."""
        return list(enumerate(self._audits[after : after + limit], after + 1))

    async def last_audit(self) -> int:
        """Returns the position of the last entry; 0 for an empty log."""
        return len(self._audits)

    async def audit_texts(self, keys: Sequence[str]) -> dict[str, str]:
        """Returns the texts of drawn pairs by their keys."""
        return {key: self._texts[key] for key in keys if key in self._texts}

    async def audit_text_keys(self) -> set[str]:
        """Returns the keys of all drawn pairs with texts."""
        return set(self._texts)

    async def forget_audit_texts(self, keys: Collection[str]) -> None:
        """Removes the texts of drawn pairs."""
        for key in keys:
            self._texts.pop(key, None)

    def _newest(self, name: str, before: int | None, limit: int) -> list[StoredChange]:
        trail = reversed(self._trails.get(name, []))
        return [change for change in trail if before is None or change.number < before][:limit]

    async def kept_scores(self, slots: Collection[int]) -> dict[int, str]:
        """Returns the texts of slots, without empty and expired ones."""
        kept = {slot: self._scores[slot] for slot in slots if slot in self._scores}
        now = time.monotonic()
        return {slot: text for slot, (text, until) in kept.items() if now < until}

    async def keep_scores(self, scores: Mapping[int, str], *, seconds: int) -> None:
        """Puts texts into slots for a time."""
        until = time.monotonic() + seconds
        self._scores |= {slot: (text, until) for slot, text in scores.items()}


def _copy(state: StoredCalibration) -> StoredCalibration:
    """Returns the same state in new dicts."""
    return StoredCalibration(
        version=state.version,
        meta=dict(state.meta),
        examples=dict(state.examples),
        thresholds=dict(state.thresholds),
    )
