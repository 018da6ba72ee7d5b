"""The time that a new version takes from one replica's answer to another replica."""

import asyncio
import itertools
import random
from typing import NamedTuple

from tests.drills.replicas.fleet import Fleet
from tests.drills.replicas.watching import Replica

# Longer than a replica uses a calibration without asking the store, so that posts meet all phases.
_LONGEST_PAUSE_S = 0.7


class Delays(NamedTuple):
    """Seconds from the answer to a post until another replica has its version, one value a post.

    Args:
        polled: Measured until the answer of a judgment that rests on it.
    """

    polled: list[float]


async def delays_of(fleet: Fleet, versions: int) -> Delays:
    """Posts that many versions."""
    one, other = (Replica(each.process, "spread") for each in fleet.replicas)
    rng, batches = random.Random(1), itertools.count()
    loop = asyncio.get_running_loop()

    async def post_and_see() -> float:
        ends = loop.time() + rng.uniform(0, _LONGEST_PAUSE_S)
        while loop.time() < ends:
            await asyncio.sleep(0.02)
            await other.used()
        return await other.until_used((await one.post(next(batches))).body["version"])

    async with one, other:
        await one.post(next(batches))
        await other.used()
        return Delays([await post_and_see() for _ in range(versions)])
