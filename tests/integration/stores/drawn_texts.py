"""A program that appends draws with texts, and labels every second one; argument: ADDRESS."""

import asyncio
import sys
from itertools import count

from tests.integration.stores.backends import store_at


async def draw(address: str) -> None:
    """Prints each entry after it is stored, until the process is ended."""
    store = store_at(address)
    await store.open()
    for number in count():
        key = str(number)
        await store.append_audits([f"draw {key}"], texts={key: f"texts of {key}"})
        print(f"draw {key}", flush=True)
        if number % 2:
            await store.append_audits([f"label {key}"], forgotten=[key])
            print(f"label {key}", flush=True)


if __name__ == "__main__":
    asyncio.run(draw(sys.argv[1]))
