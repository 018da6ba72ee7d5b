"""A store in the memory of this process, for tests, demos and a first try."""

import secrets
import time
from collections.abc import Collection, Mapping, Sequence

from app.ports import (
    KEPT_VERSIONS,
    AuditState,
    Entry,
    Head,
    RowsChange,
    StoredRow,
    placed,
)


class MemoryStore:
    """Keeps copies of calibration sets and audits until `close`.

    No method awaits, so each method is one atomic step of the event loop.
    """

    def __init__(self) -> None:
        self._trails: dict[str, list[Entry]] = {}
        # Name and number of a version -> its value.
        self._versions: dict[tuple[str, int], bytes] = {}
        self._secret: bytes | None = None
        # Name of a set -> position, rows by their keys in the order of their changes, and texts.
        self._positions: dict[str, int] = {}
        self._audits: dict[str, dict[str, StoredRow]] = {}
        self._texts: dict[str, dict[str, str]] = {}
        # Slot -> text, and the time at which it expires.
        self._scores: dict[int, tuple[str, float]] = {}

    async def open(self) -> None:
        """Does nothing: there is nothing to connect to."""

    async def close(self) -> None:
        self._trails.clear()
        self._versions.clear()
        self._secret = None
        self._positions.clear()
        self._audits.clear()
        self._texts.clear()
        self._scores.clear()

    async def ping(self) -> None:
        """Returns at once, because memory can always be read."""

    async def names(self, *, deleted: bool = False) -> list[str]:
        return sorted(
            name for name, trail in self._trails.items() if deleted or trail[-1].head.write_id
        )

    async def head(self, name: str) -> Head | None:
        trail = self._trails.get(name)
        return trail[-1].head if trail else None

    async def read(self, name: str, number: int | None = None) -> bytes | None:
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
        trail = reversed(self._trails.get(name, []))
        return [entry for entry in trail if before is None or entry.head.number < before][:limit]

    async def secret(self) -> bytes:
        self._secret = self._secret or secrets.token_bytes(32)
        return self._secret

    async def put_secret(self, secret: bytes) -> None:
        self._secret = secret

    async def audit_states(self) -> dict[str, AuditState]:
        return {
            name: AuditState(position, len(self._audits[name]))
            for name, position in self._positions.items()
        }

    async def audits(self, name: str, *, after: int, limit: int) -> list[StoredRow]:
        newer = list[StoredRow]()
        for row in reversed(self._audits.get(name, {}).values()):
            if row.position <= after:
                break
            newer.append(row)
        return newer[::-1][:limit]

    async def write_audits(self, name: str, change: RowsChange) -> int | None:
        before = self._positions.get(name, 0)
        stored, kept = self._audits.setdefault(name, {}), self._texts.setdefault(name, {})
        for key in change.keys:
            if change.expected.get(key, 0) != (stored[key].position if key in stored else 0):
                return None
        self._positions[name] = before + bool(change.removed)
        for row in placed(change.rows, after=before):
            stored.pop(row.key, None)
            stored[row.key] = row
            self._positions[name] = row.position + bool(change.removed)
        kept |= change.texts
        for key in change.removed:
            stored.pop(key, None)
        for key in (*change.forgotten, *change.removed):
            kept.pop(key, None)
        return before

    async def audit_texts(self, name: str, keys: Sequence[str]) -> dict[str, str]:
        kept = self._texts.get(name, {})
        return {key: kept[key] for key in keys if key in kept}

    async def charge(self, caller: str, cost_s: float, *, most_owed_s: float) -> float | None:
        """Counts nothing: one process uses the store."""
        return None

    async def kept_scores(self, slots: Collection[int]) -> dict[int, str]:
        kept = {slot: self._scores[slot] for slot in slots if slot in self._scores}
        now = time.monotonic()
        return {slot: text for slot, (text, until) in kept.items() if now < until}

    async def keep_scores(self, scores: Mapping[int, str], *, seconds: int) -> None:
        until = time.monotonic() + seconds
        self._scores |= {slot: (text, until) for slot, text in scores.items()}
