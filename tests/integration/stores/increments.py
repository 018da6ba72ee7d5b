"""A program that adds examples to a set by compare-and-set; arguments: ADDRESS NAME TAG COUNT."""

import asyncio
import sys

from app.ports import CalibrationStore, StoredCalibration, Version
from tests.integration.stores.backends import store_at, write


async def add_one(store: CalibrationStore, name: str, digest: str) -> None:
    """Writes the next version with one more example; repeats after a conflict."""
    while True:
        before = await store.version(name)
        after = Version(before.write_id, before.number + 1) if before else Version("one", 1)
        added = StoredCalibration(
            version=after, meta={}, examples={digest: str(after.number)}, thresholds={}
        )
        if await write(store, added, name=name, expected=before):
            return


async def add(address: str, name: str, tag: str, count: int) -> None:
    """Adds `count` examples, and prints each digest after it is stored."""
    store = store_at(address)
    await store.open()
    for i in range(count):
        await add_one(store, name, f"{tag}-{i}")
        print(f"{tag}-{i}", flush=True)
    await store.close()


if __name__ == "__main__":
    _, to_address, to_name, with_tag, times = sys.argv
    asyncio.run(add(to_address, to_name, with_tag, int(times)))
