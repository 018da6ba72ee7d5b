"""A process that imports first becomes the next process that multiprocessing spawns."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.engines.early_process import EarlyProcess, early_process

ROOT = Path(__file__).parents[3]
WITHIN_S = 60.0

# Prints the pids of the early process and of the spawned one, and what the spawned one finds.
SPAWNING = """
import multiprocessing, os, sys
from app.engines.descendants import bound_children
from app.engines.early_process import early_process

def run(queue, answers):
    before = "slow_to_import" in sys.modules
    import slow_to_import
    answers.put((os.getpid(), before, os.environ.get("SET_LATER"), queue.get(), os.getppid()))

if __name__ == "__main__":
    with early_process(["slow_to_import", "no_such_module"]) as early:
        pid = early._pid
        exec(sys.argv[1])
        with bound_children(early.become):
            context = multiprocessing.get_context("spawn")
            queue, answers = context.Queue(), context.SimpleQueue()
            process = context.Process(target=run, args=(queue, answers))
            process.start()
        queue.put("through a pipe")
        print([pid == process.pid, *answers.get()[1:]])
        print(pid, os.getpid())
        process.join()
        print("exit code", process.exitcode)
"""


def spawned(tmp_path: Path, before: str = "") -> list[str]:
    """The lines that the program above prints; `before` runs before the process is spawned."""
    (tmp_path / "slow_to_import.py").write_text("")
    script = tmp_path / "spawning.py"
    script.write_text(SPAWNING)
    done = subprocess.run(
        [sys.executable, str(script), before],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_the_next_spawned_process_is_the_early_one(tmp_path: Path) -> None:
    found, pids, ended = spawned(tmp_path, "os.environ['SET_LATER'] = 'yes'")
    _, parent = pids.split()
    assert found == f"[True, True, 'yes', 'through a pipe', {parent}]"
    assert ended == "exit code 0"


@pytest.mark.parametrize(
    "before",
    [
        # The dynamic loader has read this variable when the early process started.
        "os.environ['LD_PRELOAD'] = ''",
        "os.kill(pid, 9)",
        "early.close()",
        # Another process has become the early one.
        "early._pid = None",
        # Its descriptors have higher numbers than the early process keeps free.
        "[os.dup(1) for _ in range(256)]",
    ],
)
def test_an_ordinary_process_is_spawned_where_the_early_one_cannot_be_used(
    before: str, tmp_path: Path
) -> None:
    found, pids, ended = spawned(tmp_path, before)
    _, parent = pids.split()
    assert found == f"[False, False, None, 'through a pipe', {parent}]"
    assert ended == "exit code 0"


def test_an_early_process_that_nobody_needs_ends_with_the_block() -> None:
    with early_process(["json"]) as process:
        pid = process._pid
        assert pid is not None
        pidfd = os.pidfd_open(pid)
    os.close(pidfd)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("module", ["json", "slow_to_import"])
def test_an_early_process_ends_with_a_killed_parent(module: str, tmp_path: Path) -> None:
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(600)\n")
    script = tmp_path / "killed.py"
    script.write_text(
        "import os\nfrom app.engines.early_process import EarlyProcess\n"
        f"EarlyProcess([{module!r}])\nos.kill(os.getpid(), 9)\n"
    )
    # Both have the pipes open, so this returns when the last of them has ended.
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        timeout=WITHIN_S,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (-9, b"", b"")


def test_closing_twice_is_safe() -> None:
    process = EarlyProcess([])
    process.close()
    process.close()
