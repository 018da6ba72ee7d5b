"""A store in one SQLite file, durable, for one machine and without a server."""

import asyncio
import secrets
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, TypeVar

from app.core.errors import StoreCorruptError, StoreUnavailableError
from app.ports import (
    LARGEST_NUMBER,
    MOST_AUDIT_TEXTS,
    NO_TEXTS,
    StoredCalibration,
    StoredChange,
    Version,
)
from app.stores import sqlite_file
from app.stores.sqlite_file import OpenFile, transaction, unsynced

T = TypeVar("T")

FieldTable = Literal["meta", "example", "threshold"]


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
        """Opens the file, and makes a missing folder and missing tables.

        Raises:
            StoreUnavailableError: The file cannot be opened or written.
            StoreCorruptError: The file is not a database of this version.
        """
        if self._thread is None:
            self._is_lost.clear()
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite-store")
        await self.ping()

    async def lost(self) -> str:
        """Waits until a call finds that the file was removed or replaced; returns the reason."""
        await self._is_lost.wait()
        return self._lost_because

    async def close(self) -> None:
        """Closes the file after the running call; safe to call twice or without `open`."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        closing = thread.submit(self._disconnect)
        thread.shutdown(wait=False)
        # Shielded: a cancelled close must not leave the queue of the thread and the file open.
        await asyncio.shield(asyncio.wrap_future(closing))

    async def ping(self) -> None:
        """Returns if the file can be read now."""
        # Fetch the row, because an open cursor would hold its snapshot.
        query = "SELECT count(*) FROM (SELECT 1 FROM calibration LIMIT 1)"
        await self._run(lambda connection: connection.execute(query).fetchone())

    async def names(self) -> list[str]:
        """Returns the names of all sets, sorted."""
        query = "SELECT name FROM calibration ORDER BY name"
        return await self._run(lambda connection: [name for (name,) in connection.execute(query)])

    async def version(self, name: str) -> Version | None:
        """Returns the version of a set, from one row; None without such a set."""
        return await self._run(lambda connection: _version(connection, name))

    async def read(self, name: str) -> StoredCalibration | None:
        """Returns one consistent state of a set; None without such a set."""
        return await self._run(lambda connection: _read(connection, name))

    async def write(
        self,
        name: str,
        state: StoredCalibration,
        *,
        change: StoredChange,
        expected: Version | None,
        removed: Collection[str] = (),
    ) -> bool:
        """Replaces meta and thresholds, changes examples and extends the trail, in one step.

        Returns:
            False if the version in place is not `expected`, or the trail already has this number or
            a higher one. Nothing was written then.
        """
        return await self._run(
            lambda connection: _write(connection, name, state, change, expected, removed)
        )

    async def delete(self, name: str, *, change: StoredChange) -> bool:
        """Removes a set and extends the trail in one step.

        Returns:
            False if there is no set, or the number is not above `last_number`.
        """
        return await self._run(lambda connection: _delete(connection, name, change))

    async def last_number(self, name: str) -> int:
        """Returns the highest number of the trail and of the set; 0 if both are absent."""
        return await self._run(lambda connection: _last_number(connection, name))

    async def records(self, name: str, *, before: int | None, limit: int) -> list[str]:
        """Returns the records of a trail, newest first."""
        entries = await self._run(
            lambda connection: _newest(connection, "record", name, before, limit)
        )
        return [record for _, record in entries]

    async def undos(self, name: str, *, before: int | None, limit: int) -> dict[int, str]:
        """Returns the undos of a trail by the numbers of their changes, newest first."""
        return dict(
            await self._run(lambda connection: _newest(connection, "undo", name, before, limit))
        )

    async def trails(self) -> list[str]:
        """Returns the names of all sets and of all trails, sorted."""
        query = "SELECT name FROM calibration UNION SELECT name FROM revision ORDER BY name"
        return await self._run(lambda connection: [name for (name,) in connection.execute(query)])

    async def changes(self, name: str, *, after: int, limit: int) -> list[StoredChange]:
        """Returns changes with numbers above `after`, oldest first."""
        return await self._run(lambda connection: _changes(connection, name, after, limit))

    async def secret(self) -> bytes:
        """Returns 32 random bytes, which the first call makes."""
        return await self._run(_secret)

    async def put_secret(self, secret: bytes) -> None:
        """Replaces the secret."""
        query = "INSERT OR REPLACE INTO audit_secret (only, bytes) VALUES (1, ?)"

        def put(connection: sqlite3.Connection) -> None:
            with transaction(connection, "IMMEDIATE"):
                connection.execute(query, (secret,))

        await self._run(put)

    async def append_audits(
        self,
        entries: Sequence[str],
        *,
        synced: bool = True,
        texts: Mapping[str, str] = NO_TEXTS,
        forgotten: Collection[str] = (),
    ) -> int:
        """Appends entries, keeps texts and forgets others in one atomic step.

        Returns:
            The position of the last entry.
        """
        return await self._run(
            lambda connection: _append(
                connection, entries, synced=synced, texts=texts, forgotten=forgotten
            )
        )

    async def audits(self, *, after: int, limit: int) -> list[tuple[int, str]]:
        """Returns position and text of entries after a position, in order."""
        return await self._run(lambda connection: _after(connection, after, limit))

    async def last_audit(self) -> int:
        """Returns the position of the last entry; 0 for an empty log."""
        return await self._run(_last_position)

    async def audit_texts(self, keys: Sequence[str]) -> dict[str, str]:
        """Returns the texts of drawn pairs by their keys."""
        return await self._run(lambda connection: _texts(connection, keys))

    async def audit_text_keys(self) -> set[str]:
        """Returns the keys of all drawn pairs with texts."""
        query = "SELECT pair FROM audit_text"
        return await self._run(lambda connection: {key for (key,) in connection.execute(query)})

    async def forget_audit_texts(self, keys: Collection[str]) -> None:
        """Removes the texts of drawn pairs in one atomic step."""

        def forget(connection: sqlite3.Connection) -> None:
            with transaction(connection, "IMMEDIATE"):
                _forget_texts(connection, keys)

        await self._run(forget)

    async def kept_scores(self, slots: Collection[int]) -> dict[int, str]:
        """Returns the texts of slots, without empty and expired ones."""
        return await self._run(lambda connection: _scores(connection, slots))

    async def keep_scores(self, scores: Mapping[int, str], *, seconds: int) -> None:
        """Puts texts into slots for a time, in one step that does not wait for the disk."""
        await self._run(lambda connection: _put_scores(connection, scores, seconds))

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


def _version(connection: sqlite3.Connection, name: str) -> Version | None:
    query = "SELECT write_id, version FROM calibration WHERE name = ?"
    row = connection.execute(query, (name,)).fetchone()
    if row is None:
        return None
    write_id, number = row
    if not isinstance(write_id, str) or not _is_number(number):
        raise StoreCorruptError(
            f"calibration {name!r} has a write_id or version that this service does not write."
            " Another program wrote to the file; delete the calibration and post it again."
        )
    return Version(write_id, number)


def _is_number(value: Any) -> bool:
    """Whether a value is a version number; a column of SQLite can hold values of any type."""
    return type(value) is int and 1 <= value <= LARGEST_NUMBER


def _read(connection: sqlite3.Connection, name: str) -> StoredCalibration | None:
    with transaction(connection, "DEFERRED"):
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
    change: StoredChange,
    expected: Version | None,
    removed: Collection[str],
) -> bool:
    with transaction(connection, "IMMEDIATE"):
        trail = _newest(connection, "record", name, None, 1)
        if _version(connection, name) != expected or (trail and trail[0][0] >= change.number):
            return False
        _extend_trail(connection, name, change)
        _put_state(connection, name, state)
        connection.executemany(
            "DELETE FROM example WHERE name = ? AND field = ?",
            ((name, digest) for digest in removed),
        )
        return True


def _delete(connection: sqlite3.Connection, name: str, change: StoredChange) -> bool:
    with transaction(connection, "IMMEDIATE"):
        query = "SELECT count(*) FROM calibration WHERE name = ?"
        (sets,) = connection.execute(query, (name,)).fetchone()
        if not sets or change.number <= _last_number(connection, name):
            return False
        _extend_trail(connection, name, change)
        for table in ("meta", "example", "threshold", "calibration"):
            connection.execute(f"DELETE FROM {table} WHERE name = ?", (name,))
        return True


def _last_number(connection: sqlite3.Connection, name: str) -> int:
    query = (
        "SELECT (SELECT version FROM calibration WHERE name = :name),"
        " coalesce((SELECT max(number) FROM revision WHERE name = :name), 0)"
    )
    version, last = connection.execute(query, {"name": name}).fetchone()
    if last != 0 and not _is_number(last):
        raise StoreCorruptError(
            f"the trail of calibration {name!r} has a number that this service does not use."
            " Another program wrote to the file; restore it from a backup."
        )
    # A malformed version counts as absent, so that its set can be deleted with the next number of
    # the trail.
    return max(int(last), version if _is_number(version) else 0)


def _newest(
    connection: sqlite3.Connection,
    column: Literal["record", "undo"],
    name: str,
    before: int | None,
    limit: int,
) -> list[tuple[int, str]]:
    """Returns number and one column of entries of the trail, newest first."""
    query = (
        f"SELECT number, {column} FROM revision WHERE name = :name"
        " AND (:before IS NULL OR number < :before) ORDER BY number DESC LIMIT :limit"
    )
    parameters = {"name": name, "before": before, "limit": limit}
    return connection.execute(query, parameters).fetchall()


def _changes(
    connection: sqlite3.Connection, name: str, after: int, limit: int
) -> list[StoredChange]:
    query = (
        "SELECT number, record, undo FROM revision WHERE name = ? AND number > ?"
        " ORDER BY number LIMIT ?"
    )
    return [
        StoredChange(number=number, record=record, undo=undo)
        for number, record, undo in connection.execute(query, (name, after, limit))
    ]


def _put_state(connection: sqlite3.Connection, name: str, state: StoredCalibration) -> None:
    """Replaces version, meta and thresholds of a set, and puts in the examples."""
    connection.execute(
        "INSERT OR REPLACE INTO calibration (name, write_id, version) VALUES (?, ?, ?)",
        (name, *state.version),
    )
    connection.execute("DELETE FROM meta WHERE name = ?", (name,))
    connection.execute("DELETE FROM threshold WHERE name = ?", (name,))
    _put(connection, "meta", name, state.meta)
    _put(connection, "threshold", name, state.thresholds)
    _put(connection, "example", name, state.examples)


def _extend_trail(connection: sqlite3.Connection, name: str, change: StoredChange) -> None:
    connection.execute(
        "INSERT INTO revision (name, number, record, undo) VALUES (?, ?, ?, ?)",
        (name, change.number, change.record, change.undo),
    )


def _fields(connection: sqlite3.Connection, table: FieldTable, name: str) -> dict[str, str]:
    query = f"SELECT field, value FROM {table} WHERE name = ?"
    # Row by row, so that other threads can run in between.
    return {field: value for field, value in connection.execute(query, (name,))}  # noqa: C416


def _put(
    connection: sqlite3.Connection, table: FieldTable, name: str, fields: Mapping[str, str]
) -> None:
    connection.executemany(
        f"INSERT OR REPLACE INTO {table} (name, field, value) VALUES (?, ?, ?)",
        ((name, field, value) for field, value in fields.items()),
    )


def _secret(connection: sqlite3.Connection) -> bytes:
    """Returns the secret; the first call of all processes makes it."""
    with transaction(connection, "IMMEDIATE"):
        new = (secrets.token_bytes(32),)
        connection.execute("INSERT OR IGNORE INTO audit_secret (only, bytes) VALUES (1, ?)", new)
        (stored,) = connection.execute("SELECT bytes FROM audit_secret").fetchone()
    if not isinstance(stored, bytes) or len(stored) != 32:
        raise StoreCorruptError(
            "the secret of the audits is not one that this service makes. Another program wrote to"
            " the file; restore it from a backup."
        )
    return stored


def _append(
    connection: sqlite3.Connection,
    entries: Sequence[str],
    *,
    synced: bool,
    texts: Mapping[str, str],
    forgotten: Collection[str],
) -> int:
    """Appends entries, keeps texts and forgets others; returns the position of the last entry."""
    with nullcontext() if synced else unsynced(connection), transaction(connection, "IMMEDIATE"):
        last = _last_position(connection)
        connection.executemany(
            "INSERT INTO audit (position, entry) VALUES (?, ?)", enumerate(entries, last + 1)
        )
        _keep_texts(connection, texts)
        _forget_texts(connection, forgotten)
        return last + len(entries)


def _keep_texts(connection: sqlite3.Connection, texts: Mapping[str, str]) -> None:
    """Keeps the texts of new keys, as far as there is room."""
    if not texts:
        return
    (kept,) = connection.execute("SELECT count(*) FROM audit_text").fetchone()
    query = "INSERT OR IGNORE INTO audit_text (pair, texts) VALUES (?, ?)"
    for pair in texts.items():
        if kept >= MOST_AUDIT_TEXTS:
            return
        kept += connection.execute(query, pair).rowcount


def _forget_texts(connection: sqlite3.Connection, keys: Collection[str]) -> None:
    connection.executemany("DELETE FROM audit_text WHERE pair = ?", ((key,) for key in keys))


def _texts(connection: sqlite3.Connection, keys: Sequence[str]) -> dict[str, str]:
    """Returns the texts of drawn pairs by their keys."""
    query = "SELECT pair, texts FROM audit_text WHERE pair = ?"
    return dict(row for key in keys for row in connection.execute(query, (key,)))


def _after(connection: sqlite3.Connection, position: int, limit: int) -> list[tuple[int, str]]:
    """Returns position and text of entries after a position, in order."""
    query = "SELECT position, entry FROM audit WHERE position > ? ORDER BY position LIMIT ?"
    # Row by row, so that other threads can run in between.
    return [(number, entry) for number, entry in connection.execute(query, (position, limit))]


def _last_position(connection: sqlite3.Connection) -> int:
    """Returns the position of the last entry; 0 for an empty log."""
    query = "SELECT coalesce(max(position), 0) FROM audit"
    return int(connection.execute(query).fetchone()[0])


def _scores(connection: sqlite3.Connection, slots: Collection[int]) -> dict[int, str]:
    """Returns the texts of slots, without empty and expired ones."""
    query = "SELECT slot, text FROM score WHERE slot = ? AND until > ?"
    now = time.time()
    return dict(row for slot in slots for row in connection.execute(query, (slot, now)))


def _put_scores(connection: sqlite3.Connection, scores: Mapping[int, str], seconds: int) -> None:
    """Puts texts into slots for a time."""
    until = time.time() + seconds
    with unsynced(connection), transaction(connection, "IMMEDIATE"):
        connection.executemany(
            "INSERT OR REPLACE INTO score (slot, text, until) VALUES (?, ?, ?)",
            ((slot, text, until) for slot, text in scores.items()),
        )
