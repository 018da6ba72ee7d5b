"""`python -m tests` draws surroundings that a seed repeats, and ends all that it has started."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.patience import PATIENCE_S
from tests.surroundings import TIME_ZONES, Surroundings, shuffled_ranks

ROOT = Path(__file__).parents[2]
SEEDS = range(300)
# A test run with a service in a session of its own. At Ctrl-C, pytest stops its services.
STOPS = """
import subprocess, sys, time
service = subprocess.Popen([sys.executable, "-Sc", "import time; time.sleep(3600)"],
                           start_new_session=True)
try:
    print(service.pid, flush=True)
    time.sleep(3600)
except KeyboardInterrupt:
    service.terminate()
    print("services are stopped")
"""
# The same, but the service loses its parent, and nothing ends at Ctrl-C.
HANGS = """
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    print(os.getpid(), flush=True)
time.sleep(3600)
"""


def running(
    program: str, *, check: str | None = None, grace_s: float = PATIENCE_S
) -> subprocess.Popen[str]:
    """Runs a small program in place of pytest, from a shell's background, which ignores SIGINT."""
    runner = (
        "import os, sys; from tests.__main__ import run\n"
        f"command = [sys.executable, '-Sc', {program!r}]\n"
        f"beside = [sys.executable, '-Sc', {check!r}] if {check is not None} else None\n"
        f"sys.exit(run(command, os.environ, beside=beside, grace_s={grace_s}))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", runner],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )


@pytest.mark.parametrize("status", [0, 1, 5])
def test_the_status_of_the_tests_is_the_status_of_the_run(status: int) -> None:
    process = running(f"raise SystemExit({status})")
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == status


def test_a_check_beside_the_tests_says_its_result_at_the_end() -> None:
    process = running("raise SystemExit(5)", check="print('no wrong type')")
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, output) == (5, "no wrong type\n")


def test_a_check_that_fails_ends_the_tests() -> None:
    process = running(
        "import time; time.sleep(3600)", check="print('a wrong type'); raise SystemExit(2)"
    )
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "a wrong type" in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_lets_the_tests_stop_their_services(number: signal.Signals) -> None:
    process = running(STOPS)
    assert process.stdout is not None
    service = int(process.stdout.readline())
    process.send_signal(number)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert output.endswith("services are stopped\n")
    assert not psutil.pid_exists(service)


def test_what_does_not_end_at_an_interrupt_is_killed() -> None:
    process = running(HANGS, grace_s=0.2)
    assert process.stdout is not None
    service = int(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert not psutil.pid_exists(service)


def test_a_seed_repeats_its_surroundings() -> None:
    locales = ["C", "de_DE.utf8"]
    draws = [Surroundings.draw(seed, locales) for seed in SEEDS]
    assert draws == [Surroundings.draw(seed, locales) for seed in SEEDS]
    assert {draw.locale for draw in draws} == {"C.UTF-8", "de_DE.utf8"}
    assert {draw.time_zone for draw in draws} == set(TIME_ZONES)
    assert {draw.locale for draw in [Surroundings.draw(seed, ["C"]) for seed in SEEDS]} == {
        "C.UTF-8"
    }


def test_the_temporary_folder_has_the_drawn_length_and_depth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The length holds wherever the system's own folder leaves room.
    system = Path("/tmp")
    monkeypatch.setattr("tempfile.tempdir", str(system))
    for seed in SEEDS[:50]:
        draw = Surroundings.draw(seed, [])
        folder, outermost = draw.make_folder()
        try:
            assert folder.is_dir()
            assert len(str(folder)) == draw.folder_length
            assert outermost.parent == system
            assert len(folder.relative_to(system).parts) <= draw.folder_depth
        finally:
            shutil.rmtree(outermost)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder, outermost = Surroundings.draw(0, []).make_folder()
    assert folder.is_dir()
    assert outermost.parent == tmp_path


def test_the_order_of_files_depends_on_the_seed_only() -> None:
    names = ["b", "a", "c", "a"]
    orders = {tuple(shuffled_ranks(names, seed).items()) for seed in SEEDS}
    assert len(orders) == 6
    assert shuffled_ranks(names, 3) == shuffled_ranks(names[::-1], 3)
