"""A run of `judge FILE` that is killed or stopped gives the results of an undisturbed one."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.forked import ForkedCommand
from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S, wait_until
from tests.small_disk import no_small_disk, small_disk
from tests.traffic import figure_in

_ROWS, _LABELED = 6000, 400


class Run:
    """The command, its rows and its results.

    Args:
        service: The service that judges.
        rows: File of the comparisons.
        out: File of the results.
    """

    def __init__(self, service: Server, rows: Path, out: Path) -> None:
        self.service = service
        self.out = out
        self.log = rows.with_name("judge.log")
        url = service.url
        self._arguments = ["judge", str(rows), "--out", str(out), "--url", url]

    def begin(self) -> None:
        environment = {**os.environ, "COLUMNS": "200"}
        self.process = ForkedCommand(self._arguments, environment=environment, output=self.log)

    def wait_for(self, results: int) -> None:
        """Waits until the journal has so many results, or the command has ended."""
        wait_until(lambda: self.process.poll() is not None or self.kept() >= results)

    def kept(self) -> int:
        """Results in the journal, below its line with the settings."""
        partial = self.out.with_name(f"{self.out.name}.partial")
        return partial.read_bytes().count(b"\n") - 1 if partial.exists() else 0

    def end(self) -> int:
        return self.process.wait(PATIENCE_S)

    def judged(self) -> int:
        """Comparisons that the service has judged since it started, once it works on none."""
        before = -1.0
        while True:
            metrics = self.service.client.get("/metrics").text
            judged = figure_in(metrics, "scope_judgments_total")
            if judged == before and not figure_in(metrics, "scope_pending_comparisons"):
                return int(judged)
            before = judged
            time.sleep(0.2)


def _kill(run: Run) -> None:
    run.process.kill()
    run.end()


def _interrupt(run: Run) -> None:
    run.process.send_signal(signal.SIGINT)
    status = run.end()
    assert status == 130 or (status == 0 and run.out.exists())


def _restart(run: Run) -> None:
    run.service.stop()
    run.service.start()


def _kill_service(run: Run) -> None:
    run.service.kill()
    run.service.start()


def _enlarge_disk(run: Run) -> None:
    """Waits until the full disk has ended the command, and makes the disk larger."""
    assert run.end() == 1
    folder = str(run.out.parent)
    subprocess.run(["mount", "-o", "remount,size=256m", folder], check=True)


INTERRUPTIONS: dict[str, tuple[Callable[[Run], None], ...]] = {
    # A second kill meets a run that was resumed.
    "kill": (_kill, _kill),
    "ctrl-c": (_interrupt,),
    "service-restart": (_restart,),
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

    service: Server
    rows: Path
    results: bytes


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
    folder = tmp_path_factory.mktemp("interrupted")
    settings = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": f"sqlite:///{folder}/sets.db"}
    rows = folder / "rows.jsonl"
    rows.write_text("".join(f"{json.dumps(_row(i))}\n" for i in range(_ROWS)))
    with Server(folder, settings) as service:
        # Labels differ from the judge's verdicts only where it is uncertain.
        examples = [{**_row(i), "label": "B" if i % 97 < 9 else "A"} for i in range(_LABELED)]
        service.client.post("/calibrate", json={"examples": examples}).raise_for_status()
        run = Run(service, rows, folder / "expected.jsonl")
        run.begin()
        assert run.end() == 0, run.log.read_text()
        yield Undisturbed(service, rows, run.out.read_bytes())


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
            if run.process.poll() is not None:
                run.begin()
            run.wait_for(number * _ROWS // (2 * len(steps) + 2))
            interrupt(run)
        ended = run.process.poll() is not None and not run.out.exists()
        # A service that is away interrupts no command.
        assert ended or name.startswith("service"), "the interruption came too late"
        if ended:
            kept, seen = run.kept(), run.judged()
            run.begin()
        assert run.end() == 0, run.log.read_text()
        assert run.out.read_bytes() == undisturbed.results
        assert os.listdir(tmp_path) == ["out.jsonl"]
        if ended:
            # No row is judged again that had a result when the run was interrupted.
            assert run.judged() - seen <= _ROWS - kept
