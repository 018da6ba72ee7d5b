"""A version out of range is corrupt, and its set can still be deleted."""

import sqlite3
from pathlib import Path

import pytest

from app.core.errors import StoreCorruptError
from app.ports import LARGEST_NUMBER, CalibrationStore, Version
from tests.integration.stores.backends import delete, entry, numbers, state, write
from tests.redis_server import RedisServer

on_both = pytest.mark.parametrize("scheme", ["sqlite", "redis"])

NEVER_WRITTEN = ("100000000000000000000", str(2**53), "-7", "0", "", "seven", "1.5", "1e30", "٣")


def put_version(request: pytest.FixtureRequest, folder: Path, version: str) -> None:
    """Writes a version into the store, as another program could do."""
    if request.getfixturevalue("scheme") == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        server.command("HSET", "scope:calibration:default:meta", "version", version)
        return
    connection = sqlite3.connect(folder / "new" / "calibrations.db", isolation_level=None)
    connection.execute("UPDATE calibration SET version = ?", (version,))
    connection.close()


@on_both
@pytest.mark.parametrize("version", NEVER_WRITTEN)
async def test_a_version_that_was_never_written_is_corrupt_and_deletable(
    store: CalibrationStore, request: pytest.FixtureRequest, tmp_path: Path, version: str
) -> None:
    await write(store, state(1), expected=None)
    await write(store, state(2), expected=Version("one", 1))
    put_version(request, tmp_path, version)
    for attempt in (store.version("default"), store.read("default")):
        with pytest.raises(StoreCorruptError, match="delete the calibration"):
            await attempt
    assert await store.last_number("default") == 2
    assert await store.delete("default", change=entry(2)) is False
    assert await delete(store) is True
    assert await store.version("default") is None
    assert await numbers(store) == [1, 2, 3]
    assert await write(store, state(4, write_id="two"), expected=None)


@pytest.mark.parametrize("scheme", ["redis"])
async def test_a_version_that_is_spelled_otherwise_is_corrupt_and_deletable(
    store: CalibrationStore, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    await write(store, state(1), expected=None)
    put_version(request, tmp_path, "007")
    with pytest.raises(StoreCorruptError):
        await store.version("default")
    assert await delete(store) is True


@on_both
async def test_the_largest_version_is_one(
    store: CalibrationStore, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    await write(store, state(1), expected=None)
    put_version(request, tmp_path, str(LARGEST_NUMBER))
    assert await store.version("default") == Version("one", LARGEST_NUMBER)
    assert await store.last_number("default") == LARGEST_NUMBER


@on_both
async def test_a_trail_with_a_number_out_of_range_is_corrupt(
    store: CalibrationStore, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    await write(store, state(1), expected=None)
    if request.getfixturevalue("scheme") == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        server.command("XADD", "scope:calibration:default:trail", f"{2**63}-0", "record", "{}")
    else:
        connection = sqlite3.connect(tmp_path / "new" / "calibrations.db", isolation_level=None)
        row = ("default", 2**63 - 1, "{}", "{}")
        connection.execute("INSERT INTO revision VALUES (?, ?, ?, ?)", row)
        connection.close()
    with pytest.raises(StoreCorruptError, match="restore"):
        await store.last_number("default")
