"""New versions are pushed to every replica; without a push, judging polls for them."""

import asyncio

from app.stores.redis_keys import CHANGED_CHANNEL
from tests.drills.replicas.fleet import Fleet
from tests.drills.replicas.watching import WITHIN_S, Replica
from tests.patience import PATIENCE_S
from tests.redis_server import RedisServer


async def listening(redis: RedisServer, replicas: int) -> None:
    """Waits until that many replicas listen; after a failure a replica waits for a second."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await asyncio.to_thread(redis.command, "PUBSUB", "NUMSUB", CHANGED_CHANNEL)
            if found == [CHANGED_CHANNEL, replicas]:
                return
            await asyncio.sleep(0.02)


async def known_to_both(one: Replica, other: Replica) -> int:
    """A version that both replicas have in memory, because each has judged with it."""
    version = (await one.post(0)).body["version"]
    assert isinstance(version, int)
    await other.until_used(version)
    return version


async def test_a_version_arrives_within_a_second_without_judging(fleet: Fleet) -> None:
    one, other = (Replica(each.process, "idle") for each in fleet.replicas)
    async with one, other:
        await listening(fleet.redis, 2)
        version = await known_to_both(one, other)
        for batch in range(1, 4):
            await one.post(batch)
            assert await other.until_remembered(version + batch) < WITHIN_S
        assert (await one.ask("DELETE", "/calibrations/idle")).status == 204
        assert await other.until_remembered(0) < WITHIN_S


async def test_without_the_right_to_publish_writes_go_on_and_polling_brings_them(
    fleet: Fleet,
) -> None:
    one, other = (Replica(each.process, "unheard") for each in fleet.replicas)
    async with one, other:
        version = await known_to_both(one, other)
        fleet.redis.command("ACL", "SETUSER", "default", "resetchannels")
        try:
            for batch in range(1, 4):
                await one.post(batch)
                assert await other.until_used(version + batch) < WITHIN_S
        finally:
            fleet.redis.command("ACL", "SETUSER", "default", "allchannels")
        await listening(fleet.redis, 2)


async def test_a_subscription_that_is_cut_costs_nothing_and_comes_back(fleet: Fleet) -> None:
    one, other = (Replica(each.process, "cut") for each in fleet.replicas)
    async with one, other:
        version = await known_to_both(one, other)
        await listening(fleet.redis, 2)
        assert fleet.redis.command("CLIENT", "KILL", "TYPE", "pubsub") == 2
        await one.post(1)
        assert await other.until_used(version + 1) < WITHIN_S
        await listening(fleet.redis, 2)
        await one.post(2)
        assert await other.until_remembered(version + 2) < WITHIN_S


async def test_replicas_listen_again_when_redis_was_restarted(fleet: Fleet) -> None:
    one, other = (Replica(each.process, "restarted") for each in fleet.replicas)
    async with one, other:
        version = await known_to_both(one, other)
        await asyncio.to_thread(fleet.redis.stop)
        # Judging meanwhile uses the calibration in memory.
        assert (await other.judgment()).status == 200
        await asyncio.to_thread(fleet.redis.start)
        await listening(fleet.redis, 2)
        await one.post(1)
        assert await other.until_remembered(version + 1) < WITHIN_S
