"""An open SQLite file: its tables, and checks that it is still the file at its path.

SQLite continues to write into a file that was removed or replaced, and those writes are lost. So
each call of the store checks that the file, its log (`-wal`) and its index (`-shm`) are still the
files that were opened. If they are not, the file is lost for good: the store refuses further work,
and the process ends so that its supervisor starts it again on the file that is then at the path.

Never copy a backup over the open file: device and inode stay the same then, and SQLite mixes the
old and the new content.
"""

import logging
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

from app.core.errors import StoreCorruptError, StoreUnavailableError

# Time to wait for a write lock that another process holds. A write of 20,000 examples takes about
# 0.1 s, so only a process that hangs in a transaction holds the lock for so long.
BUSY_TIMEOUT_S = 5.0
# Only the owner can read the file, because labels of customers can be confidential. SQLite gives
# the log and the index the same mode.
_MODE = 0o600

# "ScJd" in the header of the file. It distinguishes the file from databases of other programs that
# have the same schema version.
APPLICATION_ID = 0x53634A64
# The format of the store. A file with another number is refused.
SCHEMA_VERSION = 9
# Kept scores; `until` is in seconds since 1970.
_SCORE = "CREATE TABLE score (slot INTEGER PRIMARY KEY, text TEXT NOT NULL, until REAL NOT NULL)"

SCHEMA = (
    "CREATE TABLE revision (name TEXT NOT NULL, number INTEGER NOT NULL, write_id TEXT NOT NULL,"
    " record TEXT NOT NULL, PRIMARY KEY (name, number))",
    "CREATE TABLE version (name TEXT NOT NULL, number INTEGER NOT NULL, blob BLOB NOT NULL,"
    " PRIMARY KEY (name, number))",
    "CREATE TABLE threshold (name TEXT NOT NULL, field TEXT NOT NULL, value TEXT NOT NULL,"
    " PRIMARY KEY (name, field)) WITHOUT ROWID",
    "CREATE TABLE audit_set (name TEXT PRIMARY KEY, position INTEGER NOT NULL,"
    " rows INTEGER NOT NULL) WITHOUT ROWID",
    # The texts come last, so that reading a row does not read them.
    "CREATE TABLE audit (name TEXT NOT NULL, key TEXT NOT NULL, position INTEGER NOT NULL,"
    " text TEXT NOT NULL, texts TEXT, PRIMARY KEY (name, key))",
    "CREATE INDEX audit_position ON audit (name, position)",
    "CREATE TABLE audit_secret (only INTEGER PRIMARY KEY CHECK (only = 1), bytes BLOB NOT NULL)",
    _SCORE,
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

logger = logging.getLogger("app.stores")


# Connections that must not be closed, because closing would write an old log into another content.
# `scope-judge serve` ends without closing them.
_NEVER_CLOSED: list[sqlite3.Connection] = []

# Device and inode of a file; while the file is open, no other file has the same numbers.
_Inode = tuple[int, int]


# The files at a path, at `path-wal` and at `path-shm`; None for a missing file.
_Place = tuple[_Inode | None, _Inode | None, _Inode | None]


def _place_of(path: Path) -> _Place:
    # SQLite keeps the log and the index beside the target of a link.
    real = os.path.realpath(path)
    return _inode(real), _inode(f"{real}-wal"), _inode(f"{real}-shm")


class OpenFile:
    """A connection to the file that was at the path when it was opened; a commit is durable.

    Make an instance with `at`.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, place: _Place) -> None:
        self.connection = connection
        self._path = path
        self._place = place
        self._written = _written(path)
        # The reason why the file is lost, if it is.
        self.lost: str | None = None

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
        place = _place_of(path)
        if place[0] != before:
            connection.close()
            raise StoreUnavailableError(f"{path} was replaced while it was being opened.")
        return cls(path, connection, place)

    def check(self) -> None:
        """Checks that the files at the path are the open files, before and after each step.

        Raises:
            StoreUnavailableError: The file was removed or replaced; it is lost for good.
        """
        if self.lost is None:
            now = _place_of(self._path)
            if now == self._place:
                self._written = _written(self._path)
                return
            self.lost = (
                f"{self._path}, or the -wal or -shm beside it, was removed or replaced while it was"
                " in use, and a change in progress may be lost"
            )
            self._give_up(now)
        raise StoreUnavailableError(
            f"{self.lost}. The service stops; when it is started again, it opens the file that is"
            " at the path then."
        )

    def close(self) -> None:
        """Closes the connection; that of a lost file is closed already, as far as that is safe."""
        with suppress(StoreUnavailableError):
            self.check()
            self.connection.close()

    def _give_up(self, now: _Place) -> None:
        """Writes the log into the open file and closes it, unless that could damage other content.

        After a move, the open file is the one that was moved away. It becomes complete without its
        log. A log that was left at the path becomes empty: SQLite would write its content into the
        new file as soon as somebody opened that.

        If only the log or the index was removed, the log is still open here, and writing it saves
        its content. But if the content of the file has changed since, it may be a backup that was
        copied over the file. If there is another log, closing would remove it.
        """
        file, log, index = self._place
        moved = now[0] != file
        removed = now[1] in (None, log) and now[2] in (None, index)
        if moved or (removed and self._written == _written(self._path)):
            with suppress(sqlite3.Error):
                self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self.connection.close()
        else:
            _NEVER_CLOSED.append(self.connection)


def _inode(path: str | Path) -> _Inode | None:
    try:
        # `Path.stat` would be slower, and each step of the store asks for six files.
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def _written(path: Path) -> tuple[int, int] | None:
    """Returns modification time in ns and size in bytes; None for a missing file."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_mtime_ns, status.st_size


def _connect(path: Path) -> sqlite3.Connection:
    """Opens the file, and makes the tables of an empty one."""
    # isolation_level None: only this program begins and ends transactions.
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    with ExitStack() as on_error:
        on_error.callback(connection.close)
        connection.execute("PRAGMA synchronous = FULL")
        # Zeros replace what is deleted: texts of audits must not stay in the file.
        connection.execute("PRAGMA secure_delete = ON").fetchone()
        _make_tables(connection, path)
        _use_write_ahead_log(connection)
        on_error.pop_all()
    return connection


def _make_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Makes all tables in an empty file; raises StoreCorruptError if it holds other ones."""
    # This needs the write lock, because two processes can open the same new file at once.
    with transaction(connection, "IMMEDIATE"):
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (application, version) == (APPLICATION_ID, SCHEMA_VERSION):
            return
        if application == APPLICATION_ID:
            raise StoreCorruptError(
                f"{path} has the store format {version}, and this release of scope-judge reads the"
                f" format {SCHEMA_VERSION} only. Run the release that wrote the file, or set"
                " SCOPE_STORE_URL to another file."
            )
        if (application, version, objects) != (0, 0, 0):
            raise StoreCorruptError(
                f"{path} is a database of another program. Set SCOPE_STORE_URL to another file."
            )
        for statement in SCHEMA:
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
    finally:
        # After some errors SQLite has already rolled back, and a second ROLLBACK would raise.
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def unsynced(connection: sqlite3.Connection) -> Iterator[None]:
    """Lets the commits of the block write the log of SQLite without waiting for the disk.

    The next commit outside of it syncs both.
    """
    connection.execute("PRAGMA synchronous = NORMAL")
    try:
        yield
    finally:
        connection.execute("PRAGMA synchronous = FULL")
