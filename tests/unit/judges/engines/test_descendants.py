"""Bound children, forked or spawned, and their own children end with their parent."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WITHIN_S = 20.0

# Starts a child with multiprocessing, which starts a grandchild; each prints its pid and sleeps.
PARENT = """
import multiprocessing, os, sys, threading, time
from app.judges.engines.descendants import bound_children

METHOD, HOW = sys.argv[1:]

def run(depth):
    os.write(1, b"%d\\n" % os.getpid())
    if depth:
        start(depth - 1)
    time.sleep(600)

def start(depth):
    process = multiprocessing.get_context(METHOD).Process(target=run, args=(depth,))
    process.start()

if __name__ == "__main__":
    with bound_children():
        if HOW == "bound":
            start(1)
        elif HOW == "killed":
            start(1)
            os.kill(os.getpid(), 9)
        else:
            thread = threading.Thread(target=start, args=(1,))
            thread.start()
            thread.join()
    run(0)
"""


# Starts a child that handles Ctrl-C itself, as vLLM's processes do, and gets one.
INTERRUPTED = """
import multiprocessing, os, signal, sys
from app.judges.engines.descendants import bound_children

def run(ready, ended):
    signal.signal(signal.SIGINT, lambda *_: os._exit(2))
    ready.set()
    ended.wait()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    ready, ended = context.Event(), context.Event()
    process = context.Process(target=run, args=(ready, ended))
    with bound_children():
        process.start()
    ready.wait()
    os.kill(process.pid, signal.SIGINT)
    ended.set()
    process.join()
    sys.exit(process.exitcode)
"""


def gone(pidfd: int, timeout_s: float) -> bool:
    """Whether a process has ended within the timeout: its pidfd is then readable."""
    return bool(select.select([pidfd], [], [], timeout_s)[0])


@pytest.fixture
def ending() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def parent_process(tmp_path: Path, method: str, how: str) -> "subprocess.Popen[str]":
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    return subprocess.Popen(
        [sys.executable, str(script), method, how],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def family(tmp_path: Path, method: str, how: str, ending: ExitStack) -> dict[int, int]:
    """Starts a parent, its child and its grandchild; returns pid -> pidfd, the parent first."""
    process = parent_process(tmp_path, method, how)
    ending.callback(process.wait)
    ending.callback(process.kill)
    assert process.stdout is not None
    ending.callback(process.stdout.close)
    pids = [int(process.stdout.readline()) for _ in range(3)]
    found = {}
    for pid in sorted(pids, key=lambda pid: pid != process.pid):
        found[pid] = os.pidfd_open(pid)
        ending.callback(os.close, found[pid])
        ending.callback(kill, found[pid])
    return found


def kill(pidfd: int) -> None:
    if not gone(pidfd, 0):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_and_their_children_end_when_the_parent_is_killed(
    method: str, tmp_path: Path, ending: ExitStack
) -> None:
    parent, *others = family(tmp_path, method, "bound", ending).items()
    # A stopped process cannot end itself: the kernel must kill it.
    for pid, _ in others:
        os.kill(pid, signal.SIGSTOP)
    assert not any(gone(pidfd, 0) for _, pidfd in others)
    os.kill(parent[0], signal.SIGKILL)
    assert all(gone(pidfd, WITHIN_S) for _, pidfd in others)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_whose_parent_dies_at_its_start_ends(method: str, tmp_path: Path) -> None:
    with parent_process(tmp_path, method, "killed") as process:
        # Every descendant has the pipe open, so it closes only when the last one has ended.
        process.communicate(timeout=WITHIN_S)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_children_of_other_threads_outlive_their_thread(
    method: str, tmp_path: Path, ending: ExitStack
) -> None:
    for pidfd in family(tmp_path, method, "unbound", ending).values():
        assert not gone(pidfd, 0.1)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ctrl_c_does_not_reach_a_child_that_handles_it(method: str, tmp_path: Path) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    ended = subprocess.run(
        [sys.executable, str(script), method],
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert ended.returncode == 0
