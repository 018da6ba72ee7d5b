"""`make check`, `make test` and `make test-all`: pytest in parallel, in random surroundings.

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
from collections.abc import Mapping, Sequence
from contextlib import suppress

import psutil

from tests.surroundings import Surroundings, locales_of_machine

SELECTIONS = {
    "check": ["-m", "not vllm and not long", "tests/unit", "tests/integration/stores"],
    "test": ["-m", "not long"],
    "all": [],
}
# Time for fixtures to stop their services, and vLLM with them.
GRACE_S = 60.0
MOST_WORKERS = 8
_PR_SET_CHILD_SUBREAPER = 36


def run(command: Sequence[str], environment: Mapping[str, str], *, grace_s: float = GRACE_S) -> int:
    """Runs a command and returns its status; no process that it has started outlives it.

    Args:
        command: The program and its arguments.
        environment: Its environment variables.
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
        return process.wait()
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
        return run(command, environment)
    finally:
        shutil.rmtree(outermost, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
