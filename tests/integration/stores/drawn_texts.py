"""A program that draws with texts, and labels every second draw; argument: ADDRESS."""

import asyncio
import sys
from itertools import count

from tests.integration.stores.backends import put_rows, store_at


async def draw(address: str) -> None:
    """Prints each change after it is stored, until the process is ended."""
    store = store_at(address)
    await store.open()
    for number in count():
        key = str(number)
        await put_rows(store, {key: "drawn"}, texts={key: f"texts of {key}"})
        print(f"{key} drawn", flush=True)
        if number % 2:
            await put_rows(store, {key: "labeled"}, forgotten=[key])
            print(f"{key} labeled", flush=True)


if __name__ == "__main__":
    asyncio.run(draw(sys.argv[1]))
