"""Ends of a service under load: Ctrl-C, and SIGKILL of each of its processes."""

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.drills.gpu.scene import Finding, Scene
from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S, VLLM_START_S

_REQUESTS, _BATCH = 4, 128
# Longest time after SIGKILL until the GPU is empty.
EMPTY_S = 5.0
# Memory that the driver may keep for itself.
_NOISE_MIB = 256


def _service(folder: Path, **settings: str) -> Server:
    """The service with the demo judge, which is the same on each machine."""
    held = {"SCOPE_STORE_URL": "memory://", "SCOPE_DRAIN_S": f"{PATIENCE_S:g}", **settings}
    return Server(folder, held, start_timeout_s=VLLM_START_S)


def _judge(port: int, items: list[dict[str, Any]]) -> int:
    """Number of judged comparisons of one batch."""
    answer = httpx.post(
        f"http://127.0.0.1:{port}/judge/batch",
        json={"comparisons": items, "alpha": None},
        timeout=PATIENCE_S,
    )
    answer.raise_for_status()
    return sum("verdict" in result for result in answer.json()["results"])


def _until_pending(server: Server, count: int) -> None:
    """Waits until the service has admitted this many comparisons that have no answer yet."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for line in server.client.get("/metrics").text.splitlines():
            if line.startswith("scope_pending_comparisons ") and float(line.split()[1]) >= count:
                return
        time.sleep(0.005)
    raise RuntimeError(f"the service never had {count} comparisons at a time")


def ctrl_c(scene: Scene) -> Finding:
    """Step 12: after Ctrl-C all admitted requests are answered, and the service ends by itself."""
    folder = scene.own_folder()
    scene.on_stage("starting the service")
    pairs = scene.pairs(_REQUESTS * _BATCH)
    items = [pair._asdict() for pair in pairs]
    with _service(folder) as server, ThreadPoolExecutor(_REQUESTS) as clients:
        scene.on_stage("Ctrl-C under load")
        batches = [items[i * _BATCH : (i + 1) * _BATCH] for i in range(_REQUESTS)]
        sent = [clients.submit(_judge, server.port, batch) for batch in batches]
        _until_pending(server, len(items))
        begun = time.monotonic()
        # To the whole group, as a terminal does.
        os.killpg(server.pid, signal.SIGINT)
        judged = sum(each.result() for each in sent)
        status = server.wait()
        seconds = time.monotonic() - begun
    return Finding(
        sentence=f"{judged} of {len(items)} admitted comparisons answered after Ctrl-C; ended with "
        f"status {status} after {seconds:.1f} s",
        held=judged == len(items),
        figures={"admitted": len(items), "answered": judged, "status": status, "seconds": seconds},
    )


def kills(scene: Scene) -> Finding:
    """Step 13: no process that is killed leaves memory on the GPU behind."""
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
