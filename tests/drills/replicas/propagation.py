"""The time that a new version takes from one replica's answer to another replica."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tests.drills.replicas.fleet import Fleet
from tests.drills.replicas.watching import Replica

# Longer than a replica uses a calibration without asking the store, so that posts meet all phases.
_LONGEST_PAUSE_S = 0.7


class Delays(NamedTuple):
    """Seconds from the answer to a post until another replica has its version, one value a post.

    Args:
        idle: The version is pushed, and the other replica judges nothing; measured until its
            metrics show the version.
        judging: The version is pushed; measured until the answer of a judgment that rests on it.
        polled: The same as `judging`, but Redis refuses to publish.
    """

    idle: list[float]
    judging: list[float]
    polled: list[float]


async def delays_of(fleet: Fleet, versions: int) -> Delays:
    """Posts that many versions in each of the three ways."""
    one, other = (Replica(each.process, "spread") for each in fleet.replicas)
    rng, batches = random.Random(1), itertools.count()
    loop = asyncio.get_running_loop()

    async def post_and(see: Callable[[int], Awaitable[float]], *, judging: bool) -> float:
        ends = loop.time() + rng.uniform(0, _LONGEST_PAUSE_S)
        while loop.time() < ends:
            await asyncio.sleep(0.02)
            if judging:
                await other.used()
        return await see((await one.post(next(batches))).body["version"])

    async with one, other:
        await one.post(next(batches))
        await other.used()
        idle = [await post_and(other.until_remembered, judging=False) for _ in range(versions)]
        judging = [await post_and(other.until_used, judging=True) for _ in range(versions)]
        fleet.redis.command("ACL", "SETUSER", "default", "resetchannels")
        try:
            polled = [await post_and(other.until_used, judging=True) for _ in range(versions)]
        finally:
            fleet.redis.command("ACL", "SETUSER", "default", "allchannels")
    return Delays(idle, judging, polled)
