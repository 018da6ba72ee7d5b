"""A bound child ends with its parent, also if that dies at once, and Ctrl-C does not reach it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
WITHIN_S = 20.0

# Starts a child that handles Ctrl-C itself, as vLLM's processes do, and gets one.
PARENT = """
import multiprocessing, os, signal, sys
from app.judges.engines.descendants import bound_children

def run(ready):
    signal.signal(signal.SIGINT, lambda *_: os._exit(2))
    ready.set()
    signal.pause()

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=run, args=(ready,))
    with bound_children():
        process.start()
    if sys.argv[1] == "later":
        ready.wait()
        os.kill(process.pid, signal.SIGINT)
        process.join(0.5)
        assert process.is_alive()
        # A stopped process cannot end itself: the kernel must kill it.
        os.kill(process.pid, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("when", ["at once", "later"])
def test_a_child_ends_when_its_parent_is_killed_and_not_at_ctrl_c(
    when: str, tmp_path: Path
) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with subprocess.Popen(
        [sys.executable, str(script), when],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
    ) as process:
        # The child has the pipes open, so they close only when it has ended.
        _, errors = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, errors) == (-signal.SIGKILL, "")
