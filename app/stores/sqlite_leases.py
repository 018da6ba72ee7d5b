"""Leases in a SQLite file, which end by the clock of the machine.

No step waits for the disk: a lease that a power cut takes is one that ended early.
"""

import sqlite3
import time
from collections.abc import Collection, Sequence

from app.ports import Lease
from app.stores.sqlite_file import transaction, unsynced


def current(connection: sqlite3.Connection, room: str) -> dict[str, Lease]:
    """Returns the leases of a room by their items, without those that have ended."""
    query = "SELECT item, holder, until FROM lease WHERE room = ? AND until > ?"
    rows = connection.execute(query, (room, time.time())).fetchall()
    return {item: Lease(holder=holder, until=until) for item, holder, until in rows}


def take(
    connection: sqlite3.Connection,
    room: str,
    items: Sequence[str],
    *,
    holder: str,
    most: int,
    seconds: int,
) -> dict[str, float]:
    """Leases items to a holder; returns the end of each lease."""
    with unsynced(connection), transaction(connection, "IMMEDIATE"):
        # Under the write lock, because another process may have held it for seconds.
        now = time.time()
        connection.execute("DELETE FROM lease WHERE until <= ?", (now,))
        held = dict(
            connection.execute(
                "SELECT item, holder FROM lease WHERE room = ? AND holder <> ?", (room, holder)
            ).fetchall()
        )
        free = [item for item in items if item not in held][:most]
        connection.executemany(
            "INSERT OR REPLACE INTO lease (room, item, holder, until) VALUES (?, ?, ?, ?)",
            ((room, item, holder, now + seconds) for item in free),
        )
        return dict.fromkeys(free, now + seconds)


def end(connection: sqlite3.Connection, room: str, items: Collection[str], *, holder: str) -> int:
    """Ends the leases of a holder; returns their number."""
    query = "DELETE FROM lease WHERE room = ? AND item = ? AND holder = ? AND until > ?"
    with unsynced(connection), transaction(connection, "IMMEDIATE"):
        now = time.time()
        return sum(
            connection.execute(query, (room, item, holder, now)).rowcount for item in set(items)
        )
