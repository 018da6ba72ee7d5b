"""A program that adds pairs of rows to the audits of a set; arguments: ADDRESS TAG COUNT."""

import asyncio
import sys

from tests.integration.stores.backends import put_rows, store_at


async def append(address: str, tag: str, count: int) -> None:
    """Adds `count` pairs of rows, and prints each pair's number after it is stored."""
    store = store_at(address)
    await store.open()
    for i in range(count):
        await put_rows(store, {f"{tag}-{i}-0": tag, f"{tag}-{i}-1": tag})
        print(i, flush=True)
    await store.close()


if __name__ == "__main__":
    _, to_address, with_tag, times = sys.argv
    asyncio.run(append(to_address, with_tag, int(times)))
