"""`make check`, `make test` and `make test-all`: pytest in parallel, in random surroundings.

Types are checked at the same time. A wrong type ends the tests.

Usage: [SEED=N] python -m tests check|test|all [ARGUMENTS OF PYTEST]

Ctrl-C, SIGTERM and SIGHUP let the tests stop their services. Processes that then still run are
killed.
"""

import ctypes
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

import psutil

from tests.surroundings import Surroundings, locales_of_machine

SELECTIONS = {
    "check": ["-m", "not vllm and not long", "tests/unit", "tests/integration/stores"],
    "test": ["-m", "not long"],
    "all": [],
}
# mypy takes one core for 50 s where it has no cache.
TYPES = ["sh", "-c", '"$0" -m mypy && "$0" -m tests.desk_types', sys.executable]
# Time for fixtures to stop their services, and vLLM with them.
GRACE_S = 60.0
MOST_WORKERS = 8
_PR_SET_CHILD_SUBREAPER = 36


class _Check:
    """A command beside the tests; it interrupts this program if it fails."""

    def __init__(self, command: Sequence[str]) -> None:
        # In a session of its own, so that Ctrl-C reaches it only through this program.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._said = ""
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def wait(self) -> str:
        """Waits for its end; returns what it has printed."""
        self._thread.join()
        return self._said

    def _follow(self) -> None:
        self._said, _ = self._process.communicate()
        # The status is negative if this program, which ends, has killed it.
        if self._process.returncode > 0:
            print(f"\n{self._said}This check failed, so the tests end.", flush=True)
            os.kill(os.getpid(), signal.SIGINT)


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    beside: Sequence[str] | None = None,
    grace_s: float = GRACE_S,
) -> int:
    """Runs a command and returns its status; no process that it has started outlives it.

    Args:
        command: The program and its arguments.
        environment: Its environment variables.
        beside: Another command that runs at the same time, in this program's own environment. It
            ends the first one if it fails.
        grace_s: Seconds that its processes may take to end after SIGINT.
    """
    # Processes that lose their parent become children of this one, and are found below.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    # In a session of its own, so that Ctrl-C reaches it only through this program.
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        check = None if beside is None else _Check(beside)
        status = process.wait()
        if check is not None:
            print(check.wait(), end="", flush=True)
        return status
    except KeyboardInterrupt:
        print("\nInterrupted: the tests stop their services.", flush=True)
        with suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGINT)
            process.wait(grace_s)
        return 128 + signal.SIGINT
    finally:
        while descendants := psutil.Process().children(recursive=True):
            for descendant in descendants:
                with suppress(psutil.NoSuchProcess):
                    descendant.kill()
            psutil.wait_procs(descendants)


def main() -> int:
    """Runs the selected tests."""
    selection, *arguments = sys.argv[1:]
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))
    surroundings = Surroundings.draw(seed, locales_of_machine())
    folder, outermost = surroundings.make_folder()
    command = [sys.executable, "-m", "pytest", *SELECTIONS[selection]]
    # One worker more than cores, because one often waits for a service, a store or vLLM. Each takes
    # half a gigabyte.
    workers = min(len(os.sched_getaffinity(0)), MOST_WORKERS) + 1
    command += ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder", *arguments]
    environment = os.environ | surroundings.environment(folder)
    # A run starts hundreds of processes, and each would compile the same modules.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # Threads of OpenMP wait for each other in busy loops. Where tests take all cores they gain
    # nothing: the tests of vLLM's answers take 57 s of the processor with two, and 34 s with one.
    environment.setdefault("OMP_NUM_THREADS", "1")
    try:
        return run(command, environment, beside=TYPES)
    finally:
        shutil.rmtree(outermost, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
