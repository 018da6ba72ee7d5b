"""SIGKILL of each process of a service."""

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil

from tests.drills.gpu.scene import Finding, Scene
from tests.integration.processes.server import Server
from tests.patience import VLLM_START_S

# Longest time after SIGKILL until the GPU is empty.
EMPTY_S = 5.0
# Memory that the driver may keep for itself.
_NOISE_MIB = 256


def _service(folder: Path, **settings: str) -> Server:
    """The service with the demo judge, which is the same on each machine."""
    held = {"SCOPE_STORE_URL": "memory://", **settings}
    return Server(folder, held, start_timeout_s=VLLM_START_S)


def kills(scene: Scene) -> Finding:
    """Step 11: no process that is killed leaves memory on the GPU behind."""
    folder = scene.own_folder()
    seconds: dict[str, float | None] = {}
    victims = ["service", "engine"]
    if len(scene.gpus) >= 2:
        victims.append("worker")
    for victim in victims:
        scene.on_stage(f"SIGKILL of the {victim}")
        (folder / victim).mkdir()
        before = _memory_mib(scene)
        settings = {"SCOPE_TENSOR_PARALLEL": "2"} if victim == "worker" else {}
        server = _service(folder / victim, **settings)
        with server:
            service = psutil.Process(server.pid)
            family = [service, *service.children(recursive=True)]
            os.kill(_victim(victim, family).pid, signal.SIGKILL)
            seconds[victim] = _until_empty(scene, family, before)
    held = all(each is not None and each <= EMPTY_S for each in seconds.values())
    named = ", ".join(
        f"{victim} {'not within a minute' if each is None else f'{each:.1f} s'}"
        for victim, each in seconds.items()
    )
    what = "GPU empty" if scene.device == "gpu" else "all processes gone (there is no GPU)"
    return Finding(
        sentence=f"{what} after SIGKILL of: {named} (aim {EMPTY_S:g} s)",
        # The aim is about a GPU's memory; a rehearsal asks only whether anything is left.
        held=held if scene.device == "gpu" else None not in seconds.values(),
        figures={"seconds": seconds},
    )


def _victim(name: str, family: list[psutil.Process]) -> psutil.Process:
    title = {"service": "", "engine": "EngineCore", "worker": "Worker"}[name]
    if not title:
        return family[0]
    for process in family[1:]:
        if title in " ".join(process.cmdline()) or title in process.name():
            return process
    raise RuntimeError(f"there is no process called {title}")


def _until_empty(scene: Scene, family: list[psutil.Process], before_mib: float) -> float | None:
    """Seconds until the processes have ended and the GPU's memory is free; None after a minute."""
    begun = time.monotonic()
    while time.monotonic() - begun < 60:
        alive = [each for each in family if each.is_running() and each.status() != "zombie"]
        if not alive and _memory_mib(scene) <= before_mib + _NOISE_MIB:
            return time.monotonic() - begun
        time.sleep(0.05)
    return None


def _memory_mib(scene: Scene) -> float:
    """Memory in use on all GPUs; 0 without any."""
    if not scene.gpus:
        return 0.0
    said = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    )
    return sum(map(float, said.stdout.split()))
