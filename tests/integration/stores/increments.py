"""A program that adds examples to a set by compare-and-set; arguments: ADDRESS NAME TAG COUNT."""

import asyncio
import sys

from app.ports import Head, SetStore
from tests.integration.stores.backends import State, read, store_at, write


async def add_one(store: SetStore, name: str, digest: str) -> None:
    """Writes the next version with one more example; repeats after a conflict."""
    while True:
        head = await store.head(name)
        before = await read(store, name)
        number = head.number + 1 if head else 1
        examples = {**(before.examples if before else {}), digest: number}
        if await write(store, State(Head("one", number), examples), name=name, expected=head):
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
