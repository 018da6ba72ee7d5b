"""The living members of a process group."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path


def members(group: int) -> set[int]:
    """The pids of the living processes of a group."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = status.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state not in "ZX":
            found.add(int(status.parent.name))
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
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
            command = (status.parent / "cmdline").read_text()
        except OSError:
            continue
        if int(fields[1]) == service and "EngineCore" in command:
            return int(status.parent.name)
    raise AssertionError("the service has no child process that is vLLM's EngineCore")
