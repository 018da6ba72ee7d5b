"""The log of audits, its secret and the evidence of replicas, as tables of the SQLite file."""

import secrets
import sqlite3
from collections.abc import Sequence

from app.core.errors import StoreCorruptError
from app.stores.sqlite_file import transaction


def secret(connection: sqlite3.Connection) -> bytes:
    """Returns the secret; the first call of all processes makes it."""
    with transaction(connection, "IMMEDIATE"):
        new = (secrets.token_bytes(32),)
        connection.execute("INSERT OR IGNORE INTO audit_secret (only, bytes) VALUES (1, ?)", new)
        (found,) = connection.execute("SELECT bytes FROM audit_secret").fetchone()
    if not isinstance(found, bytes) or len(found) != 32:
        raise _corrupt()
    return found


def append(connection: sqlite3.Connection, entries: Sequence[str], *, synced: bool) -> int:
    """Appends entries, and returns the position of the last one."""
    if not synced:
        # A commit then writes the log of SQLite without waiting for the disk; the next commit with
        # FULL syncs both.
        connection.execute("PRAGMA synchronous = NORMAL")
    try:
        with transaction(connection, "IMMEDIATE"):
            last = last_position(connection)
            connection.executemany(
                "INSERT INTO audit (position, entry) VALUES (?, ?)", enumerate(entries, last + 1)
            )
            return last + len(entries)
    finally:
        if not synced:
            connection.execute("PRAGMA synchronous = FULL")


def after(connection: sqlite3.Connection, position: int, limit: int) -> list[tuple[int, str]]:
    """Returns position and text of entries after a position, in order."""
    query = "SELECT position, entry FROM audit WHERE position > ? ORDER BY position LIMIT ?"
    # Row by row, so that other threads can run in between.
    return [(number, entry) for number, entry in connection.execute(query, (position, limit))]


def last_position(connection: sqlite3.Connection) -> int:
    """Returns the position of the last entry; 0 for an empty log."""
    query = "SELECT coalesce(max(position), 0) FROM audit"
    return int(connection.execute(query).fetchone()[0])


def put_evidence(connection: sqlite3.Connection, name: str, replica: str, text: str) -> None:
    """Keeps the evidence of one replica instead of its earlier one."""
    connection.execute(
        "INSERT OR REPLACE INTO evidence (name, replica, text) VALUES (?, ?, ?)",
        (name, replica, text),
    )


def evidence(connection: sqlite3.Connection, name: str) -> dict[str, str]:
    """Returns the evidence about a set by the names of replicas."""
    query = "SELECT replica, text FROM evidence WHERE name = ?"
    return dict(connection.execute(query, (name,)).fetchall())


def _corrupt() -> StoreCorruptError:
    return StoreCorruptError(
        "the secret of the audits is not one that this service makes. Another program wrote to the"
        " file; restore it from a backup."
    )
