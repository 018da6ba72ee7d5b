"""Interrupts `judge FILE` in several ways, and compares the result with an undisturbed run."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.benchmarks.processes import Process
from tests.drills.faults.client import figure_in
from tests.drills.faults.scene import Running, service, small_disk
from tests.patience import PATIENCE_S

_COMMAND = (str(Path(sys.executable).with_name("scope-judge")), "judge")
_LABELLED = 400
ROWS_PER_REQUEST = 100


class Interruption(NamedTuple):
    """One way to disturb a run.

    Args:
        title: Short description for the report.
        disturb: Called once a share of the rows has been judged.
        needs_small_disk: Whether the results are written to a disk that is too small for them.
    """

    title: str
    disturb: Callable[["Run"], None]
    needs_small_disk: bool = False


class DisturbedRun(NamedTuple):
    """The outcome of one disturbed run.

    Args:
        runs: Number of times that the command was run.
        equal: Whether the results have the bytes of those of an undisturbed run.
        left: Names of files beside the results.
        again: Comparisons that the service judged more than once; None if its counter was lost
            with it.
        seconds: Time of all runs together.
    """

    runs: int
    equal: bool
    left: tuple[str, ...]
    again: int | None
    seconds: float


@dataclass
class Run:
    """One run of the command against a service.

    Args:
        running: The service.
        rows: File of the comparisons.
        out: File of the results.
    """

    running: Running
    rows: Path
    out: Path
    command: Process = field(init=False)

    def begin(self) -> None:
        """Starts the command."""
        url = f"http://127.0.0.1:{self.running.process.port}"
        options = ["--out", str(self.out), "--url", url, "--batch-size", str(ROWS_PER_REQUEST)]
        self.command = Process(
            self.rows.parent, "judge", [*_COMMAND, str(self.rows), *options], {"COLUMNS": "200"}
        )

    def wait_for(self, results: int) -> None:
        """Waits until the journal has so many results, or the command has ended."""
        partial = self.out.with_name(f"{self.out.name}.partial")
        until = time.monotonic() + PATIENCE_S
        while self.command.popen.poll() is None and time.monotonic() < until:
            if partial.exists() and partial.read_bytes().count(b"\n") >= results:
                return
            time.sleep(0.005)

    def end(self) -> int:
        """Waits for the command; returns its exit status."""
        return self.command.popen.wait(PATIENCE_S)


def _kill(run: Run) -> None:
    # A fast machine may have finished the run meanwhile.
    with suppress(ProcessLookupError):
        os.killpg(run.command.popen.pid, signal.SIGKILL)
    run.end()


def _interrupt(run: Run) -> None:
    run.command.popen.send_signal(signal.SIGINT)
    status = run.end()
    done = status == 0 and run.out.exists()
    assert status == 130 or done, f"Ctrl-C ends the command with status 130, not {status}"


def _restart_service(run: Run) -> None:
    run.running.start_again()


def _kill_service(run: Run) -> None:
    os.killpg(run.running.process.popen.pid, signal.SIGKILL)
    run.running.start_again()


def _enlarge_disk(run: Run) -> None:
    """Waits until the full disk has ended the command, and makes the disk larger."""
    status = run.end()
    assert status == 1, f"a full disk ends the command with status 1, not {status}"
    folder = str(run.out.parent)
    subprocess.run(["mount", "-o", "remount,size=256m", folder], check=True)


INTERRUPTIONS = {
    "kill": Interruption("`kill -9` of the command", _kill),
    "ctrl-c": Interruption("Ctrl-C", _interrupt),
    "service-restart": Interruption("the service is stopped and started", _restart_service),
    "service-kill": Interruption("`kill -9` of the service, started again", _kill_service),
    "full-disk": Interruption("the disk is full; then it has room", _enlarge_disk, True),
}


class Drill:
    """A calibrated service, a file, and its results from an undisturbed run.

    Args:
        running: The service.
        folder: Folder for all files.
        count: Number of comparisons in the file.
    """

    def __init__(self, running: Running, folder: Path, count: int) -> None:
        self._running = running
        self._folder = folder
        self._count = count
        self._rows = folder / "rows.jsonl"
        with self._rows.open("w") as file:
            file.writelines(f"{json.dumps(_row(i))}\n" for i in range(count))
        self._expected = b""

    def undisturbed(self) -> float:
        """Judges the file once; returns the seconds that it takes."""
        run, begun = Run(self._running, self._rows, self._folder / "expected.jsonl"), time.time()
        run.begin()
        assert run.end() == 0, run.command.log.read_text()
        self._expected = run.out.read_bytes()
        return time.time() - begun

    def disturbed(self, interruption: Interruption, times: int = 3) -> DisturbedRun:
        """Judges the file and disturbs this several times, at different moments."""
        folder = self._folder / "results"
        folder.mkdir(exist_ok=True)
        with ExitStack() as stack:
            if interruption.needs_small_disk:
                stack.enter_context(small_disk(folder, len(self._expected) // 2))
                times = 1
            run = Run(self._running, self._rows, folder / "out.jsonl")
            asked, service_before = self._judged(), self._running.process
            begun, runs = time.time(), 0
            for number in range(times):
                runs = self._begun(run, runs)
                run.wait_for((number + 1) * self._count // (times + 1))
                interruption.disturb(run)
            runs = self._begun(run, runs)
            assert run.end() == 0, run.command.log.read_text()
            seconds = time.time() - begun
            same_service = self._running.process is service_before
            again = self._judged() - asked - self._count if same_service else None
            left = tuple(sorted(set(os.listdir(folder)) - {"out.jsonl"}))
            equal = run.out.read_bytes() == self._expected
            run.out.unlink()
        return DisturbedRun(runs, equal, left, again, seconds)

    def _begun(self, run: Run, runs: int) -> int:
        """Starts the command unless it runs or is done; returns the number of runs so far."""
        if runs and (run.command.popen.poll() is None or run.out.exists()):
            return runs
        run.begin()
        return runs + 1

    def _judged(self) -> int:
        """Comparisons that the running service has judged since it started."""
        url = f"http://127.0.0.1:{self._running.process.port}/metrics"
        return int(figure_in(httpx.get(url).text, "scope_judgments_total"))


@asynccontextmanager
async def drill(folder: Path, count: int) -> AsyncIterator[Drill]:
    """A drill on a service with a scripted engine and a SQLite store."""
    async with service(folder, store_url=f"sqlite:///{folder / 'store.db'}") as running:
        # People disagree with the judge only where it is uncertain.
        examples = [{**_row(i), "label": "B" if i % 97 < 9 else "A"} for i in range(_LABELLED)]
        url = f"http://127.0.0.1:{running.process.port}/calibrate"
        answer = await asyncio.to_thread(httpx.post, url, json={"examples": examples})
        answer.raise_for_status()
        yield Drill(running, folder, count)


def _row(number: int) -> dict[str, object]:
    """A comparison on which the scripted engine is more or less certain."""
    return {
        "id": number,
        "question": f"Which answer to question {number} is better?",
        "response_a": f"One with quality={number % 97 / 10:.2f}.",
        "response_b": "One with quality=0.00.",
    }
