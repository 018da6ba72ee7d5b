"""A SQLite file that is removed or replaced while open is lost, and no content is damaged."""

import asyncio
import logging
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from app.core.errors import StoreUnavailableError
from app.ports import Head
from app.stores.sqlite import SqliteStore
from tests.integration.stores.backends import State, delete, put_rows, read, state, write
from tests.patience import PATIENCE_S

SUFFIXES = ("", "-wal", "-shm")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calibrations.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    await write(store, state(1), expected=None)
    yield store
    await store.close()


def beside(path: Path, suffix: str) -> Path:
    return Path(f"{path}{suffix}")


def content(path: Path) -> bytes:
    return path.read_bytes()


def modes(folder: Path) -> dict[str, int]:
    return {each.name: each.stat().st_mode & 0o777 for each in folder.iterdir()}


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def back_up(path: Path) -> Path:
    """Copies the file with its log, while nobody writes."""
    backup = path.with_name("backup.db")
    for suffix in ("", "-wal"):
        shutil.copy(beside(path, suffix), beside(backup, suffix))
    assert beside(backup, "-wal").stat().st_size > 0
    return backup


def remove(path: Path, *suffixes: str) -> None:
    for suffix in suffixes or SUFFIXES:
        beside(path, suffix).unlink()


def restore(backup: Path, path: Path) -> None:
    """Replaces the file and its log by a backup."""
    remove(path)
    for suffix in ("-wal", ""):
        beside(backup, suffix).rename(beside(path, suffix))


async def assert_lost(store: SqliteStore, path: Path) -> None:
    """Checks that every call is refused, and that the reason is announced."""
    for attempt in (
        write(store, state(9), expected=Head("one", 1)),
        write(store, state(1), expected=None, name="other"),
        delete(store),
        store.ping(),
        store.head("default"),
        store.names(),
        put_rows(store, {"key": "x"}),
    ):
        with pytest.raises(StoreUnavailableError, match="was removed or replaced"):
            await attempt
    async with asyncio.timeout(PATIENCE_S):
        assert str(path) in await store.lost()


async def stored_at(path: Path) -> State | None:
    """The set in a file, read by another store, after a check of the whole file."""
    other = SqliteStore(path)
    await other.open()
    found = await read(other)
    await other.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return found


async def test_a_removed_file_is_lost_and_not_made_again(store: SqliteStore, path: Path) -> None:
    remove(path)
    await assert_lost(store, path)
    assert names(path.parent) == []


async def test_a_write_is_not_acknowledged_if_the_file_is_removed_meanwhile(
    store: SqliteStore, path: Path
) -> None:
    def remove_at_commit(statement: str) -> None:
        if statement == "COMMIT":
            remove(path, "")

    await store._run(lambda connection: connection.set_trace_callback(remove_at_commit))
    with pytest.raises(StoreUnavailableError, match="may be lost"):
        await write(store, state(2), expected=Head("one", 1))


@pytest.mark.parametrize("moved", [SUFFIXES, ("",), ("", "-wal"), ("", "-shm")])
async def test_a_file_that_is_moved_away_is_complete_without_its_log(
    store: SqliteStore, path: Path, moved: tuple[str, ...]
) -> None:
    for number in range(2, 9):
        assert await write(store, state(number), expected=Head("one", number - 1))
    away = path.with_name("away.db")
    for suffix in moved:
        beside(path, suffix).rename(beside(away, suffix))
    await assert_lost(store, path)
    await store.close()
    assert await stored_at(away) == state(8)


@pytest.mark.parametrize("left", [(), ("-wal",), ("-shm",), ("-wal", "-shm")])
async def test_a_backup_is_not_mixed_with_the_log_of_the_file_before(
    store: SqliteStore, path: Path, left: tuple[str, ...]
) -> None:
    backup = path.with_name("backup.db")
    with closing(sqlite3.connect(path)) as copy:
        copy.execute("VACUUM INTO ?", (str(backup),))
    before = content(backup)
    await write(store, state(2, examples=500), expected=Head("one", 1))
    remove(path, *(suffix for suffix in SUFFIXES if suffix not in left))
    backup.rename(path)
    await assert_lost(store, path)
    await store.close()
    assert content(path) == before
    assert await stored_at(path) == state(1)


async def test_a_backup_keeps_its_own_log(store: SqliteStore, path: Path) -> None:
    await write(store, state(2), expected=Head("one", 1))
    backup = back_up(path)
    await write(store, state(3), expected=Head("one", 2))
    restore(backup, path)
    log = content(beside(path, "-wal"))
    await assert_lost(store, path)
    await store.close()
    assert content(beside(path, "-wal")) == log
    assert await stored_at(path) == state(2)


@pytest.mark.parametrize("removed", [("-wal",), ("-shm",), ("-wal", "-shm")])
async def test_a_log_that_is_removed_is_saved_into_the_open_file(
    store: SqliteStore, path: Path, removed: tuple[str, ...]
) -> None:
    await write(store, state(2), expected=Head("one", 1))
    remove(path, *removed)
    await assert_lost(store, path)
    await store.close()
    assert await stored_at(path) == state(2)


async def test_only_its_owner_reads_a_new_file_its_log_and_its_index(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "calibrations.db")
    await store.open()
    await write(store, state(1), expected=None)
    assert modes(tmp_path) == {f"calibrations.db{suffix}": 0o600 for suffix in SUFFIXES}
    await store.close()


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o664, False), (0o666, True)])
async def test_an_existing_file_keeps_its_mode_and_a_warning_names_one_that_all_can_write(
    path: Path, mode: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    os.close(os.open(path, os.O_CREAT))
    os.chmod(path, mode)
    store = SqliteStore(path)
    with caplog.at_level(logging.WARNING, "app.stores"):
        await store.open()
    await write(store, state(1), expected=None)
    assert modes(path.parent)[path.name] == mode
    assert ("chmod o-w" in caplog.text) is warned
    await store.close()
