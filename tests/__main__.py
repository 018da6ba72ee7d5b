"""`make test`: runs the tests with vLLM in parallel with all others; returns one exit status.

The output of the vLLM part is printed after that of the rest.
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
# The tests take 15 minutes on two quiet cores, and ten times as long on a busy machine that is
# three times slower. This limit ends a hang that pytest's own limit for a test does not end.
LIMIT_S = 4 * 3600.0
# Time for fixtures to stop their services, and vLLM with them.
GRACE_S = 180.0


class Part(NamedTuple):
    """Some of the tests.

    Args:
        name: Name for the summary.
        command: Command that runs the tests.
        is_shown: Whether its output is printed at once; otherwise after that of the other part.
    """

    name: str
    command: Sequence[str]
    is_shown: bool


class _Running(NamedTuple):
    part: Part
    process: subprocess.Popen[bytes]
    output: IO[bytes] | None


def run(parts: Sequence[Part], *, limit_s: float = LIMIT_S, grace_s: float = GRACE_S) -> int:
    """Runs the parts at the same time; returns 0 only if all of them succeed.

    A part that fails does not end the others. SIGINT, SIGTERM, SIGHUP and the limit end all parts.

    Args:
        parts: At least one part.
        limit_s: Limit in seconds for all parts together.
        grace_s: Seconds that a part may take to end after SIGINT.
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
        # In a session of its own, so that Ctrl-C reaches the part only once, through this program.
        start_new_session=True,
    )
    return _Running(part, process, output)


def _have_ended(running: Sequence[_Running], limit_s: float) -> bool:
    """Waits until all parts have ended or the time is over; returns whether all have ended."""
    deadline = time.monotonic() + limit_s
    while any(each.process.poll() is None for each in running):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _end(running: Sequence[_Running], grace_s: float) -> None:
    """Ends all running parts with SIGINT, so that fixtures stop services, or with SIGKILL."""
    with suppress(KeyboardInterrupt):
        for each in running:
            if each.process.poll() is None:
                each.process.send_signal(signal.SIGINT)
        if _have_ended(running, grace_s):
            return
    # The grace period is over, or a second Ctrl-C cut it short.
    for each in running:
        with suppress(ProcessLookupError):
            os.killpg(each.process.pid, signal.SIGKILL)
        each.process.wait()


def main() -> int:
    """Runs all tests."""
    rest = Part("tests without vLLM", [*_PYTEST, "-m", "not vllm"], is_shown=True)
    # Only one of two parallel runs may write the cache.
    vllm = Part(
        "tests with vLLM", [*_PYTEST, "-m", "vllm", "-p", "no:cacheprovider"], is_shown=False
    )
    return run([vllm, rest])


if __name__ == "__main__":
    sys.exit(main())
