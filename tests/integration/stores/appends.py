"""A program that appends pairs of entries to the log of audits; arguments: ADDRESS TAG COUNT."""

import asyncio
import sys

from tests.integration.stores.backends import store_at


async def append(address: str, tag: str, count: int) -> None:
    """Appends `count` pairs of entries, and prints each pair's number after it is stored."""
    store = store_at(address)
    await store.open()
    for i in range(count):
        await store.append_audits([f"{tag}-{i}-0", f"{tag}-{i}-1"])
        print(i, flush=True)
    await store.close()


if __name__ == "__main__":
    _, to_address, with_tag, times = sys.argv
    asyncio.run(append(to_address, with_tag, int(times)))
