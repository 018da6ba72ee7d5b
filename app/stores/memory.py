"""A store in the memory of this process, for tests, demos and a first try."""

import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from app.ports import KEPT_VERSIONS, MOST_AUDIT_TEXTS, NO_TEXTS, Entry, Head


class MemoryStore:
    """Keeps copies of calibration sets and audits until `close`.

    No method awaits, so each method is one atomic step of the event loop.
    """

    def __init__(self) -> None:
        self._trails: dict[str, list[Entry]] = {}
        # Name and number of a version -> its value.
        self._versions: dict[tuple[str, int], bytes] = {}
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
        self._trails.clear()
        self._versions.clear()
        self._secret = None
        self._audits.clear()
        self._texts.clear()
        self._scores.clear()

    async def ping(self) -> None:
        """Returns at once, because memory can always be read."""

    async def names(self, *, deleted: bool = False) -> list[str]:
        """Returns the names of all sets, sorted; with `deleted`, also of deleted ones."""
        return sorted(
            name for name, trail in self._trails.items() if deleted or trail[-1].head.write_id
        )

    async def head(self, name: str) -> Head | None:
        """Returns the newest change of a set; None if there never was one."""
        trail = self._trails.get(name)
        return trail[-1].head if trail else None

    async def read(self, name: str, number: int | None = None) -> bytes | None:
        """Returns the present version of a set, or an earlier one; None without it."""
        if number is None:
            trail = self._trails.get(name)
            number = trail[-1].head.number if trail else 0
        return self._versions.get((name, number))

    async def write(
        self,
        name: str,
        head: Head,
        *,
        blob: bytes | None,
        thresholds: Mapping[str, str],
        record: str,
        expected: Head | None,
    ) -> bool:
        """Adds a version and its entry of the trail; False if another head is in place."""
        present = await self.head(name)
        if present != expected or (present and present.number >= head.number):
            return False
        self._trails.setdefault(name, []).append(Entry(head, record))
        if blob is not None:
            self._versions[name, head.number] = blob
        for key in list(self._versions):
            if key[0] == name and key[1] <= head.number - KEPT_VERSIONS:
                del self._versions[key]
        return True

    async def trail(self, name: str, *, before: int | None, limit: int) -> list[Entry]:
        """Returns the trail of a set, newest first."""
        trail = reversed(self._trails.get(name, []))
        return [entry for entry in trail if before is None or entry.head.number < before][:limit]

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

    async def kept_scores(self, slots: Collection[int]) -> dict[int, str]:
        """Returns the texts of slots, without empty and expired ones."""
        kept = {slot: self._scores[slot] for slot in slots if slot in self._scores}
        now = time.monotonic()
        return {slot: text for slot, (text, until) in kept.items() if now < until}

    async def keep_scores(self, scores: Mapping[int, str], *, seconds: int) -> None:
        """Puts texts into slots for a time."""
        until = time.monotonic() + seconds
        self._scores |= {slot: (text, until) for slot, text in scores.items()}
