"""One open SQLite file: its tables, and whether it is still the file at its path.

SQLite writes on into a file that was removed or replaced, and everything written there is lost. So
each step asks whether the path, and the log and the index beside it, are still the files that were
opened.

To restore a backup under a running service:

1. Move the file, its `-wal` and its `-shm` away.
2. Move the backup's `-wal` in, if it has one.
3. Move the backup itself in.

The service answers 503 meanwhile and opens the file 2 seconds later. Never copy a backup over the
file while it is open: that leaves device and inode as they are, and SQLite mixes the two.
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

# How long another process may hold the write lock before this one gives up. A write of 20,000
# examples takes about 0.1 s, so the limit is met only by a process that hangs in a transaction.
BUSY_TIMEOUT_S = 5.0
# A file that takes the place of ours is opened once it and its log have been left alone for so
# long: a file that is still being copied, or whose log is still to come, must not be opened.
SETTLED_S = 2.0
# Only its owner reads what customers' labels say about a judge. The log and the index get the mode
# of the file.
_MODE = 0o600

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

logger = logging.getLogger("app.stores")


class _Inode(NamedTuple):
    """Which file is at a path; no other has its numbers as long as it is open."""

    device: int
    number: int


class _Place(NamedTuple):
    """The files at a path, at `path-wal` and at `path-shm`; None where there is none."""

    file: _Inode | None
    log: _Inode | None
    shared: _Inode | None

    @classmethod
    def of(cls, path: Path) -> "_Place":
        """The files that are there now."""
        return cls(*(_inode(each) for each in _paths(path)))


class OpenFile:
    """A connection, durable on commit, to the file that was at the path when it was opened.

    Use `at` to make one.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, place: _Place) -> None:
        self.connection = connection
        self._path = path
        self._place = place
        self._written = _written(path)

    @classmethod
    def at(cls, path: Path) -> "OpenFile":
        """Opens the file, and makes folder, file and tables where they are missing.

        Raises:
            StoreCorruptError: The file holds other tables.
            StoreUnavailableError: The file was replaced meanwhile.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            # Not by SQLite, which would make it readable to all. Closing a file that another
            # connection of this process has open would take that one's locks away: hence only
            # where there is none.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, _MODE))
        elif path.stat().st_mode & stat.S_IWOTH:
            logger.warning("every user of this machine can write to %s: chmod o-w it", path)
        before = _inode(path)
        connection = _connect(path)
        place = _Place.of(path)
        if place.file != before:
            connection.close()
            raise StoreUnavailableError(f"{path} was replaced while it was being opened.")
        return cls(path, connection, place)

    def in_place(self) -> bool:
        """Whether the files at the path are those that are open."""
        return _Place.of(self._path) == self._place

    def check(self) -> None:
        """Makes sure that what was just done was done to the file at the path.

        Raises:
            StoreUnavailableError: The file was removed or replaced.
        """
        if not self.in_place():
            raise StoreUnavailableError(
                f"{self._path} was removed or replaced during a step of the store; what was under"
                " way may be lost."
            )
        self._written = _written(self._path)

    def successor(self) -> "OpenFile":
        """Opens what is at the path now, once that is safe, and closes this one.

        Raises:
            StoreUnavailableError: There is nothing at the path, or it is not safe.
        """
        now = _Place.of(self._path)
        if now.file is None:
            raise StoreUnavailableError(
                f"{self._path} was removed while it was in use. Put it or a backup of it back: it"
                " is opened without a restart."
            )
        if now.file == self._place.file:
            if not self._harms_nothing(now):
                raise StoreUnavailableError(
                    f"The -wal or -shm of {self._path} was removed or replaced while it was in use."
                    " Restart the service, and whatever else has the file open."
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
                f"{self._path} was replaced, but {' and '.join(stale)} beside it belongs to the"
                " file that was there before: SQLite would mix the two. Move it away."
            )
        if not _is_settled(self._path):
            raise StoreUnavailableError(
                f"{self._path} was replaced a moment ago; it is opened once nobody has changed it"
                f" for {SETTLED_S:g} s."
            )
        found = OpenFile.at(self._path)
        # Now, and not before: as long as it is open, no other file can have its inode. As its file
        # is not at the path any more, SQLite leaves the log at the path alone.
        self.close()
        return found

    def close(self) -> None:
        """Closes the connection, where that can harm no other file."""
        if self._harms_nothing(_Place.of(self._path)):
            self.connection.close()
        else:
            # One reference more than Python knows of: not even its end closes the connection.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.connection))

    def _harms_nothing(self, now: _Place) -> bool:
        """Whether SQLite may do what it does on closing: to write the log into the file.

        It does that only where the file at the path is its own. There it saves a log that somebody
        has removed, which is still open here. But a file that somebody has written to since may be
        a backup, which an older log would ruin; and SQLite would remove another log.
        """
        if now.file != self._place.file or now == self._place:
            return True
        others = zip(now[1:], self._place[1:], strict=True)
        removed_only = all(there in (None, own) for there, own in others)
        return removed_only and self._written == _written(self._path)


def _paths(path: Path) -> Iterator[Path]:
    """The file, its log and its index, which SQLite keeps beside what a link leads to."""
    real = os.path.realpath(path)
    return (Path(real + suffix) for suffix in ("", "-wal", "-shm"))


def _inode(path: Path) -> _Inode | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _Inode(found.st_dev, found.st_ino)


def _written(path: Path) -> tuple[int, int] | None:
    """What changes when a file is written to."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_mtime_ns, found.st_size


def _is_settled(path: Path) -> bool:
    now = time.time()
    file, log, _ = _paths(path)
    # A clock that was put back must not keep the file closed.
    return not any(
        0 <= now - each.stat().st_ctime < SETTLED_S for each in (file, log) if each.exists()
    )


def _connect(path: Path) -> sqlite3.Connection:
    """Opens the file with the tables in place."""
    # isolation_level None: transactions begin and end where this program says so.
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
    with transaction(connection, "IMMEDIATE"):
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
            # The log and the index are made by the first read.
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            # Changing the mode needs the file alone and does not always honour the busy timeout.
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
