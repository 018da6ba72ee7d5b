"""The living members of a process group."""

import os
import signal
import time
from contextlib import suppress

import psutil


def members(group: int) -> set[int]:
    """The pids of the living processes of a group."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process.pid)
    return found


def seconds_until_gone(group: int, *, at_most_s: float) -> float:
    """Seconds until the last process of a group has ended; `at_most_s` if one still lives."""
    begun = time.monotonic()
    while members(group) and time.monotonic() - begun < at_most_s:
        time.sleep(0.02)
    return min(time.monotonic() - begun, at_most_s)


def kill(group: int) -> None:
    """Kills the remaining processes of a group."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def engine_process_of(service: int) -> int:
    """The process id of vLLM's EngineCore, a child of the service."""
    children = psutil.Process(service).children()
    (engine,) = [child for child in children if "EngineCore" in " ".join(child.cmdline())]
    return int(engine.pid)
