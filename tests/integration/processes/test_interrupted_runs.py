"""A run of `judge FILE` that is killed or stopped gives the results of an undisturbed one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.benchmarks.processes import Process
from tests.drills.load.client import figure_in
from tests.drills.load.supervised import Running
from tests.patience import PATIENCE_S
from tests.small_disk import no_small_disk, small_disk

_COMMAND = (str(Path(sys.executable).with_name("scope-judge")), "judge")
_ROWS, _LABELED = 6000, 400


class Run:
    """The command, its rows and its results.

    Args:
        service: The service that judges.
        rows: File of the comparisons.
        out: File of the results.
    """

    def __init__(self, service: Running, rows: Path, out: Path) -> None:
        self.service = service
        self.out = out
        self.url = f"http://127.0.0.1:{service.process.port}"
        options = ["--out", str(out), "--url", self.url]
        self._command = [*_COMMAND, str(rows), *options]
        self._folder = rows.parent

    def begin(self) -> None:
        self.process = Process(self._folder, "judge", self._command, {"COLUMNS": "200"})

    def wait_for(self, results: int) -> None:
        """Waits until the journal has so many results, or the command has ended."""
        until = time.monotonic() + PATIENCE_S
        while self.process.popen.poll() is None and time.monotonic() < until:
            if self.kept() >= results:
                return
            time.sleep(0.005)

    def kept(self) -> int:
        """Results in the journal, below its line with the settings."""
        partial = self.out.with_name(f"{self.out.name}.partial")
        return partial.read_bytes().count(b"\n") - 1 if partial.exists() else 0

    def end(self) -> int:
        return self.process.popen.wait(PATIENCE_S)

    def judged(self) -> int:
        """Comparisons that the service has judged since it started, once it works on none."""
        before = -1.0
        while True:
            metrics = httpx.get(f"{self.url}/metrics").text
            judged = figure_in(metrics, "scope_judgments_total")
            if judged == before and not figure_in(metrics, "scope_pending_comparisons"):
                return int(judged)
            before = judged
            time.sleep(1)


def _kill(run: Run) -> None:
    # A fast machine may have finished the run meanwhile.
    with suppress(ProcessLookupError):
        os.killpg(run.process.popen.pid, signal.SIGKILL)
    run.end()


def _interrupt(run: Run) -> None:
    run.process.popen.send_signal(signal.SIGINT)
    status = run.end()
    assert status == 130 or (status == 0 and run.out.exists())


def _kill_service(run: Run) -> None:
    os.killpg(run.service.process.popen.pid, signal.SIGKILL)
    run.service.start_again()


def _enlarge_disk(run: Run) -> None:
    """Waits until the full disk has ended the command, and makes the disk larger."""
    assert run.end() == 1
    folder = str(run.out.parent)
    subprocess.run(["mount", "-o", "remount,size=256m", folder], check=True)


INTERRUPTIONS: dict[str, tuple[Callable[[Run], None], ...]] = {
    # A second kill meets a run that was resumed.
    "kill": (_kill, _kill),
    "ctrl-c": (_interrupt,),
    "service-restart": (lambda run: run.service.start_again(),),
    "service-kill": (_kill_service,),
    "full-disk": (_enlarge_disk,),
}


def _row(number: int) -> dict[str, object]:
    """A comparison on which the scripted engine is more or less certain."""
    return {
        "id": number,
        "question": f"Which answer to question {number} is better?",
        "response_a": f"One with quality={number % 97 / 10:.2f}.",
        "response_b": "One with quality=0.00.",
    }


class Undisturbed(NamedTuple):
    """A calibrated service, a file of rows, and its results from an undisturbed run."""

    service: Running
    rows: Path
    results: bytes


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
    folder = tmp_path_factory.mktemp("interrupted")
    settings = {"engine": "scripted", "store_url": f"sqlite:///{folder}/sets.db"}
    rows = folder / "rows.jsonl"
    rows.write_text("".join(f"{json.dumps(_row(i))}\n" for i in range(_ROWS)))
    service = Running(folder, settings)
    try:
        # Labels differ from the judge's verdicts only where it is uncertain.
        examples = [{**_row(i), "label": "B" if i % 97 < 9 else "A"} for i in range(_LABELED)]
        url = f"http://127.0.0.1:{service.process.port}/calibrate"
        httpx.post(url, json={"examples": examples}).raise_for_status()
        run = Run(service, rows, folder / "expected.jsonl")
        run.begin()
        assert run.end() == 0, run.process.log.read_text()
        yield Undisturbed(service, rows, run.out.read_bytes())
    finally:
        service.process.stop()


@pytest.mark.parametrize("name", INTERRUPTIONS)
def test_every_row_is_judged_once_whatever_interrupts_the_run(
    name: str, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    steps = INTERRUPTIONS[name]
    with ExitStack() as stack:
        if name == "full-disk":
            obstacle = no_small_disk()
            if obstacle:
                pytest.skip(obstacle)
            stack.enter_context(small_disk(tmp_path, len(undisturbed.results) // 2))
        run = Run(undisturbed.service, undisturbed.rows, tmp_path / "out.jsonl")
        run.begin()
        for number, interrupt in enumerate(steps, 1):
            if run.process.popen.poll() is not None:
                run.begin()
            run.wait_for(number * _ROWS // (2 * len(steps) + 2))
            interrupt(run)
        ended = run.process.popen.poll() is not None and not run.out.exists()
        # A service that is away interrupts no command.
        assert ended or name.startswith("service"), "the interruption came too late"
        if ended:
            kept, seen = run.kept(), run.judged()
            run.begin()
        assert run.end() == 0, run.process.log.read_text()
        assert run.out.read_bytes() == undisturbed.results
        assert os.listdir(tmp_path) == ["out.jsonl"]
        if ended:
            # No row is judged again that had a result when the run was interrupted.
            assert run.judged() - seen <= _ROWS - kept
