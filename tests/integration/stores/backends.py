"""Makes the stores under test from addresses, and states to write; child processes use it, too."""

from collections.abc import Collection
from pathlib import Path

from app.ports import AuditStore, CalibrationStore, Store, StoredCalibration, StoredChange, Version
from app.stores.memory import MemoryStore
from app.stores.redis import RedisStore
from app.stores.sqlite import SqliteStore


def store_at(address: str) -> Store:
    """Returns an unopened store; raises ValueError for an unknown scheme.

    Here mypy checks that each store meets the port.
    """
    scheme, _, rest = address.partition("://")
    if scheme == "memory":
        return MemoryStore()
    if scheme == "sqlite":
        return SqliteStore(Path(rest))
    if scheme in ("redis", "rediss", "unix"):
        return RedisStore(address)
    raise ValueError(f"no store has the scheme {scheme!r}")


def state(number: int, *, write_id: str = "one", examples: int = 3) -> StoredCalibration:
    """Returns a state whose values are the number of its version; its examples are d0, d1, ..."""
    text = str(number)
    return StoredCalibration(
        version=Version(write_id, number),
        meta={"judge": text, "written_by": text},
        examples={f"d{i}": text for i in range(examples)},
        thresholds={"marginal:0.10": text, "pac:0.10": text},
    )


def written_by(stored: StoredCalibration) -> set[str]:
    """Returns the versions that wrote parts of a state: exactly one if the state is consistent."""
    values = [*stored.meta.values(), *stored.examples.values(), *stored.thresholds.values()]
    return {str(stored.version.number), *values}


def entry(number: int, *, by: str = "one") -> StoredChange:
    """Returns an entry of the trail whose parts name their change and writer."""
    return StoredChange(
        number=number, record=f"record {number} of {by}", undo=f"undo {number} of {by}"
    )


async def write(
    store: CalibrationStore,
    state: StoredCalibration,
    *,
    expected: Version | None,
    name: str = "default",
    removed: Collection[str] = (),
) -> bool:
    """Writes a state with its entry in the trail."""
    own = entry(state.version.number, by=state.version.write_id)
    return await store.write(name, state, change=own, expected=expected, removed=removed)


async def delete(store: CalibrationStore, *, name: str = "default") -> bool:
    """Deletes a set with the next number."""
    number = await store.last_number(name) + 1
    return await store.delete(name, change=entry(number, by="deletion"))


async def trail(store: CalibrationStore, name: str = "default") -> dict[int, str]:
    """Returns the undos, newest first, and checks that the records match them."""
    undos = await store.undos(name, before=None, limit=1000)
    records = await store.records(name, before=None, limit=1000)
    assert [undo.replace("undo", "record") for undo in undos.values()] == records
    return undos


async def numbers(store: CalibrationStore, name: str = "default") -> list[int]:
    """Returns the numbers of the trail, oldest first."""
    return list(reversed(await trail(store, name)))


async def audit_log(store: AuditStore) -> list[str]:
    """Returns all entries of the log of audits, and checks that no position is missing."""
    entries = await store.audits(after=0, limit=100_000)
    assert [position for position, _ in entries] == list(range(1, len(entries) + 1))
    assert len(entries) == await store.last_audit()
    return [text for _, text in entries]
