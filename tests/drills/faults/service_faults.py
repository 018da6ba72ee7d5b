"""Faults of the service itself: killed, ended, and restarted behind a proxy."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.drills.faults.experiment import SERVED, Fault
from tests.drills.faults.material import scripted_pairs
from tests.drills.faults.scene import RedisScene, Running, Scene, redis_scene
from tests.drills.replicas.fleet import fleet_of, restart_each


async def _kill(scene: Scene) -> None:
    os.killpg(scene.service.popen.pid, signal.SIGKILL)


async def _end(scene: Scene) -> None:
    """Sends SIGTERM only: the service must answer the requests in flight."""
    scene.service.popen.send_signal(signal.SIGTERM)


async def _start(scene: Scene) -> None:
    await asyncio.to_thread(scene.running.start_again)


@dataclass
class RollingScene(Scene):
    """Services behind one proxy."""

    services: Sequence[Running] = ()


@asynccontextmanager
async def rolling_scene(folder: Path) -> AsyncIterator[RollingScene]:
    """Two services on one Redis, behind the proxy with its shipped configuration."""
    with fleet_of(folder) as fleet:
        scene = RollingScene(fleet.replicas[0], scripted_pairs(), front_port=fleet.front.port)
        scene.services = fleet.replicas
        yield scene


async def _restart_both(scene: RollingScene) -> None:
    await asyncio.to_thread(restart_each, scene.services)


async def _nothing(scene: RollingScene) -> None:
    """Nothing to undo: the fault is over when both services have been restarted."""


def _no_haproxy() -> str | None:
    return None if shutil.which("haproxy") else "haproxy is not installed"


SERVICE_FAULTS: tuple[Fault[RedisScene], ...] = (
    Fault(
        name="service-kill",
        how="the service killed with -9 while it calibrates, started again",
        scene=redis_scene,
        cause=_kill,
        heal=_start,
        judge_may=SERVED | {"no answer (cut)", "no answer (refused)"},
        ends_service=True,
    ),
    Fault(
        name="service-sigterm",
        how="SIGTERM under load; started again",
        scene=redis_scene,
        cause=_end,
        heal=_start,
        # Accepted requests are answered; later ones are refused.
        judge_may=SERVED | {"503 draining", "no answer (refused)"},
        ends_service=True,
    ),
)
ROLLING_FAULTS: tuple[Fault[RollingScene], ...] = (
    Fault(
        name="rolling-restart",
        how="two services behind haproxy, ended with SIGTERM and started one after the other",
        scene=rolling_scene,
        cause=_restart_both,
        heal=_nothing,
        judge_may=frozenset({"200"}),
        obstacle=_no_haproxy,
    ),
)
