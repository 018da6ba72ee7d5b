"""What happens to the service itself: killed, ended, and started anew behind a proxy."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.processes import Process
from tests.faults.experiment import SERVED, Fault
from tests.faults.material import scripted_pairs
from tests.faults.scene import Running, Scene, redis_server, service
from tests.processes.server import free_port

# Longer than the proxy needs to notice that a service says it is not ready.
_DRAIN_LAG_S = 1.5
_JOINS_S = 1.0

_HAPROXY = """
defaults
  mode http
  timeout connect 2s
  timeout client 30s
  timeout server 30s
  timeout check 2s
  option redispatch
  retries 2
  default-server check inter 200ms fall 1 rise 1
frontend judge
  bind 127.0.0.1:{port}
  default_backend services
backend services
  balance roundrobin
  option httpchk GET /readyz
  http-check expect status 200
{servers}
"""


@asynccontextmanager
async def single_scene(folder: Path) -> AsyncIterator[Scene]:
    """One service on one Redis."""
    (folder / "redis").mkdir()
    async with (
        redis_server(folder / "redis") as redis,
        service(folder, store_url=redis.url) as running,
    ):
        yield Scene(running, scripted_pairs())


async def _kill(scene: Scene) -> None:
    os.killpg(scene.service.popen.pid, signal.SIGKILL)


async def _end(scene: Scene) -> None:
    """SIGTERM, and nothing else: what is under way is to be finished."""
    scene.service.popen.send_signal(signal.SIGTERM)


async def _start(scene: Scene) -> None:
    await asyncio.to_thread(scene.running.start_again)


@dataclass
class RollingScene(Scene):
    """Services behind one proxy."""

    services: Sequence[Running] = ()


@asynccontextmanager
async def rolling_scene(folder: Path) -> AsyncIterator[RollingScene]:
    """Two services on one Redis, behind haproxy, which asks both whether they are ready."""
    (folder / "redis").mkdir()
    async with contextlib.AsyncExitStack() as stack:
        redis = await stack.enter_async_context(redis_server(folder / "redis"))
        services = [
            await stack.enter_async_context(
                service(folder, store_url=redis.url, drain_lag_s=str(_DRAIN_LAG_S))
            )
            for _ in range(2)
        ]
        front = free_port()
        servers = "\n".join(
            f"  server s{i} 127.0.0.1:{each.process.port}" for i, each in enumerate(services)
        )
        file = folder / "haproxy.cfg"
        file.write_text(_HAPROXY.format(port=front, servers=servers))
        stack.enter_context(Process(folder, "haproxy", ["haproxy", "-f", str(file)], {}))
        # Until its first checks it sends to both, which are ready.
        await asyncio.sleep(1)
        scene = RollingScene(services[0], scripted_pairs(), front_port=front)
        scene.services = services
        yield scene


async def _restart_both(scene: RollingScene) -> None:
    for each in scene.services:
        await asyncio.to_thread(each.start_again)
        # As a deployment waits until the new one takes part.
        await asyncio.sleep(_JOINS_S)


async def _nothing(scene: RollingScene) -> None:
    """It is over when both have been started again."""


def _no_haproxy() -> str | None:
    return None if shutil.which("haproxy") else "haproxy is not installed"


SERVICE_FAULTS: tuple[Fault[Scene], ...] = (
    Fault(
        "service-kill",
        "the service killed with -9 while it calibrates, started again",
        single_scene,
        _kill,
        _start,
        judge_may=SERVED | {"no answer (cut)", "no answer (refused)"},
        ends_service=True,
    ),
    Fault(
        "service-sigterm",
        "SIGTERM under load; started again",
        single_scene,
        _end,
        _start,
        # What was taken is answered; then there is nobody.
        judge_may=SERVED | {"503 draining", "no answer (refused)"},
        ends_service=True,
    ),
)
ROLLING_FAULTS: tuple[Fault[RollingScene], ...] = (
    Fault(
        "rolling-restart",
        "two services behind haproxy, ended with SIGTERM and started one after the other",
        rolling_scene,
        _restart_both,
        _nothing,
        judge_may=frozenset({"200"}),
        obstacle=_no_haproxy,
    ),
)
