"""Opening a file of an earlier release adds the missing tables in one atomic step."""

import asyncio
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.errors import StoreUnavailableError
from app.ports import Version
from app.stores.sqlite import SqliteStore
from app.stores.sqlite_file import APPLICATION_ID, AUDIT_SCHEMA, TRAIL_SCHEMA
from tests.integration.stores.backends import audit_log, delete, numbers, state, trail, write

pytestmark = pytest.mark.anyio

# The schema and data that release 0.1.0 made.
FIRST_SCHEMA = f"""
CREATE TABLE calibration (name TEXT PRIMARY KEY, write_id TEXT NOT NULL, version INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE meta (name TEXT NOT NULL, field TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (name, field)) WITHOUT ROWID;
CREATE TABLE example (name TEXT NOT NULL, field TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (name, field)) WITHOUT ROWID;
CREATE TABLE threshold (name TEXT NOT NULL, field TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (name, field)) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = 1;
INSERT INTO calibration VALUES ('default', 'one', 7);
INSERT INTO meta VALUES ('default', 'judge', '7'), ('default', 'written_by', '7');
INSERT INTO example VALUES ('default', 'd0', '7'), ('default', 'd1', '7'), ('default', 'd2', '7');
INSERT INTO threshold VALUES ('default', 'marginal:0.10', '7'), ('default', 'pac:0.10', '7');
"""


# The second schema added the table of the trail.
SECOND_SCHEMA = (*TRAIL_SCHEMA[: -len(AUDIT_SCHEMA)], "PRAGMA user_version = 2")


def second_schema_file(folder: Path) -> Path:
    path = first_release_file(folder)
    with sqlite3.connect(path) as connection:
        for statement in SECOND_SCHEMA:
            connection.execute(statement)
        connection.execute("INSERT INTO revision VALUES ('default', 7, 'record 7', 'undo 7')")
    connection.close()
    return path


def first_release_file(folder: Path) -> Path:
    path = folder / "calibrations.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(FIRST_SCHEMA)
    connection.close()
    return path


async def test_a_set_of_the_first_release_is_kept_and_its_numbers_go_on(tmp_path: Path) -> None:
    path = first_release_file(tmp_path)
    for _ in range(2):
        store = SqliteStore(path)
        await store.open()
        assert await store.read("default") == state(7)
        assert await numbers(store) == []
        assert await store.last_number("default") == 7
        await store.close()
    store = SqliteStore(path)
    await store.open()
    assert await write(store, state(8), expected=Version("one", 7))
    assert await delete(store)
    assert await numbers(store) == [8, 9]
    await store.close()


async def test_a_file_of_the_second_schema_keeps_its_trail_and_takes_audits(tmp_path: Path) -> None:
    path = second_schema_file(tmp_path)
    for number in (1, 2):
        store = SqliteStore(path)
        await store.open()
        assert await store.read("default") == state(7)
        assert await trail(store) == {7: "undo 7"}
        assert await store.append_audits([f"entry {number}"]) == number
        await store.close()
    store = SqliteStore(path)
    await store.open()
    assert await write(store, state(8), expected=Version("one", 7))
    assert await numbers(store) == [7, 8]
    assert await audit_log(store) == ["entry 1", "entry 2"]
    await store.close()


async def test_a_migration_that_breaks_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = first_release_file(tmp_path)
    # An existing trigger with the same name makes the migration fail half way.
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TRIGGER revision_delete AFTER DELETE ON meta BEGIN SELECT 1; END"
        )
    connection.close()
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailableError):
        await store.open()
    await store.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        tables = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'revision'")
        assert tables.fetchone() == (0,)
        connection.execute("DROP TRIGGER revision_delete")
    connection.close()
    store = SqliteStore(path)
    await store.open()
    assert await store.read("default") == state(7)
    await store.close()


@pytest.mark.parametrize("made", [first_release_file, second_schema_file])
async def test_a_crash_at_any_statement_of_a_migration_leaves_the_file_whole(
    tmp_path: Path, made: Callable[[Path], Path]
) -> None:
    made(tmp_path).rename(tmp_path / "old.db")
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.stores.sqlite_crashes", str(tmp_path), "open"),
        stdout=asyncio.subprocess.PIPE,
    )
    last = int((await program.communicate())[0])
    # At least 4 queries, the table, 3 triggers, the version, BEGIN and COMMIT.
    assert last > 10
    for step in range(1, last + 1):
        store = SqliteStore(tmp_path / f"{step}.db")
        await store.open()
        assert await store.read("default") == state(7)
        assert await write(store, state(8), expected=Version("one", 7))
        assert await numbers(store) == ([8] if made is first_release_file else [7, 8])
        assert await store.append_audits(["entry"]) == 1
        await store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM revision",
        "UPDATE revision SET record = 'x'",
        "UPDATE revision SET number = 9",
        "UPDATE OR REPLACE revision SET number = 1",
        "INSERT OR REPLACE INTO revision VALUES ('default', 2, 'x', 'x')",
        "INSERT OR IGNORE INTO revision VALUES ('default', 2, 'x', 'x')",
        "REPLACE INTO revision VALUES ('default', 1, 'x', 'x')",
        "INSERT INTO revision VALUES ('default', 0, 'x', 'x')",
        "INSERT INTO revision VALUES ('default', 2, 'x', 'x')"
        " ON CONFLICT DO UPDATE SET record = 'x'",
        "REPLACE INTO revision (rowid, name, number, record, undo) VALUES (1, 'a', 9, 'x', 'x')",
    ],
)
async def test_other_programs_cannot_rewrite_a_trail(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "calibrations.db"
    store = SqliteStore(path)
    await store.open()
    await write(store, state(1), expected=None)
    await write(store, state(2), expected=Version("one", 1))
    told = await trail(store)
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="the trail only grows"):
        connection.execute(statement)
    connection.close()
    assert await trail(store) == told
    assert await numbers(store) == [1, 2]
    await store.close()
