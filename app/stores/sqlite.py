"""A calibration store in one SQLite file: for one machine, durable, with no server to run."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

from app.core.errors import StoreCorruptError, StoreUnavailableError
from app.ports import Revision, StoredCalibration, Undo, Version

T = TypeVar("T")

# How long another process may hold the write lock before this one gives up. A write of 20,000
# examples takes about 0.1 s, so the limit is met only by a process that hangs in a transaction.
BUSY_TIMEOUT_S = 5.0

# "ScJd" in the file's header: tells our file from another program's that is also at our version.
APPLICATION_ID = 0x53634A64
SCHEMA_VERSION = 2
# The trail's table, which version 1 lacked. The triggers hold against whoever opens the file with
# another program: to shorten a trail they must be dropped on purpose.
TRAIL_SCHEMA = (
    "CREATE TABLE revision (name TEXT NOT NULL, number INTEGER NOT NULL, record TEXT NOT NULL,"
    " undo TEXT NOT NULL, PRIMARY KEY (name, number))",
    *(
        f"CREATE TRIGGER revision_{verb.lower()} BEFORE {verb} ON revision"
        " BEGIN SELECT RAISE(ABORT, 'the trail only grows'); END"
        for verb in ("UPDATE", "DELETE")
    ),
    # INSERT OR REPLACE takes rows away without DELETE's trigger, by either key.
    "CREATE TRIGGER revision_insert BEFORE INSERT ON revision WHEN EXISTS (SELECT 1 FROM revision"
    " WHERE name = NEW.name AND number >= NEW.number OR rowid = NEW.rowid)"
    " BEGIN SELECT RAISE(ABORT, 'the trail only grows'); END",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
SCHEMA = (
    "CREATE TABLE calibration (name TEXT PRIMARY KEY, write_id TEXT NOT NULL,"
    " version INTEGER NOT NULL) WITHOUT ROWID",
    *(
        f"CREATE TABLE {table} (name TEXT NOT NULL, field TEXT NOT NULL, value TEXT NOT NULL,"
        " PRIMARY KEY (name, field)) WITHOUT ROWID"
        for table in ("meta", "example", "threshold")
    ),
    f"PRAGMA application_id = {APPLICATION_ID}",
    *TRAIL_SCHEMA,
)

FieldTable = Literal["meta", "example", "threshold"]


class SqliteStore:
    """Keeps calibration sets in one file that several processes of one machine may share.

    One connection lives in one thread of its own: SQLite blocks, and a second connection would
    only wait for the first. A cancelled call leaves its thread to finish the step, so a write is
    whole or was never begun.

    Args:
        path: Of the file; it and its folder are made by `open` if missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Opens the file, and makes its folder and tables if they are missing.

        Raises:
            StoreUnavailableError: The file cannot be opened or written.
            StoreCorruptError: The file is no database, or not one of this version.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite-store")
        await self.ping()

    async def close(self) -> None:
        """Closes the file after the step that runs; safe to call twice or without `open`."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        closing = thread.submit(self._disconnect)
        thread.shutdown(wait=False)
        # Shielded, or a cancelled close would be taken off the queue and leave the file open.
        await asyncio.shield(asyncio.wrap_future(closing))

    async def ping(self) -> None:
        """Returns if the file can be read now."""
        # Fetched, because a cursor left open would hold its snapshot.
        query = "SELECT count(*) FROM (SELECT 1 FROM calibration LIMIT 1)"
        await self._run(lambda connection: connection.execute(query).fetchone())

    async def names(self) -> list[str]:
        """The names of all sets, sorted."""
        query = "SELECT name FROM calibration ORDER BY name"
        return await self._run(lambda connection: [name for (name,) in connection.execute(query)])

    async def version(self, name: str) -> Version | None:
        """The version of a set, from one row; None if there is none."""
        return await self._run(lambda connection: _version(connection, name))

    async def read(self, name: str) -> StoredCalibration | None:
        """One snapshot of a set; None if there is none."""
        return await self._run(lambda connection: _read(connection, name))

    async def write(
        self,
        name: str,
        state: StoredCalibration,
        *,
        revision: Revision,
        expected: Version | None,
        removed: Collection[str] = (),
    ) -> bool:
        """Replaces meta and thresholds, changes examples and extends the trail, in one step.

        Returns:
            False if another version than `expected` is in place, or the trail has this number or
            a later one: nothing was written.
        """
        # Copied before the thread starts: a caller that is cancelled may go on to change its dicts.
        own = state._replace(
            meta=dict(state.meta),
            examples=dict(state.examples),
            thresholds=dict(state.thresholds),
        )
        gone = tuple(removed)
        return await self._run(
            lambda connection: _write(connection, name, own, revision, expected, gone)
        )

    async def delete(self, name: str, *, revision: Revision) -> bool:
        """Removes a set and extends the trail in one step.

        Returns:
            False if there is no set, or the number is not after `last_number`.
        """
        return await self._run(lambda connection: _delete(connection, name, revision))

    async def last_number(self, name: str) -> int:
        """The highest number of any change, or of the set that is there; 0 if none."""
        return await self._run(lambda connection: _last_number(connection, name))

    async def revisions(self, name: str, *, before: int | None, limit: int) -> list[str]:
        """Records of the trail, newest first."""
        found = await self._run(
            lambda connection: _newest(connection, "record", name, before, limit)
        )
        return [record for _, record in found]

    async def undos(self, name: str, *, before: int | None, limit: int) -> list[Undo]:
        """How to take changes back, newest first."""
        found = await self._run(lambda connection: _newest(connection, "undo", name, before, limit))
        return [Undo(number, text) for number, text in found]

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Does `work` in the store's thread, connecting first if `open` could not."""
        if self._thread is None:
            raise StoreUnavailableError("The SQLite store is not open: call open() first.")

        def step() -> T:
            with self._translated():
                if self._connection is None:
                    self._connection = _connect(self._path)
                return work(self._connection)

        return await asyncio.get_running_loop().run_in_executor(self._thread, step)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turns what SQLite and the file system raise into the store's errors."""
        try:
            yield
        except sqlite3.Error as exc:
            # Extended codes hold the primary one in their low byte.
            primary = getattr(exc, "sqlite_errorcode", 0) & 0xFF
            if primary in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                raise StoreCorruptError(
                    f"{self._path} is no SQLite database, or a damaged one. Restore it from a"
                    " backup, or point SCOPE_STORE_URL at another file."
                ) from exc
            reason = getattr(exc, "sqlite_errorname", type(exc).__name__)
            raise StoreUnavailableError(
                f"SQLite cannot use {self._path} ({reason}). Check that the path is a file this"
                " user may write, that the disk has space, and that no other process holds a"
                f" transaction for more than {BUSY_TIMEOUT_S:g} s."
            ) from exc
        except OSError as exc:
            raise StoreUnavailableError(
                f"The folder of {self._path} cannot be made ({type(exc).__name__}). Check that"
                " its parent is a folder this user may write."
            ) from exc


