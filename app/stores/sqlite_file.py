"""An open SQLite file: its tables, and checks that it is still the file at its path.

SQLite continues to write into a file that was removed or replaced, and those writes are lost. So
each call of the store checks that the file, its log (`-wal`) and its index (`-shm`) are still the
files that were opened.

To restore a backup under a running service:

1. Move the file, its `-wal` and its `-shm` away.
2. Move the backup's `-wal` in, if it has one.
3. Move the backup itself in.

The service answers 503 meanwhile, and opens the file 2 seconds later. Never copy a backup over the
open file: device and inode stay the same then, and SQLite mixes the old and the new content.
"""

import ctypes
import logging
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from app.core.errors import StoreCorruptError, StoreUnavailableError

# Time to wait for a write lock that another process holds. A write of 20,000 examples takes about
# 0.1 s, so only a process that hangs in a transaction holds the lock for so long.
BUSY_TIMEOUT_S = 5.0
# A file that replaces the open one is opened after it and its log were unchanged for so long. It
# must not be opened while it is being copied or before its log was copied.
SETTLED_S = 2.0
# Only the owner can read the file, because labels of customers can be confidential. SQLite gives
# the log and the index the same mode.
_MODE = 0o600

# "ScJd" in the header of the file. It distinguishes the file from databases of other programs that
# have the same schema version.
APPLICATION_ID = 0x53634A64
SCHEMA_VERSION = 3
# The tables of the audits, which version 2 of the schema lacked. The triggers protect the log from
# other programs: to shorten it, somebody must drop them on purpose. A BEFORE trigger on INSERT, as
# INSERT OR REPLACE deletes rows without the trigger of DELETE.
AUDIT_SCHEMA = (
    "CREATE TABLE audit (position INTEGER PRIMARY KEY, entry TEXT NOT NULL)",
    *(
        f"CREATE TRIGGER audit_{verb.lower()} BEFORE {verb} ON audit"
        " BEGIN SELECT RAISE(ABORT, 'the log of audits only grows'); END"
        for verb in ("UPDATE", "DELETE")
    ),
    "CREATE TRIGGER audit_insert BEFORE INSERT ON audit"
    " WHEN NEW.position <= coalesce((SELECT max(position) FROM audit), 0)"
    " BEGIN SELECT RAISE(ABORT, 'the log of audits only grows'); END",
    "CREATE TABLE audit_secret (only INTEGER PRIMARY KEY CHECK (only = 1), bytes BLOB NOT NULL)",
    "CREATE TABLE evidence (name TEXT NOT NULL, replica TEXT NOT NULL, text TEXT NOT NULL,"
    " PRIMARY KEY (name, replica)) WITHOUT ROWID",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
# The table of the trail, which version 1 of the schema lacked, protected in the same way.
TRAIL_SCHEMA = (
    "CREATE TABLE revision (name TEXT NOT NULL, number INTEGER NOT NULL, record TEXT NOT NULL,"
    " undo TEXT NOT NULL, PRIMARY KEY (name, number))",
    *(
        f"CREATE TRIGGER revision_{verb.lower()} BEFORE {verb} ON revision"
        " BEGIN SELECT RAISE(ABORT, 'the trail only grows'); END"
        for verb in ("UPDATE", "DELETE")
    ),
    # INSERT OR REPLACE deletes rows by either key without the trigger of DELETE.
    "CREATE TRIGGER revision_insert BEFORE INSERT ON revision WHEN EXISTS (SELECT 1 FROM revision"
    " WHERE name = NEW.name AND number >= NEW.number OR rowid = NEW.rowid)"
    " BEGIN SELECT RAISE(ABORT, 'the trail only grows'); END",
    *AUDIT_SCHEMA,
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
# Version of the schema -> statements that it lacks.
_MISSING: dict[int, tuple[str, ...]] = {1: TRAIL_SCHEMA, 2: AUDIT_SCHEMA, SCHEMA_VERSION: ()}

logger = logging.getLogger("app.stores")


class _Inode(NamedTuple):
    """Device and inode of a file; while the file is open, no other file has the same numbers."""

    device: int
    number: int


class _Place(NamedTuple):
    """The files at a path, at `path-wal` and at `path-shm`; None for a missing file."""

    file: _Inode | None
    log: _Inode | None
    shared: _Inode | None

    @classmethod
    def of(cls, path: Path) -> "_Place":
        """Returns the files that exist now."""
        return cls(*(_inode(each) for each in _names(path)))


class OpenFile:
    """A connection to the file that was at the path when it was opened; a commit is durable.

    Make an instance with `at`.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, place: _Place) -> None:
        self.connection = connection
        self._path = path
        self._place = place
        self._written = _written(path)

    @classmethod
    def at(cls, path: Path) -> "OpenFile":
        """Opens the file, and makes a missing folder, a missing file and missing tables.

        Raises:
            StoreCorruptError: The file holds other tables.
            StoreUnavailableError: The file was replaced while it was being opened.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            # Make the file here, because SQLite would make it readable for all users. Do this only
            # for a missing file: closing a file drops the locks that other connections of this
            # process hold on it.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, _MODE))
        elif path.stat().st_mode & stat.S_IWOTH:
            logger.warning("every user of this machine can write to %s: run chmod o-w on it", path)
        before = _inode(path)
        connection = _connect(path)
        place = _Place.of(path)
        if place.file != before:
            connection.close()
            raise StoreUnavailableError(f"{path} was replaced while it was being opened.")
        return cls(path, connection, place)

    def in_place(self) -> bool:
        """Whether the files at the path are the open files."""
        return _Place.of(self._path) == self._place

    def check(self) -> None:
        """Checks that the last step of the store used the file at the path.

        Raises:
            StoreUnavailableError: The file was removed or replaced.
        """
        if not self.in_place():
            raise StoreUnavailableError(
                f"{self._path} was removed or replaced during a step of the store, and the "
                "step may be lost"
            )
        self._written = _written(self._path)

    def successor(self) -> "OpenFile":
        """Opens the file that is at the path now, if that is safe, and closes this one.

        Raises:
            StoreUnavailableError: There is no file at the path, or opening it is not safe yet.
        """
        now = _Place.of(self._path)
        if now.file is None:
            raise StoreUnavailableError(
                f"{self._path} was removed while it was in use. Put the file or a backup back; the"
                " service opens it without a restart."
            )
        if now.file == self._place.file:
            if not self._harms_nothing(now):
                raise StoreUnavailableError(
                    f"The -wal or -shm of {self._path} was removed or replaced while it was in use."
                    " Restart the service, and every other program that has the file open."
                )
            self.connection.close()
            return OpenFile.at(self._path)
        stale = [
            str(each)
            for each, there, own in zip(_paths(self._path), now, self._place, strict=True)
            if there is not None and there == own
        ]
        if stale:
            raise StoreUnavailableError(
                f"{self._path} was replaced, but {' and '.join(stale)} still belongs to the file"
                " before, and SQLite would mix the two. Move it away."
            )
        if not _is_settled(self._path):
            raise StoreUnavailableError(
                f"{self._path} was replaced a moment ago; the service opens it after"
                f" {SETTLED_S:g} s without a change."
            )
        found = OpenFile.at(self._path)
        # Close the old file only now: while it is open, no other file can get its inode. SQLite
        # does not touch the log at the path, because the old file is no longer at the path.
        self.close()
        return found

    def close(self) -> None:
        """Closes the connection, unless that could damage another file."""
        if self._harms_nothing(_Place.of(self._path)):
            self.connection.close()
        else:
            # An extra reference keeps the connection open, even at the end of the interpreter.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.connection))

    def _harms_nothing(self, now: _Place) -> bool:
        """Whether closing the connection can damage no other file.

        On closing, SQLite writes the log into the file, but only if the file at the path is the
        open one. That is useful if somebody removed the log: the log is still open here, and
        closing saves its content. Closing is harmful in two cases. If another program has written
        to the file since, the file may be a restored backup, which the older log would damage. If
        there is another log at the path, SQLite would remove that log.
        """
        if now.file != self._place.file or now == self._place:
            return True
        others = zip(now[1:], self._place[1:], strict=True)
        removed_only = all(there in (None, own) for there, own in others)
        return removed_only and self._written == _written(self._path)


def _names(path: Path) -> tuple[str, str, str]:
    """Returns file, log and index; SQLite keeps the last two beside the target of a link."""
    real = os.path.realpath(path)
    return real, f"{real}-wal", f"{real}-shm"


def _paths(path: Path) -> tuple[Path, Path, Path]:
    """Returns the same as `_names`, as paths."""
    file, log, shared = _names(path)
    return Path(file), Path(log), Path(shared)


def _inode(path: str | Path) -> _Inode | None:
    try:
        # Not `Path.stat`: each step of the store asks for six files.
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _Inode(found.st_dev, found.st_ino)


def _written(path: Path) -> tuple[int, int] | None:
    """Returns modification time in ns and size in bytes; None for a missing file."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_mtime_ns, found.st_size


def _is_settled(path: Path) -> bool:
    now = time.time()
    file, log, _ = _paths(path)
    # A negative age means that the clock was set back; that must not keep the file closed.
    return not any(
        0 <= now - each.stat().st_ctime < SETTLED_S for each in (file, log) if each.exists()
    )


def _connect(path: Path) -> sqlite3.Connection:
    """Opens the file and makes missing tables."""
    # isolation_level None: only this program begins and ends transactions.
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
    """Makes all tables in an empty file, and the missing ones in a file of an earlier schema.

    Raises:
        StoreCorruptError: The file holds other tables.
    """
    # Under the write lock, because two processes can open the same new file at once.
    with transaction(connection, "IMMEDIATE"):
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        missing = _MISSING.get(version) if application == APPLICATION_ID else None
        if (application, version, objects) == (0, 0, 0):
            missing = SCHEMA
        if missing is None:
            raise StoreCorruptError(
                f"{path} holds other tables than this version of scope-judge makes: its schema has"
                f" version {version}, this program needs {SCHEMA_VERSION}. Set SCOPE_STORE_URL to"
                " another file, or run the program that made the file."
            )
        for statement in missing:
            connection.execute(statement)


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switches to write-ahead logging, so that readers can continue while one process writes."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            # The first read makes the log and the index.
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            # Changing the mode needs exclusive access, and does not always honour the busy timeout.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


@contextmanager
def transaction(
    connection: sqlite3.Connection, mode: Literal["DEFERRED", "IMMEDIATE"]
) -> Iterator[None]:
    """Commits at the end, or rolls everything back.

    DEFERRED gives several reads one snapshot. IMMEDIATE takes the write lock before the first read,
    so that the data which decided a write cannot change before the write.
    """
    connection.execute(f"BEGIN {mode}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # After some errors SQLite has already rolled back, and a second ROLLBACK would raise.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
