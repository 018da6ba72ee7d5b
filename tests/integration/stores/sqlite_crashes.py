"""A program that crashes at every statement of a change in SQLite; arguments: FOLDER ACTION.

For k = 1, 2, ... the program copies FOLDER/old.db to k.db, and a child process changes the copy and
dies at its k-th SQL statement. The program ends with the first child that finishes its change, and
prints its number.
"""

import asyncio
import itertools
import os
import shutil
import sqlite3
import sys
from pathlib import Path

from app.stores.sqlite import SqliteStore
from tests.integration.stores.backends import delete, state, write

CRASHED = 9


def die_at_statement(step: int) -> None:
    """Makes every later connection end this process when its `step`-th statement begins."""
    connect = sqlite3.connect
    steps = itertools.count(1)

    def traced(path: Path, *, timeout: float, isolation_level: None) -> sqlite3.Connection:
        connection = connect(path, timeout=timeout, isolation_level=isolation_level)
        connection.set_trace_callback(lambda _: os._exit(CRASHED) if next(steps) == step else None)
        return connection

    sqlite3.connect = traced  # type: ignore[assignment]


async def change(path: Path, action: str) -> None:
    """Opens the file; then writes version 2 over 1, deletes the set, or does nothing."""
    store = SqliteStore(path)
    await store.open()
    if action == "write":
        assert await write(store, state(2), expected=state(1).head)
    if action == "delete":
        assert await delete(store)
    await store.close()


def crash_everywhere(folder: Path, action: str) -> int:
    """Returns the number of the first child that finished; all copies stay in the folder."""
    for step in itertools.count(1):
        path = folder / f"{step}.db"
        shutil.copy(folder / "old.db", path)
        child = os.fork()
        if child == 0:
            die_at_statement(step)
            asyncio.run(change(path, action))
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            return step
        assert code == CRASHED, f"the child of step {step} ended with {code}"
    raise AssertionError


if __name__ == "__main__":
    print(crash_everywhere(Path(sys.argv[1]), sys.argv[2]))
