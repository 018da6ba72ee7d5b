"""A program that restores a backup and kills itself; arguments: ADDRESS FILE PART REPLACE.

It dies with -9 when the store has taken so many parts; with the number 0 it finishes.
"""

import asyncio
import os
import signal
import sys
from itertools import count
from pathlib import Path

from app.ports import StorePart
from app.service.backup.lines import parts_in
from app.service.backup.walk import fill
from tests.integration.stores.backends import store_at


async def restore(address: str, file: Path, last: int, *, replace: bool) -> None:
    """Restores a backup into the store, or a part of it."""
    store = store_at(address)
    await store.open()
    numbers = count(1)

    def on_part(_: StorePart) -> None:
        if next(numbers) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    with file.open("rb") as lines:
        assert await fill(store, parts_in(lines), replace=replace, on_part=on_part)
    await store.close()


if __name__ == "__main__":
    _, to_address, path, part, replacing = sys.argv
    asyncio.run(restore(to_address, Path(path), int(part), replace=replacing == "True"))
