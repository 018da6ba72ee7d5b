"""Faults of calibration stores."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import redis

from tests.drills.faults.experiment import Fault
from tests.drills.faults.proxy import Mode
from tests.drills.faults.scene import (
    RedisScene,
    SqliteScene,
    fill,
    no_small_disk,
    redis_scene,
    sqlite_scene,
    unfill,
)

Act = Callable[[RedisScene], Awaitable[None]]

_BEHIND_S = 4.0


def commands(*lines: str) -> Act:
    """Sends these commands to Redis."""

    async def act(scene: RedisScene) -> None:
        for line in lines:
            await scene.command(*line.split())

    return act


def network(mode: Mode) -> Act:
    """Puts the network between the service and Redis into this mode."""

    async def act(scene: RedisScene) -> None:
        scene.network.behave(mode)

    return act


async def _kill(scene: RedisScene) -> None:
    await asyncio.to_thread(scene.server.kill)


async def _start(scene: RedisScene) -> None:
    await asyncio.to_thread(scene.server.start)


async def _stop(scene: RedisScene) -> None:
    await asyncio.to_thread(scene.server.stop)


async def _hang(scene: RedisScene) -> None:
    scene.stopped_process = await scene.process_id()
    os.kill(scene.stopped_process, signal.SIGSTOP)


async def _go_on(scene: RedisScene) -> None:
    # A stopped Redis does not answer, so its process id was saved beforehand.
    os.kill(scene.stopped_process, signal.SIGCONT)


async def _fill_disk(scene: RedisScene) -> None:
    assert scene.disk is not None
    await asyncio.to_thread(fill, scene.disk)


async def bring_back(scene: RedisScene) -> None:
    """Starts Redis if it has ended."""
    with contextlib.suppress(redis.RedisError):
        await scene.command("PING")
        return
    await asyncio.to_thread(scene.server.kill)
    await asyncio.to_thread(scene.server.start)


async def _empty_disk(scene: RedisScene) -> None:
    assert scene.disk is not None
    await asyncio.to_thread(unfill, scene.disk)
    # With `appendfsync always` Redis ends itself if it cannot write: a supervisor starts it again.
    await bring_back(scene)


async def _fill_disk_of_lenient(scene: RedisScene) -> None:
    await scene.command("CONFIG", "SET", "appendfsync", "everysec")
    await _fill_disk(scene)


async def _promote(scene: RedisScene) -> None:
    """The master dies; as a sentinel would, promotes the replica and redirects the clients."""
    assert scene.replica is not None
    await asyncio.to_thread(scene.server.kill)
    await asyncio.to_thread(scene.replica.command, "REPLICAOF", "NO", "ONE")


async def _switch_over(scene: RedisScene) -> None:
    assert scene.replica is not None
    scene.network.move_to(scene.replica.port)


async def _cut_replica(scene: RedisScene) -> None:
    """Cuts the replica off; then the master dies, as in `_promote`."""
    assert scene.link is not None
    scene.link.behave("silent")
    # A strict master notices after its max-lag, and then refuses writes.
    await asyncio.sleep(_BEHIND_S)
    # Data in transit is lost with the network, and not delivered late.
    scene.link.behave("reset")
    await _promote(scene)


async def _cut_strict_replica(scene: RedisScene) -> None:
    await commands("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-max-lag 1")(scene)
    await _cut_replica(scene)


def _hold(file: Path) -> subprocess.Popen[bytes]:
    """Starts a process that begins a write transaction and does not end it."""
    program = (
        "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None, "
        "timeout=30); c.execute('BEGIN IMMEDIATE'); print('held', flush=True); time.sleep(3600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(file)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    holder.stdout.close()
    return holder


async def _lock(scene: SqliteScene) -> None:
    scene.holder = await asyncio.to_thread(_hold, scene.file)


async def _unlock(scene: SqliteScene) -> None:
    assert scene.holder is not None
    scene.holder.kill()
    await asyncio.to_thread(scene.holder.wait)


async def _fill_sqlite(scene: SqliteScene) -> None:
    await asyncio.to_thread(fill, scene.file.parent)


async def _empty_sqlite(scene: SqliteScene) -> None:
    await asyncio.to_thread(unfill, scene.file.parent)


_ASYNC = "Redis acknowledges before its replica has the write; only what arrived is promoted"
_WITH_REPLICA: Callable[[Path], AbstractAsyncContextManager[RedisScene]] = partial(
    redis_scene, replica=True
)
_THROUGH_PROXY: Callable[[Path], AbstractAsyncContextManager[RedisScene]] = partial(
    redis_scene, through_proxy=True
)
_ON_SMALL_DISK: Callable[[Path], AbstractAsyncContextManager[RedisScene]] = partial(
    redis_scene, on_small_disk=True
)


def _redis(name: str, how: str, cause: Act, heal: Act) -> Fault[RedisScene]:
    return Fault(name=name, how=how, scene=redis_scene, cause=cause, heal=heal)


def _network(name: str, how: str, mode: Mode) -> Fault[RedisScene]:
    return Fault(
        name=name,
        how=how,
        scene=_THROUGH_PROXY,
        cause=network(mode),
        heal=network("pass"),
    )


REDIS_FAULTS: tuple[Fault[RedisScene], ...] = (
    _redis("redis-kill", "Redis killed with -9, started again", _kill, _start),
    _redis("redis-hang", "Redis stopped with SIGSTOP, continued", _hang, _go_on),
    _redis("redis-restart", "Redis stopped in order, started again", _stop, _start),
    _redis(
        "redis-full",
        "`maxmemory` reached (`noeviction`)",
        commands("CONFIG SET maxmemory 1"),
        commands("CONFIG SET maxmemory 0"),
    ),
    _redis(
        "redis-readonly",
        "made a replica of a missing server, then master again",
        commands("REPLICAOF 127.0.0.1 1"),
        commands("REPLICAOF NO ONE"),
    ),
    Fault(
        name="redis-disk-full",
        how="its disk filled, `appendfsync always`: Redis exits; started again with room",
        scene=_ON_SMALL_DISK,
        cause=_fill_disk,
        heal=_empty_disk,
        obstacle=no_small_disk,
    ),
    Fault(
        name="redis-disk-full-everysec",
        how="its disk filled, `appendfsync everysec`: Redis refuses writes",
        scene=_ON_SMALL_DISK,
        cause=_fill_disk_of_lenient,
        heal=_empty_disk,
        obstacle=no_small_disk,
    ),
    _network("network-silent", "network to Redis passes nothing, then everything", "silent"),
    _network("network-reset", "every connection to Redis is reset", "reset"),
    _network("redis-garbage", "random bytes instead of Redis's answers", "garbage"),
    Fault(
        name="redis-failover",
        how="master killed with -9, replica promoted, clients sent there",
        scene=_WITH_REPLICA,
        cause=_promote,
        heal=_switch_over,
        may_lose=_ASYNC,
    ),
    Fault(
        name="redis-failover-behind",
        how="replica cut off for 4 s, then master killed with -9 and the replica promoted",
        scene=_WITH_REPLICA,
        cause=_cut_replica,
        heal=_switch_over,
        may_lose=_ASYNC,
    ),
    Fault(
        name="redis-failover-behind-strict",
        how="the same with `min-replicas-to-write 1`, `min-replicas-max-lag 1`",
        scene=_WITH_REPLICA,
        cause=_cut_strict_replica,
        heal=_switch_over,
        may_lose=_ASYNC,
    ),
)
SQLITE_FAULTS: tuple[Fault[SqliteScene], ...] = (
    Fault(
        name="sqlite-locked",
        how="another process holds a write transaction",
        scene=sqlite_scene,
        cause=_lock,
        heal=_unlock,
    ),
    Fault(
        name="sqlite-disk-full",
        how="its disk filled",
        scene=partial(sqlite_scene, on_small_disk=True),
        cause=_fill_sqlite,
        heal=_empty_sqlite,
        obstacle=no_small_disk,
    ),
)
