"""Faults under load lose no example, count none twice, and never become a verdict."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.drills.load.material import scripted_pairs
from tests.drills.load.supervised import Running, service
from tests.drills.load.traffic import Traffic
from tests.patience import PATIENCE_S
from tests.proxy import Mode, Proxy
from tests.redis_server import RedisServer

_FAULT_S, _BEFORE_S = 1.0, 0.5
# Answers of /judge that are allowed while a fault lasts.
_STALE = {"200", "200 stale"}
_REFUSED = {"no answer (refused)", "no answer (cut)"}
Step = Callable[[], Awaitable[object]]


@dataclass
class Scene:
    """A service, and the steps that break its surroundings and heal them."""

    running: Running
    cause: Step
    heal: Step
    judge_may: frozenset[str] = frozenset(_STALE)


@asynccontextmanager
async def redis_killed(folder: Path) -> AsyncIterator[Scene]:
    """kill -9 of Redis, which writes to disk before it answers."""
    async with _redis(folder) as redis, service(folder, store_url=redis.url) as running:
        yield Scene(
            running,
            lambda: asyncio.to_thread(redis.kill),
            lambda: asyncio.to_thread(redis.start),
        )


@asynccontextmanager
async def redis_hangs(folder: Path) -> AsyncIterator[Scene]:
    """SIGSTOP of Redis, then SIGCONT."""
    async with _redis(folder) as redis, service(folder, store_url=redis.url) as running:
        info = await asyncio.to_thread(redis.command, "INFO", "server")
        process = int(info["process_id"])  # type: ignore[index]
        yield Scene(running, _signal(process, signal.SIGSTOP), _signal(process, signal.SIGCONT))


@asynccontextmanager
async def network_reset(folder: Path) -> AsyncIterator[Scene]:
    """Every connection to Redis is reset."""
    async with _redis(folder) as redis, Proxy(redis.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        async with service(folder, store_url=url) as running:
            yield Scene(running, _mode(proxy, "reset"), _mode(proxy, "pass"))


@asynccontextmanager
async def sqlite_locked(folder: Path) -> AsyncIterator[Scene]:
    """Another process holds a write transaction."""
    file = folder / "sets.db"
    holders: list[subprocess.Popen[bytes]] = []
    async with service(folder, store_url=f"sqlite:///{file}") as running:

        async def lock() -> None:
            holders.append(await asyncio.to_thread(_held, file))

        async def unlock() -> None:
            holders[0].kill()
            await asyncio.to_thread(holders[0].wait)

        yield Scene(running, lock, unlock)


@asynccontextmanager
async def service_killed_on_sqlite(folder: Path) -> AsyncIterator[Scene]:
    """kill -9 of the service, which a supervisor starts again."""
    async with service(folder, store_url=f"sqlite:///{folder}/sets.db") as running:
        yield _killed(running)


@asynccontextmanager
async def service_killed_on_redis(folder: Path) -> AsyncIterator[Scene]:
    async with _redis(folder) as redis, service(folder, store_url=redis.url) as running:
        yield _killed(running)


def _killed(running: Running) -> Scene:
    async def kill() -> None:
        os.killpg(running.process.popen.pid, signal.SIGKILL)

    may = frozenset(_STALE | _REFUSED)
    return Scene(running, kill, lambda: asyncio.to_thread(running.start_again), may)


def _signal(process: int, number: signal.Signals) -> Step:
    async def send() -> None:
        os.kill(process, number)

    return send


def _mode(proxy: Proxy, mode: Mode) -> Step:
    async def behave() -> None:
        proxy.behave(mode)

    return behave


def _held(file: Path) -> subprocess.Popen[bytes]:
    """A process that has begun a write transaction and does not end it."""
    program = (
        "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None, "
        "timeout=30); c.execute('BEGIN IMMEDIATE'); print('held', flush=True); time.sleep(3600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(file)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    holder.stdout.close()
    return holder


@asynccontextmanager
async def _redis(folder: Path) -> AsyncIterator[RedisServer]:
    (folder / "redis").mkdir()
    server = RedisServer(folder / "redis")
    await asyncio.to_thread(server.start)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.kill)


@pytest.mark.parametrize(
    "scene_of",
    [
        redis_killed,
        redis_hangs,
        network_reset,
        sqlite_locked,
        service_killed_on_sqlite,
        service_killed_on_redis,
    ],
)
async def test_a_fault_under_load_loses_nothing_and_heals_by_itself(
    scene_of: Callable[[Path], AbstractAsyncContextManager[Scene]], tmp_path: Path
) -> None:
    async with scene_of(tmp_path) as scene:
        async with Traffic(scene.running.process.port, scripted_pairs()) as traffic:
            await asyncio.sleep(_BEFORE_S)
            begin = len(traffic.seen)
            await scene.cause()
            await asyncio.sleep(_FAULT_S)
            await scene.heal()
            await _healthy(traffic, asyncio.get_running_loop().time())
            await traffic.stop()
            await traffic.audit()
        answers = Counter((each.kind, each.answer.outcome) for each in traffic.seen[begin:])
        assert scene.running.process.popen.poll() is None
    assert traffic.wrong == []
    assert traffic.ledger.wrong == []
    assert (traffic.ledger.lost, traffic.ledger.doubled) == (0, 0)
    assert {outcome for kind, outcome in answers if kind == "judge"} <= scene.judge_may
    assert not any(outcome.startswith("500") for _, outcome in answers)
    # Without traffic the test would show nothing.
    assert traffic.ledger.acknowledged > 300
    assert traffic.judging.verdicts > 60
    if scene_of is redis_killed:
        assert answers["judge", "200 stale"]
        assert answers["readyz", "200 degraded"]
        assert answers["calibrate", "503 store_unavailable"]


async def _healthy(traffic: Traffic, healed: float) -> None:
    """Waits until requests that began after the healing succeed."""
    wanted = {("readyz", "200 ready"), ("calibrate", "200")}
    async with asyncio.timeout(PATIENCE_S):
        while True:
            traffic.check_tasks()
            later = [each for each in traffic.seen if each.answer.began >= healed]
            if wanted <= {(each.kind, each.answer.outcome) for each in later}:
                return
            await asyncio.sleep(0.02)
