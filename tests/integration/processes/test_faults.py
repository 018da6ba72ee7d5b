"""Faults under load lose no example, count none twice, and never become a verdict."""

import asyncio
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.processes.server import Server
from tests.proxy import Proxy
from tests.redis_server import RedisServer
from tests.traffic import Traffic

_FAULT_S, _BEFORE_S = 1.0, 0.5
# Answers of /judge that are allowed while a fault lasts, and while the service is away.
_STALE = {"200", "200 stale"}
_AWAY = {"no answer (refused)", "no answer (cut)"}
FAULTS = (
    "redis killed",
    "redis hangs",
    "network reset",
    "sqlite locked",
    "service killed on sqlite",
    "service killed on redis",
)


class Scene(NamedTuple):
    """A service, and what breaks its surroundings and heals them."""

    server: Server
    cause: Callable[[], object]
    heal: Callable[[], object]


@asynccontextmanager
async def scene_of(fault: str, folder: Path) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        url = f"sqlite:///{folder}/sets.db"
        if "sqlite" not in fault:
            redis = RedisServer(folder)
            redis.start()
            stack.callback(redis.stop)
            url, proxy = redis.url, await stack.enter_async_context(Proxy(redis.port))
            if fault == "network reset":
                url = f"redis://127.0.0.1:{proxy.port}/0"
        settings = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": url}
        server = Server(folder, settings)
        stack.callback(server.client.close)
        # In a thread, because the proxy runs on this event loop.
        stack.push_async_callback(asyncio.to_thread, server.stop)
        await asyncio.to_thread(server.start)
        if fault.startswith("service"):
            yield Scene(server, server.kill, server.start)
        elif fault == "redis killed":
            yield Scene(server, redis.kill, redis.start)
        elif fault == "redis hangs":
            process = int(redis.command("INFO", "server")["process_id"])  # type: ignore[index]
            yield Scene(
                server,
                lambda: os.kill(process, signal.SIGSTOP),
                lambda: os.kill(process, signal.SIGCONT),
            )
        elif fault == "network reset":
            yield Scene(server, lambda: proxy.behave("reset"), lambda: proxy.behave("pass"))
        else:
            # Another program holds a write transaction.
            other = sqlite3.connect(
                folder / "sets.db", isolation_level=None, timeout=30, check_same_thread=False
            )
            stack.callback(other.close)
            yield Scene(server, lambda: other.execute("BEGIN IMMEDIATE"), other.rollback)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_under_load_loses_nothing_and_heals_by_itself(
    fault: str, tmp_path: Path
) -> None:
    async with scene_of(fault, tmp_path) as scene, Traffic(scene.server.port) as traffic:

        async def step(do: Callable[[], object]) -> None:
            # The proxy belongs to this event loop; all else may take its time in a thread.
            await asyncio.to_thread(do) if fault != "network reset" else do()

        await asyncio.sleep(_BEFORE_S)
        begin = len(traffic.answers)
        await step(scene.cause)
        await asyncio.sleep(_FAULT_S)
        await step(scene.heal)
        await traffic.until_healthy()
        await traffic.stop()
        await traffic.check_set()
        answers = Counter((kind, answer.outcome) for kind, answer in traffic.answers[begin:])
    assert traffic.wrong == []
    may = _STALE | _AWAY if fault.startswith("service") else _STALE
    assert {outcome for kind, outcome in answers if kind == "judge"} <= may
    assert not any(outcome.startswith("500") for _, outcome in answers)
    # Without traffic the test would show nothing.
    assert traffic.examples > 320
    assert traffic.verdicts > 60
    if fault == "redis killed":
        assert answers["judge", "200 stale"]
        assert answers["readyz", "200 degraded"]
        assert answers["calibrate", "503 store_unavailable"]
