"""Tests of the sign of life while a judge loads."""

import os
import pty
import re
import subprocess
import sys

import pytest

# The stage blocks the main thread, as an import does, until the test has seen enough.
PROGRAM = """
import sys
from app.cli.progress import ConsoleObserver
observer = ConsoleObserver(beat_s=0.01)
observer.stage("Loading judge demo")
sys.stdin.readline()
observer.finish()
print("finished", file=sys.stderr)
"""
LINE = re.compile(r" *(\d+\.\d) s  Loading judge demo: still at work, \d+ s")


@pytest.mark.parametrize("terminal", [False, True])
def test_the_seconds_of_a_blocking_stage_go_on(terminal: bool) -> None:
    reading, writing = pty.openpty() if terminal else os.pipe()
    with (
        open(reading, "rb", buffering=0) as output,
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stderr=writing,
            env={**os.environ, "TERM": "xterm"},
        ) as process,
    ):
        os.close(writing)
        seen = ""
        while len(set(LINE.findall(seen))) < 3:
            seen += output.read(4096).decode()
        assert process.stdin is not None
        process.stdin.close()
        while "finished" not in seen:
            seen += output.read(4096).decode()
        assert process.wait() == 0
    # On a terminal one line is erased and written again.
    assert ("\x1b[2K" in seen) is terminal
    if not terminal:
        assert all(map(LINE.fullmatch, seen.splitlines()[1:-1]))
