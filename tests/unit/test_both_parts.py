"""`python -m tests` reports the outcome of each part, and ends both parts in every case."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
PASSES = "print('fine')"
FAILS = "print('E   assert 1 == 2'); raise SystemExit(1)"
# Like pytest at Ctrl-C, this program stops its services.
STOPS = """
import pathlib, sys, time
mine, other = map(pathlib.Path, {files})
try:
    mine.touch()
    while not other.exists():
        time.sleep(0.01)
    print('both run', flush=True)
    time.sleep(3600)
except KeyboardInterrupt:
    print('services are stopped')
    sys.exit(2)
"""
HANGS = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
time.sleep(3600)
"""


def running(vllm: str, rest: str, *, limit_s: float, grace_s: float) -> subprocess.Popen[str]:
    """Runs two small programs from a shell's background, where SIGINT is ignored."""
    program = (
        "import sys; from tests.__main__ import Part, run\n"
        f"parts = [Part('vllm', [sys.executable, '-Sc', {vllm!r}], is_shown=False),\n"
        f"         Part('rest', [sys.executable, '-Sc', {rest!r}], is_shown=True)]\n"
        f"sys.exit(run(parts, limit_s={limit_s}, grace_s={grace_s}))"
    )
    return subprocess.Popen(
        [sys.executable, "-Sc", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, output


@pytest.mark.parametrize("failing", ["vllm", "rest", "both", "none"])
def test_each_part_is_reported_and_a_failure_of_one_is_the_status(failing: str) -> None:
    vllm = FAILS if failing in ("vllm", "both") else PASSES
    rest = FAILS if failing in ("rest", "both") else PASSES
    status, output = ended(running(vllm, rest, limit_s=PATIENCE_S, grace_s=PATIENCE_S))
    assert status == (failing != "none")
    for name, program in (("vllm", vllm), ("rest", rest)):
        assert f"{name}: {'passed' if program is PASSES else 'FAILED, status 1'}" in output
    assert output.count("assert 1 == 2") == (vllm is FAILS) + (rest is FAILS)
    # The output that was held back comes after the other.
    assert output.index("===== vllm =====") > re.search("fine|assert", output).start()  # type: ignore[union-attr]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_reaches_both_parts_and_they_end_in_good_order(
    number: signal.Signals, tmp_path: Path
) -> None:
    files = [str(tmp_path / "vllm"), str(tmp_path / "rest")]
    vllm, rest = STOPS.format(files=files), STOPS.format(files=files[::-1])
    process = running(vllm, rest, limit_s=3600, grace_s=PATIENCE_S)
    assert process.stdout is not None
    assert process.stdout.readline() == "both run\n"
    process.send_signal(number)
    status, output = ended(process)
    assert status == 1
    assert output.count("services are stopped") == 2
    assert "The tests were interrupted." in output


def test_a_part_that_hangs_is_ended_and_the_other_is_reported() -> None:
    began = time.monotonic()
    # The other part starts and ends within the limit.
    status, output = ended(running(HANGS, PASSES, limit_s=4.0, grace_s=0.2))
    assert time.monotonic() - began >= 4.2
    assert status == 1
    assert "fine" in output
    assert "vllm: FAILED, status -9" in output
    assert "rest: passed" in output
    assert "The tests were stopped after 4 s." in output
