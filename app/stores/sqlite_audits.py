"""The audits in a SQLite file: one table of rows, and one with the state of each set."""

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext

from app.core.errors import StoreCorruptError
from app.ports import AuditState, StoredRow, placed
from app.stores.sqlite_file import transaction, unsynced

_CHANGE = "UPDATE audit SET position = :position, text = :text WHERE name = :name AND key = :key"
_INSERT = "INSERT INTO audit (name, key, position, text) VALUES (:name, :key, :position, :text)"


def states(connection: sqlite3.Connection) -> dict[str, AuditState]:
    """Returns the state of each set that has or had audits."""
    query = "SELECT name, position, rows FROM audit_set"
    by_name = {
        name: AuditState(position, count) for name, position, count in connection.execute(query)
    }
    if not all(type(number) is int for state in by_name.values() for number in state):
        raise StoreCorruptError(
            "the audits have a position that this service does not write. Another program wrote to "
            "the file; restore it from a backup."
        )
    return by_name


def rows(connection: sqlite3.Connection, name: str, *, after: int, limit: int) -> list[StoredRow]:
    """Returns rows whose last change lies after a position, in the order of these changes."""
    query = (
        "SELECT key, position, text FROM audit WHERE name = ? AND position > ?"
        " ORDER BY position LIMIT ?"
    )
    # Row by row, so that other threads can run in between.
    return [StoredRow(*row) for row in connection.execute(query, (name, after, limit))]


def write(
    connection: sqlite3.Connection,
    *,
    name: str,
    rows: Sequence[StoredRow],
    expected: Mapping[str, int],
    texts: Mapping[str, str],
    forgotten: Collection[str],
    removed: Collection[str],
    synced: bool,
) -> int | None:
    """Changes the audits of a set in one atomic step."""
    with nullcontext() if synced else unsynced(connection), transaction(connection, "IMMEDIATE"):
        position_of = "SELECT position FROM audit WHERE name = ? AND key = ?"
        for key in (*(row.key for row in rows), *removed):
            (present,) = connection.execute(position_of, (name, key)).fetchone() or (0,)
            if present != expected.get(key, 0):
                return None
        query = "SELECT position, rows FROM audit_set WHERE name = ?"
        before, count = connection.execute(query, (name,)).fetchone() or (0, 0)
        last = before
        for row in placed(rows, after=before):
            last = row.position
            values = {"name": name, "key": row.key, "position": row.position, "text": row.text}
            if not connection.execute(_CHANGE, values).rowcount:
                connection.execute(_INSERT, values)
                count += 1
        put = "UPDATE audit SET texts = ? WHERE name = ? AND key = ?"
        connection.executemany(put, ((text, name, key) for key, text in texts.items()))
        connection.executemany(put, ((None, name, key) for key in forgotten))
        for key in removed:
            delete = "DELETE FROM audit WHERE name = ? AND key = ?"
            count -= connection.execute(delete, (name, key)).rowcount
        connection.execute(
            "INSERT OR REPLACE INTO audit_set (name, position, rows) VALUES (?, ?, ?)",
            (name, last + bool(removed), count),
        )
        return int(before)


def texts(connection: sqlite3.Connection, name: str, keys: Sequence[str]) -> dict[str, str]:
    """Returns the texts of rows by their keys."""
    query = "SELECT key, texts FROM audit WHERE name = ? AND key = ? AND texts IS NOT NULL"
    return dict(row for key in keys for row in connection.execute(query, (name, key)))
