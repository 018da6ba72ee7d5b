"""A calibration store in this process: for tests, demos and a first try."""

from collections.abc import Collection

from app.ports import StoredCalibration, StoredChange, Version


class MemoryStore:
    """Keeps calibration sets until `close`; nothing is shared with the caller.

    No method awaits, so each is one atomic step of the event loop.
    """

    def __init__(self) -> None:
        self._sets: dict[str, StoredCalibration] = {}
        self._trails: dict[str, list[StoredChange]] = {}

    async def open(self) -> None:
        """Does nothing: there is nothing to connect to."""

    async def close(self) -> None:
        """Forgets every set and trail; safe to call twice or without `open`."""
        self._sets.clear()
        self._trails.clear()

    async def ping(self) -> None:
        """Returns: memory can always be read."""

    async def names(self) -> list[str]:
        """The names of all sets, sorted."""
        return sorted(self._sets)

    async def version(self, name: str) -> Version | None:
        """The version of a set; None if there is none."""
        stored = self._sets.get(name)
        return stored.version if stored else None

    async def read(self, name: str) -> StoredCalibration | None:
        """A copy of a set; None if there is none."""
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
            False if another version than `expected` is in place, or the trail has this number or
            a later one: nothing was written.
        """
        trail = self._trails.get(name, [])
        if await self.version(name) != expected or (trail and trail[-1].number >= change.number):
            return False
        stored = self._sets.get(name)
        examples = {**(stored.examples if stored else {}), **state.examples}
        for digest in removed:
            examples.pop(digest, None)
        self._sets[name] = _copy(state._replace(examples=examples))
        self._trails.setdefault(name, []).append(change)
        return True

    async def delete(self, name: str, *, change: StoredChange) -> bool:
        """Removes a set and extends the trail; False if there is none, or its number is late."""
        if name not in self._sets or change.number <= await self.last_number(name):
            return False
        del self._sets[name]
        self._trails.setdefault(name, []).append(change)
        return True

    async def last_number(self, name: str) -> int:
        """The highest number of any change, or of the set that is there; 0 if none."""
        stored, trail = self._sets.get(name), self._trails.get(name)
        return max(stored.version.number if stored else 0, trail[-1].number if trail else 0)

    async def records(self, name: str, *, before: int | None, limit: int) -> list[str]:
        """Records of the trail, newest first."""
        return [change.record for change in self._newest(name, before, limit)]

    async def undos(self, name: str, *, before: int | None, limit: int) -> dict[int, str]:
        """How to take changes back, newest first."""
        return {each.number: each.undo for each in self._newest(name, before, limit)}

    def _newest(self, name: str, before: int | None, limit: int) -> list[StoredChange]:
        trail = reversed(self._trails.get(name, []))
        return [each for each in trail if before is None or each.number < before][:limit]


def _copy(state: StoredCalibration) -> StoredCalibration:
    """The same state in dicts of its own."""
    return StoredCalibration(
        version=state.version,
        meta=dict(state.meta),
        examples=dict(state.examples),
        thresholds=dict(state.thresholds),
    )
