"""A SQLite file that is removed or replaced while open never loses an acknowledged write."""

import logging
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.core.errors import StoreUnavailableError
from app.ports import Version
from app.stores import sqlite_file
from app.stores.sqlite import SqliteStore
from tests.integration.stores.backends import delete, numbers, state, write
from tests.serving import labelled, services_of

pytestmark = pytest.mark.anyio

SUFFIXES = ("", "-wal", "-shm")


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the store open a replaced file at once."""
    monkeypatch.setattr(sqlite_file, "SETTLED_S", 0.0)


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


async def assert_unavailable(store: SqliteStore, match: str) -> None:
    for attempt in (
        write(store, state(9), expected=Version("one", 1)),
        write(store, state(1), expected=None, name="other"),
        delete(store),
        store.ping(),
        store.version("default"),
        store.names(),
    ):
        with pytest.raises(StoreUnavailableError, match=match):
            await attempt


async def test_a_removed_file_is_unavailable_and_not_made_again(
    store: SqliteStore, path: Path
) -> None:
    remove(path)
    await assert_unavailable(store, "was removed")
    assert names(path.parent) == []


@pytest.mark.parametrize("suffixes", [SUFFIXES, ("",)])
async def test_a_file_that_is_put_back_is_used_again(
    store: SqliteStore, path: Path, suffixes: tuple[str, ...]
) -> None:
    for suffix in suffixes:
        beside(path, suffix).rename(beside(path, f"{suffix}.away"))
    await assert_unavailable(store, "was removed")
    for suffix in suffixes:
        beside(path, f"{suffix}.away").rename(beside(path, suffix))
    assert await store.read("default") == state(1)
    assert await write(store, state(2), expected=Version("one", 1))


async def test_a_write_is_not_acknowledged_if_the_file_is_removed_meanwhile(
    store: SqliteStore, path: Path
) -> None:
    def remove_at_commit(statement: str) -> None:
        if statement == "COMMIT":
            remove(path, "")

    await store._run(lambda connection: connection.set_trace_callback(remove_at_commit))
    with pytest.raises(StoreUnavailableError, match="may be lost"):
        await write(store, state(2), expected=Version("one", 1))


async def test_a_backup_is_opened_with_its_whole_log(store: SqliteStore, path: Path) -> None:
    for number in range(2, 9):
        assert await write(store, state(number), expected=Version("one", number - 1))
    backup = back_up(path)
    await write(store, state(9), expected=Version("one", 8))
    restore(backup, path)
    assert await store.read("default") == state(8)
    assert await numbers(store) == list(range(1, 9))
    # The log of the backup still exists, although the old connection was closed.
    assert await write(store, state(9, write_id="two"), expected=Version("one", 8))
    other = SqliteStore(path)
    await other.open()
    assert await other.read("default") == state(9, write_id="two")
    await other.close()
    await store.close()
    check = sqlite3.connect(path)
    assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert check.execute("SELECT count(*) FROM revision").fetchone() == (9,)
    check.close()


async def test_a_store_that_is_closed_leaves_a_backups_log_alone(
    store: SqliteStore, path: Path
) -> None:
    await write(store, state(2), expected=Version("one", 1))
    restore(back_up(path), path)
    log = content(beside(path, "-wal"))
    await store.close()
    assert content(beside(path, "-wal")) == log
    await store.open()
    assert await store.read("default") == state(2)


@pytest.mark.parametrize("left", [("-wal",), ("-shm",), ("-wal", "-shm")])
async def test_a_backup_beside_the_log_of_the_file_before_is_not_opened(
    store: SqliteStore, path: Path, left: tuple[str, ...]
) -> None:
    backup = back_up(path)
    await write(store, state(2), expected=Version("one", 1))
    remove(path, *(suffix for suffix in SUFFIXES if suffix not in left))
    backup.rename(path)
    before = content(path)
    await assert_unavailable(store, "Move it away")
    assert content(path) == before
    remove(path, *left)
    if left != ("-shm",):
        beside(backup, "-wal").rename(beside(path, "-wal"))
    await store.ping()
    assert await store.read("default") in (state(1), None)


async def test_a_file_that_is_perhaps_being_copied_is_not_opened(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = back_up(path)
    await write(store, state(2), expected=Version("one", 1))
    monkeypatch.setattr(sqlite_file, "SETTLED_S", 3600.0)
    restore(backup, path)
    await assert_unavailable(store, "a moment ago")
    # A clock that was set back does not keep the file closed.
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert await store.read("default") == state(1)


async def test_a_log_that_is_removed_is_saved_from_the_open_file(
    store: SqliteStore, path: Path
) -> None:
    await write(store, state(2), expected=Version("one", 1))
    remove(path, "-wal")
    assert await store.read("default") == state(2)
    assert await write(store, state(3), expected=Version("one", 2))
    await store.close()
    await store.open()
    assert await store.read("default") == state(3)


async def test_a_removed_log_does_not_ruin_a_backup_that_was_copied_over_the_file(
    store: SqliteStore, path: Path
) -> None:
    backup = path.with_name("backup.db")
    copy = sqlite3.connect(path)
    copy.execute("VACUUM INTO ?", (str(backup),))
    copy.close()
    await write(store, state(2, examples=500), expected=Version("one", 1))
    remove(path, "-wal", "-shm")
    shutil.copyfile(backup, path)
    await assert_unavailable(store, "Restart the service")
    await store.close()
    assert content(path) == content(backup)


async def test_another_file_of_this_service_in_its_place_is_opened(
    store: SqliteStore, path: Path
) -> None:
    remove(path)
    other = SqliteStore(path)
    await other.open()
    await write(other, state(7, write_id="two"), expected=None)
    assert await store.read("default") == state(7, write_id="two")
    assert await write(store, state(8, write_id="two"), expected=Version("two", 7))
    assert await other.read("default") == state(8, write_id="two")
    await other.close()


async def test_a_link_is_followed_to_the_file_and_its_log(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "calibrations.db"
    link.symlink_to(tmp_path / "real" / "sets.db")
    store = SqliteStore(link)
    await store.open()
    await write(store, state(1), expected=None)
    assert await store.read("default") == state(1)
    assert names(tmp_path / "real") == ["sets.db", "sets.db-shm", "sets.db-wal"]
    (tmp_path / "real" / "sets.db").unlink()
    await assert_unavailable(store, "was removed")
    await store.close()


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


async def test_a_relative_path_is_resolved_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore(Path(":memory:"))
    await store.open()
    os.chdir("/")
    await write(store, state(1), expected=None)
    assert (tmp_path / ":memory:").stat().st_size > 0
    await store.close()


async def test_the_service_is_not_ready_without_the_file_and_uses_a_restored_backup(
    tmp_path: Path,
) -> None:
    path = tmp_path / "calibrations.db"
    store = SqliteStore(path)
    await store.open()
    async with services_of(store=store) as services:
        first = (
            await services.calibrator.add("default", [labelled(1.0, "A", number=1)])
        ).calibration
        backup = back_up(path)
        await services.calibrator.add("default", [labelled(1.0, "A", number=2)])
        remove(path)
        with pytest.raises(StoreUnavailableError, match="was removed"):
            await services.calibrator.add("default", [labelled(1.0, "A", number=3)])
        trouble = await services.readiness.check()
        assert trouble is not None
        assert "does not answer" in trouble
        services.calibrations.forget("default")
        with pytest.raises(StoreUnavailableError):
            await services.readiness.check()
        for suffix in ("-wal", ""):
            beside(backup, suffix).rename(beside(path, suffix))
        assert await services.readiness.check() is None
        found = await services.calibrations.get("default")
        assert (found.version, found.write_id) == (1, first.write_id)
        again = await services.calibrator.add("default", [labelled(1.0, "A", number=3)])
        assert (again.calibration.version, again.calibration.n) == (2, 2)
    await store.close()