def _connect(path: Path) -> sqlite3.Connection:
    """Opens the file with the tables in place, durable on commit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # isolation_level None: transactions begin and end where this module says so.
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        _make_tables(connection, path)
        _use_write_ahead_log(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _make_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Makes the tables in an empty file, and those that version 1 lacked; refuses any other."""
    # Checked under the write lock: two processes may open the same new file at once.
    with _transaction(connection, "IMMEDIATE"):
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (application, version, objects) == (0, 0, 0):
            for statement in SCHEMA:
                connection.execute(statement)
        elif (application, version) == (APPLICATION_ID, 1):
            for statement in TRAIL_SCHEMA:
                connection.execute(statement)
        elif (application, version) != (APPLICATION_ID, SCHEMA_VERSION):
            raise StoreCorruptError(
                f"{path} holds other tables than this version of scope-judge makes (its schema is"
                f" {version}, ours {SCHEMA_VERSION}). Point SCOPE_STORE_URL at another file, or run"
                " the version that made it."
            )


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Lets readers go on while one process writes."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            # Changing the mode needs the file alone and does not always honour the busy timeout.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


@contextmanager
def _transaction(
    connection: sqlite3.Connection, mode: Literal["DEFERRED", "IMMEDIATE"]
) -> Iterator[None]:
    """Commits at the end, or rolls everything back.

    DEFERRED is one snapshot for several reads. IMMEDIATE takes the write lock before the first
    read, so that what a write was decided on cannot change under it.
    """
    connection.execute(f"BEGIN {mode}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite has rolled back by itself after some errors; a second ROLLBACK would raise.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, name: str) -> Version | None:
    query = "SELECT write_id, version FROM calibration WHERE name = ?"
    row = connection.execute(query, (name,)).fetchone()
    return Version(*row) if row else None


def _read(connection: sqlite3.Connection, name: str) -> StoredCalibration | None:
    with _transaction(connection, "DEFERRED"):
        version = _version(connection, name)
        if version is None:
            return None
        return StoredCalibration(
            version=version,
            meta=_fields(connection, "meta", name),
            examples=_fields(connection, "example", name),
            thresholds=_fields(connection, "threshold", name),
        )


def _write(
    connection: sqlite3.Connection,
    name: str,
    state: StoredCalibration,
    revision: Revision,
    expected: Version | None,
    removed: Collection[str],
) -> bool:
    with _transaction(connection, "IMMEDIATE"):
        trail = _newest(connection, "record", name, None, 1)
        if _version(connection, name) != expected or (trail and trail[0][0] >= revision.number):
            return False
        _extend_trail(connection, name, revision)
        connection.execute(
            "INSERT OR REPLACE INTO calibration (name, write_id, version) VALUES (?, ?, ?)",
            (name, *state.version),
        )
        connection.execute("DELETE FROM meta WHERE name = ?", (name,))
        connection.execute("DELETE FROM threshold WHERE name = ?", (name,))
        _put(connection, "meta", name, state.meta)
        _put(connection, "threshold", name, state.thresholds)
        _put(connection, "example", name, state.examples)
        connection.executemany(
            "DELETE FROM example WHERE name = ? AND field = ?",
            ((name, digest) for digest in removed),
        )
        return True


def _delete(connection: sqlite3.Connection, name: str, revision: Revision) -> bool:
    with _transaction(connection, "IMMEDIATE"):
        if _version(connection, name) is None or revision.number <= _last_number(connection, name):
            return False
        _extend_trail(connection, name, revision)
        for table in ("meta", "example", "threshold", "calibration"):
            connection.execute(f"DELETE FROM {table} WHERE name = ?", (name,))
        return True


def _last_number(connection: sqlite3.Connection, name: str) -> int:
    query = (
        "SELECT max(coalesce((SELECT version FROM calibration WHERE name = :name), 0),"
        " coalesce((SELECT max(number) FROM revision WHERE name = :name), 0))"
    )
    (number,) = connection.execute(query, {"name": name}).fetchone()
    return int(number)


def _newest(
    connection: sqlite3.Connection,
    column: Literal["record", "undo"],
    name: str,
    before: int | None,
    limit: int,
) -> list[tuple[int, str]]:
    """Number and one column of the trail, newest first."""
    query = (
        f"SELECT number, {column} FROM revision WHERE name = :name"
        " AND (:before IS NULL OR number < :before) ORDER BY number DESC LIMIT :limit"
    )
    asked = {"name": name, "before": before, "limit": limit}
    return connection.execute(query, asked).fetchall()


def _extend_trail(connection: sqlite3.Connection, name: str, revision: Revision) -> None:
    connection.execute(
        "INSERT INTO revision (name, number, record, undo) VALUES (?, ?, ?, ?)", (name, *revision)
    )


def _fields(connection: sqlite3.Connection, table: FieldTable, name: str) -> dict[str, str]:
    query = f"SELECT field, value FROM {table} WHERE name = ?"
    return dict(connection.execute(query, (name,)).fetchall())


def _put(
    connection: sqlite3.Connection, table: FieldTable, name: str, fields: Mapping[str, str]
) -> None:
    connection.executemany(
        f"INSERT OR REPLACE INTO {table} (name, field, value) VALUES (?, ?, ?)",
        ((name, field, value) for field, value in fields.items()),
    )
