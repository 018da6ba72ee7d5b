"""`make test`: the tests that need vLLM run beside all others; one exit status for both.

The output of the vLLM part follows that of the rest.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, NamedTuple

_PYTEST = (sys.executable, "-m", "pytest")
# 15 minutes on two quiet cores. A machine three times slower with both cores busy takes ten times
# as long; this ends a hang that pytest's own limit for a test does not end.
LIMIT_S = 4 * 3600.0
# Before a part ends, its fixtures stop their services, and vLLM with them.
GRACE_S = 180.0


class Part(NamedTuple):
    """Some of the tests.

    Args:
        name: For the summary.
        command: The command that runs them.
        is_shown: Whether its output is shown at once, and not after that of the others.
    """

    name: str
    command: Sequence[str]
    is_shown: bool


class _Running(NamedTuple):
    part: Part
    process: subprocess.Popen[bytes]
    output: IO[bytes] | None


def run(parts: Sequence[Part], *, limit_s: float = LIMIT_S, grace_s: float = GRACE_S) -> int:
    """Runs the parts at the same time; returns 0 only if all of them have succeeded.

    A part that fails does not end the others. SIGINT, SIGTERM, SIGHUP and the limit end all.

    Args:
        parts: At least one.
        limit_s: For all of them together.
        grace_s: How long a part may take to end once it is asked to.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    running: list[_Running] = []
    stopped = ""
    try:
        running += map(_started, parts)
        if not _have_ended(running, limit_s):
            stopped = f"stopped after {limit_s:g} s"
    except KeyboardInterrupt:
        stopped = "interrupted"
    _end(running, grace_s)
    for each in running:
        if each.output is not None:
            each.output.seek(0)
            print(f"\n===== {each.part.name} =====", flush=True)
            shutil.copyfileobj(each.output, sys.stdout.buffer)
            sys.stdout.buffer.flush()
    print()
    for each in running:
        status = each.process.returncode
        print(f"{each.part.name}: {'passed' if status == 0 else f'FAILED, status {status}'}")
    if stopped:
        print(f"The tests were {stopped}.")
    sys.stdout.flush()
    return int(bool(stopped) or any(each.process.returncode for each in running))


def _started(part: Part) -> _Running:
    output = None if part.is_shown else tempfile.TemporaryFile()  # noqa: SIM115 - kept open
    process = subprocess.Popen(
        part.command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        # Ctrl-C reaches the part through this program only, and once.
        start_new_session=True,
    )
    return _Running(part, process, output)


def _have_ended(running: Sequence[_Running], limit_s: float) -> bool:
    """Waits until all have ended, or the time is over; returns whether they have."""
    deadline = time.monotonic() + limit_s
    while any(each.process.poll() is None for each in running):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _end(running: Sequence[_Running], grace_s: float) -> None:
    """Ends all that still run: as Ctrl-C does, so that fixtures stop services, or by SIGKILL."""
    with suppress(KeyboardInterrupt):
        for each in running:
            if each.process.poll() is None:
                each.process.send_signal(signal.SIGINT)
        if _have_ended(running, grace_s):
            return
    # The time is over, or a second Ctrl-C does not want to wait.
    for each in running:
        with suppress(ProcessLookupError):
            os.killpg(each.process.pid, signal.SIGKILL)
        each.process.wait()


def main() -> int:
    """Runs all tests."""
    rest = Part("tests without vLLM", [*_PYTEST, "-m", "not vllm"], is_shown=True)
    # One cache is enough for two runs at once.
    vllm = Part(
        "tests with vLLM", [*_PYTEST, "-m", "vllm", "-p", "no:cacheprovider"], is_shown=False
    )
    return run([vllm, rest])


if __name__ == "__main__":
    sys.exit(main())
