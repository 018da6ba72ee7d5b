"""Makes the stores under test from addresses, and states to write; child processes use it, too."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from app.ports import AuditState, AuditStore, Head, RowsChange, SetStore, Store, StoredRow
from app.stores.memory import MemoryStore
from app.stores.redis import RedisStore
from app.stores.sqlite import SqliteStore

# A version is bytes that need not be text.
_MARK = b"\xff\x00"


def store_at(address: str) -> Store:
    """Returns an unopened store; raises ValueError for an unknown scheme.

    Here mypy checks that each store meets the port.
    """
    scheme, _, rest = address.partition("://")
    if scheme == "memory":
        return MemoryStore()
    if scheme == "sqlite":
        return SqliteStore(Path(rest))
    if scheme in ("redis", "rediss", "unix", "redis+cluster"):
        return RedisStore(address)
    raise ValueError(f"no store has the scheme {scheme!r}")


class State(NamedTuple):
    """A version of a set; its examples are d0, d1, ... with the number of a version."""

    head: Head
    examples: dict[str, int]

    @property
    def blob(self) -> bytes:
        """The bytes that the store keeps."""
        return _MARK + json.dumps([*self.head, self.examples]).encode()

    @classmethod
    def of(cls, blob: bytes) -> "State":
        """Parses the bytes that the store returned."""
        assert blob.startswith(_MARK)
        write_id, number, examples = json.loads(blob.removeprefix(_MARK))
        return cls(Head(write_id, number), examples)


def state(number: int, *, write_id: str = "one", examples: int = 3) -> State:
    """Returns a state whose values are the number of its version."""
    return State(Head(write_id, number), {f"d{i}": number for i in range(examples)})


async def read(store: SetStore, name: str = "default", number: int | None = None) -> State | None:
    """Returns a version, the present one without a number."""
    blob = await store.read(name, number)
    return None if blob is None else State.of(blob)


async def write(
    store: SetStore, state: State, *, expected: Head | None, name: str = "default"
) -> bool:
    """Writes a version with its entry in the trail."""
    return await store.write(
        name,
        state.head,
        blob=state.blob,
        thresholds={"marginal:0.10": str(state.head.number), "pac:0.10": "-inf"},
        record=f"record {state.head.number} of {state.head.write_id}",
        expected=expected,
    )


async def delete(store: SetStore, *, name: str = "default", by: str = "deletion") -> bool:
    """Deletes a set, if there is one, with the next number."""
    head = await store.head(name)
    if head is None or not head.write_id:
        return False
    return await deleted(store, head, name=name, by=by)


async def deleted(store: SetStore, head: Head, *, name: str = "default", by: str = "it") -> bool:
    """Deletes the set at a head."""
    number = head.number + 1
    record = f"record {number} of {by}"
    return await store.write(
        name, Head("", number), blob=None, thresholds={}, record=record, expected=head
    )


async def last(store: SetStore, name: str = "default") -> int:
    """Returns the number of the newest change; 0 if there is none."""
    head = await store.head(name)
    return head.number if head else 0


async def records(store: SetStore, name: str = "default") -> list[str]:
    """Returns the records of the trail, newest first."""
    return [entry.record for entry in await store.trail(name, before=None, limit=1000)]


async def numbers(store: SetStore, name: str = "default") -> list[int]:
    """Returns the numbers of the trail, oldest first, and checks that the records match them."""
    trail = await store.trail(name, before=None, limit=1000)
    assert [entry.record.split(" of ")[0] for entry in trail] == [
        f"record {entry.head.number}" for entry in trail
    ]
    return [entry.head.number for entry in reversed(trail)]


async def put_rows(
    store: AuditStore, written: Mapping[str, str], *, name: str = "default", **more: Any
) -> int:
    """Writes rows with the next positions, however many others write; returns the last one."""
    keys = {*written, *more.get("removed", ())}
    while True:
        known = await store.audits(name, after=0, limit=100_000)
        expected = {row.key: row.position for row in known if row.key in keys}
        rows = [StoredRow(key, 1, text) for key, text in written.items()]
        change = RowsChange(rows=rows, expected=expected, **more)
        before = await store.write_audits(name, change)
        if before is not None:
            return before + max(1, len(rows))


async def stored_rows(store: AuditStore, name: str = "default") -> dict[str, str]:
    """Returns all rows of a set in the order of their changes, and checks their number."""
    rows = await store.audits(name, after=0, limit=100_000)
    positions = [row.position for row in rows]
    assert positions == sorted(set(positions))
    state = (await store.audit_states()).get(name, AuditState(0, 0))
    assert len(rows) == state.rows
    assert max(positions, default=0) <= state.position
    return {row.key: row.text for row in rows}
