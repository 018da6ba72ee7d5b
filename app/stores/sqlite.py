"""A store in one SQLite file, durable, for one machine and without a server."""

import asyncio
import secrets
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

from app.core.errors import StoreCorruptError, StoreUnavailableError
from app.ports import (
    KEPT_VERSIONS,
    AuditState,
    Entry,
    Head,
    RowsChange,
    StoredRow,
    placed,
)
from app.stores import sqlite_file
from app.stores.sqlite_file import OpenFile, transaction, unsynced

T = TypeVar("T")

_CHANGE = "UPDATE audit SET position = :position, text = :text WHERE name = :name AND key = :key"
_INSERT = "INSERT INTO audit (name, key, position, text) VALUES (:name, :key, :position, :text)"


class SqliteStore:
    """Keeps sets and audits in one file that several processes of one machine can share.

    The store uses one connection in one thread, because SQLite blocks and a second connection would
    only wait for the first. The thread finishes a write even if its call is cancelled, so a write
    is made completely or not at all.

    Args:
        path: Path of the file. `open` makes a missing file and a missing folder. If the file is
            removed or replaced later, all calls fail until the process is started again.
    """

    def __init__(self, path: Path) -> None:
        # Absolute, because the working directory can change, and because SQLite gives ":memory:" a
        # special meaning.
        self._path = path.absolute()
        self._thread: ThreadPoolExecutor | None = None
        self._file: OpenFile | None = None
        self._is_lost = asyncio.Event()
        self._lost_because = ""

    async def open(self) -> None:
        if self._thread is None:
            self._is_lost.clear()
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite-store")
        await self.ping()

    async def lost(self) -> str:
        """Waits until a call finds that the file was removed or replaced; returns the reason."""
        await self._is_lost.wait()
        return self._lost_because

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        closing = thread.submit(self._disconnect)
        thread.shutdown(wait=False)
        # Shielded: a cancelled close must not leave the queue of the thread and the file open.
        await asyncio.shield(asyncio.wrap_future(closing))

    async def ping(self) -> None:
        # Fetch the row, because an open cursor would hold its snapshot.
        query = "SELECT count(*) FROM (SELECT 1 FROM revision LIMIT 1)"
        await self._run(lambda connection: connection.execute(query).fetchone())

    async def names(self, *, deleted: bool = False) -> list[str]:
        query = (
            "SELECT name FROM revision WHERE (name, number) IN"
            " (SELECT name, max(number) FROM revision GROUP BY name)"
            " AND (? OR write_id != '') ORDER BY name"
        )
        return await self._run(
            lambda connection: [name for (name,) in connection.execute(query, (deleted,))]
        )

    async def head(self, name: str) -> Head | None:
        return await self._run(lambda connection: _head(connection, name))

    async def read(self, name: str, number: int | None = None) -> bytes | None:
        return await self._run(lambda connection: _read(connection, name, number))

    async def write(
        self,
        name: str,
        head: Head,
        *,
        blob: bytes | None,
        thresholds: Mapping[str, str],
        record: str,
        expected: Head | None,
    ) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            with transaction(connection, "IMMEDIATE"):
                present = _head(connection, name)
                if present != expected or (present and present.number >= head.number):
                    return False
                connection.execute(
                    "INSERT INTO revision (name, number, write_id, record) VALUES (?, ?, ?, ?)",
                    (name, head.number, head.write_id, record),
                )
                _put_version(connection, name, head.number, blob, thresholds)
                return True

        return await self._run(write)

    async def trail(self, name: str, *, before: int | None, limit: int) -> list[Entry]:
        query = (
            "SELECT write_id, number, record FROM revision WHERE name = :name"
            " AND (:before IS NULL OR number < :before) ORDER BY number DESC LIMIT :limit"
        )
        parameters = {"name": name, "before": before, "limit": limit}
        return await self._run(
            lambda connection: [
                Entry(Head(write_id, number), record)
                for write_id, number, record in connection.execute(query, parameters)
            ]
        )

    async def secret(self) -> bytes:
        return await self._run(_secret)

    async def put_secret(self, secret: bytes) -> None:
        query = "INSERT OR REPLACE INTO audit_secret (only, bytes) VALUES (1, ?)"

        def put(connection: sqlite3.Connection) -> None:
            with transaction(connection, "IMMEDIATE"):
                connection.execute(query, (secret,))

        await self._run(put)

    async def audit_states(self) -> dict[str, AuditState]:
        return await self._run(_audit_states)

    async def audits(self, name: str, *, after: int, limit: int) -> list[StoredRow]:
        query = (
            "SELECT key, position, text FROM audit WHERE name = ? AND position > ?"
            " ORDER BY position LIMIT ?"
        )
        # Row by row, so that other threads can run in between.
        return await self._run(
            lambda connection: [
                StoredRow(*row) for row in connection.execute(query, (name, after, limit))
            ]
        )

    async def write_audits(self, name: str, change: RowsChange) -> int | None:
        def write(connection: sqlite3.Connection) -> int | None:
            log = nullcontext() if change.synced else unsynced(connection)
            with log, transaction(connection, "IMMEDIATE"):
                position_of = "SELECT position FROM audit WHERE name = ? AND key = ?"
                for key in change.keys:
                    (present,) = connection.execute(position_of, (name, key)).fetchone() or (0,)
                    if present != change.expected.get(key, 0):
                        return None
                query = "SELECT position, rows FROM audit_set WHERE name = ?"
                before, count = connection.execute(query, (name,)).fetchone() or (0, 0)
                last = before
                for row in placed(change.rows, after=before):
                    last = row.position
                    values = {"name": name, **row._asdict()}
                    if not connection.execute(_CHANGE, values).rowcount:
                        connection.execute(_INSERT, values)
                        count += 1
                put = "UPDATE audit SET texts = ? WHERE name = ? AND key = ?"
                connection.executemany(
                    put, ((text, name, key) for key, text in change.texts.items())
                )
                connection.executemany(put, ((None, name, key) for key in change.forgotten))
                delete = "DELETE FROM audit WHERE name = ? AND key = ?"
                for key in change.removed:
                    count -= connection.execute(delete, (name, key)).rowcount
                connection.execute(
                    "INSERT OR REPLACE INTO audit_set (name, position, rows) VALUES (?, ?, ?)",
                    (name, last + bool(change.removed), count),
                )
                return int(before)

        return await self._run(write)

    async def audit_texts(self, name: str, keys: Sequence[str]) -> dict[str, str]:
        query = "SELECT key, texts FROM audit WHERE name = ? AND key = ? AND texts IS NOT NULL"
        return await self._run(
            lambda connection: dict(
                row for key in keys for row in connection.execute(query, (name, key))
            )
        )

    async def charge(self, caller: str, cost_s: float, *, most_owed_s: float) -> float | None:
        """Counts nothing: one process uses the store."""
        return None

    async def kept_scores(self, slots: Collection[int]) -> dict[int, str]:
        query, now = "SELECT slot, text FROM score WHERE slot = ? AND until > ?", time.time()
        return await self._run(
            lambda connection: dict(
                row for slot in slots for row in connection.execute(query, (slot, now))
            )
        )

    async def keep_scores(self, scores: Mapping[int, str], *, seconds: int) -> None:
        query = "INSERT OR REPLACE INTO score (slot, text, until) VALUES (?, ?, ?)"
        until = time.time() + seconds

        def keep(connection: sqlite3.Connection) -> None:
            with unsynced(connection), transaction(connection, "IMMEDIATE"):
                connection.executemany(
                    query, ((slot, text, until) for slot, text in scores.items())
                )

        await self._run(keep)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `work` in the thread of the store; connects first if `open` could not."""
        if self._thread is None:
            raise StoreUnavailableError("The SQLite store is not open: call open() first.")

        def step() -> T:
            with self._translated():
                file = self._file = self._file or OpenFile.at(self._path)
                file.check()
                done = work(file.connection)
                file.check()
                return done

        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, step)
        finally:
            if self._file is not None and self._file.lost is not None:
                self._lost_because = self._file.lost
                self._is_lost.set()

    def _disconnect(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translates errors of SQLite and the file system into errors of the store."""
        try:
            yield
        except sqlite3.Error as exc:
            # The low byte of an extended error code is the primary code.
            primary = getattr(exc, "sqlite_errorcode", 0) & 0xFF
            if primary in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                raise StoreCorruptError(
                    f"{self._path} is not a SQLite database, or is damaged. Restore it from a"
                    " backup, or set SCOPE_STORE_URL to another file."
                ) from exc
            reason = getattr(exc, "sqlite_errorname", type(exc).__name__)
            raise StoreUnavailableError(
                f"SQLite cannot use {self._path} ({reason}). Check that the path is a file that"
                " this user can write, that the disk has free space, and that no other process"
                f" holds a transaction for more than {sqlite_file.BUSY_TIMEOUT_S:g} s."
            ) from exc
        except OSError as exc:
            raise StoreUnavailableError(
                f"{self._path} or its folder cannot be opened or made ({type(exc).__name__})."
                " Check that its parent is a folder that this user can write."
            ) from exc


