"""kill -9 of a service with vLLM, as by the kernel when memory runs out."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.drills.attacks.attack import Attack
from tests.drills.attacks.scene import Scene
from tests.integration.processes.process_group import kill, members, seconds_until_gone
from tests.integration.processes.server import free_port

_START_S = 600.0
_PATIENCE_S = 8.0


def _engine_is_started(log: Path, group: int) -> bool:
    # The service, the resource tracker of multiprocessing, and vLLM's EngineCore.
    return len(members(group)) >= 3


def _is_calibrating(log: Path, group: int) -> bool:
    return "Calibrating with" in log.read_text(encoding="utf-8")


def _is_ready(log: Path, group: int) -> bool:
    return "Application startup complete" in log.read_text(encoding="utf-8")


_STAGES: dict[str, Callable[[Path, int], bool]] = {
    "loading": _engine_is_started,
    "calibrating": _is_calibrating,
    "ready": _is_ready,
}


def orphan_the_engine(scene: Scene) -> str:
    """Kills only the service's own process, at three stages of its life."""
    stages, left = [], 0.0
    for stage, reached in _STAGES.items():
        seconds, mib = _killed_at(scene, stage, reached)
        left = max(left, mib)
        stages.append(f"{stage} {seconds:.1f} s" + (f" and {mib:.0f} MiB left" if mib else ""))
    figure = f"seconds until the last process was gone: {', '.join(stages)}"
    assert not left, figure
    return figure


def _killed_at(
    scene: Scene, stage: str, reached: Callable[[Path, int], bool]
) -> tuple[float, float]:
    """Seconds until the process group was gone, and the MiB left after `_PATIENCE_S`."""
    log = scene.folder / f"{stage}.log"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SCOPE_")},
        "PYTHONPATH": str(scene.code),
        "SCOPE_STORE_URL": "memory://",
        "SCOPE_PORT": str(free_port()),
    }
    command = [str(Path(sys.executable).with_name("scope-judge")), "serve"]
    with log.open("wb") as output:
        service = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        deadline = time.monotonic() + _START_S
        while not reached(log, service.pid):
            assert service.poll() is None, f"serve ended:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"serve is not {stage} yet:\n{log.read_text()}"
            time.sleep(0.1)
        os.kill(service.pid, signal.SIGKILL)
        service.wait()
        seconds = seconds_until_gone(service.pid, at_most_s=_PATIENCE_S)
        return seconds, sum(members(service.pid).values())
    finally:
        kill(service.pid)
        service.wait()


ATTACKS = (
    Attack(
        "engine-orphan",
        "kill -9 of a service with vLLM while it loads, calibrates and is ready",
        orphan_the_engine,
        watched=False,
    ),
)
