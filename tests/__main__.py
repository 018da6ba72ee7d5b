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
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import psutil

from tests.surroundings import draw

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


def run(command: Sequence[str], environment: Mapping[str, str], beside: Sequence[str]) -> int:
    """Runs a command and returns its status; no process that it has started outlives it.

    Args:
        command: The program and its arguments.
        environment: Its environment variables.
        beside: Another command that runs at the same time, in this program's own environment. It
            ends the first one if it fails.
    """
    # Processes that lose their parent become children of this one, and are found below.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    # In sessions of their own, so that Ctrl-C reaches them only through this program.
    alone: Any = {"stdin": subprocess.DEVNULL, "start_new_session": True}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, env=environment, **alone)
        check = subprocess.Popen(beside, stdout=said, stderr=subprocess.STDOUT, **alone)
        try:
            while process.poll() is None and not check.poll():
                time.sleep(0.2)
            if check.wait() != 0:
                raise KeyboardInterrupt("The check beside the tests failed")
            return process.wait()
        except KeyboardInterrupt as why:
            print(f"\n{why or 'Interrupted'}: the tests stop their services.", flush=True)
            with suppress(KeyboardInterrupt, subprocess.TimeoutExpired, ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
                process.wait(GRACE_S)
            return 128 + signal.SIGINT
        finally:
            while descendants := psutil.Process().children(recursive=True):
                for descendant in descendants:
                    with suppress(psutil.NoSuchProcess):
                        descendant.kill()
                psutil.wait_procs(descendants)
            said.seek(0)
            print(said.read().decode(), end="", flush=True)


def main() -> int:
    """Runs the selected tests."""
    selection, *arguments = sys.argv[1:]
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))
    surroundings, outermost = draw(seed)
    command = [sys.executable, "-m", "pytest", *SELECTIONS[selection]]
    # One worker more than cores, because one often waits for a service, a store or vLLM. Each takes
    # half a gigabyte.
    workers = min(len(os.sched_getaffinity(0)), MOST_WORKERS) + 1
    command += ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder", *arguments]
    environment = os.environ | surroundings
    # A run starts hundreds of processes, and each would compile the same modules.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # Threads of OpenMP wait for each other in busy loops. Where tests take all cores they gain
    # nothing: the tests of vLLM's answers take 57 s of the processor with two, and 34 s with one.
    environment.setdefault("OMP_NUM_THREADS", "1")
    try:
        return run(command, environment, TYPES)
    finally:
        shutil.rmtree(outermost, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