def _head(connection: sqlite3.Connection, name: str) -> Head | None:
    query = "SELECT write_id, number FROM revision WHERE name = ? ORDER BY number DESC LIMIT 1"
    row = connection.execute(query, (name,)).fetchone()
    return None if row is None else Head(*row)


def _read(connection: sqlite3.Connection, name: str, number: int | None) -> bytes | None:
    with transaction(connection, "DEFERRED"):
        if number is None:
            head = _head(connection, name)
            if head is None or not head.write_id:
                return None
        query = "SELECT blob FROM version WHERE name = ? AND number = ?"
        asked = head.number if number is None and head else number
        row = connection.execute(query, (name, asked)).fetchone()
    if row is None and number is None:
        raise StoreCorruptError(
            f"the present version of calibration {name!r} is missing. Another program wrote to the"
            " file; delete the calibration and post it again."
        )
    return None if row is None else row[0]


def _put_version(
    connection: sqlite3.Connection,
    name: str,
    number: int,
    blob: bytes | None,
    thresholds: Mapping[str, str],
) -> None:
    """Adds a version, drops the one that is too old, and replaces the thresholds."""
    if blob is not None:
        connection.execute(
            "INSERT INTO version (name, number, blob) VALUES (?, ?, ?)", (name, number, blob)
        )
    oldest = number - KEPT_VERSIONS
    connection.execute("DELETE FROM version WHERE name = ? AND number <= ?", (name, oldest))
    connection.execute("DELETE FROM threshold WHERE name = ?", (name,))
    connection.executemany(
        "INSERT INTO threshold (name, field, value) VALUES (?, ?, ?)",
        ((name, field, value) for field, value in thresholds.items()),
    )


def _audit_states(connection: sqlite3.Connection) -> dict[str, AuditState]:
    query = "SELECT name, position, rows FROM audit_set"
    return {name: AuditState(*state) for name, *state in connection.execute(query)}


def _secret(connection: sqlite3.Connection) -> bytes:
    """Returns the secret; the first call of all processes makes it."""
    with transaction(connection, "IMMEDIATE"):
        new = (secrets.token_bytes(32),)
        connection.execute("INSERT OR IGNORE INTO audit_secret (only, bytes) VALUES (1, ?)", new)
        (stored,) = connection.execute("SELECT bytes FROM audit_secret").fetchone()
        return bytes(stored)
