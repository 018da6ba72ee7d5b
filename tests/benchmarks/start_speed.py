"""Seconds from the start of `scope-judge serve` with the demo judge until it is ready."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.benchmarks.code import ROOT
from tests.benchmarks.measurement import Figure, Result, Sampling, Skipped
from tests.benchmarks.processes import HttpServer
from tests.benchmarks.report import named_release
from tests.benchmarks.service import keys_file
from tests.integration.processes.server import free_port

NAMES = ("start-first", "start-again", "start-cold")
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_WHAT = {
    "start-first": "nothing cached: new folders for caches and for the store",
    "start-again": "caches and store of an earlier start",
    "start-cold": "as start-again, after the page cache was dropped",
}


class StartBench:
    """Starts of this release, and of another one in turns with it.

    Args:
        sampling: Number of starts of each kind; small ones leave out the start that compiles
            bytecode.
        against: Folder of the other release; None to measure this one only.
    """

    def __init__(self, sampling: Sampling, against: Path | None) -> None:
        self._sampling = sampling
        self._folder = sampling.folder
        self._releases = [ROOT] if against is None else [ROOT, against]

    def measure(self, names: Sequence[str]) -> list[Result]:
        """One figure for each name."""
        skipped: list[Result] = []
        if "start-cold" in names and not os.access(_DROP_CACHES, os.W_OK):
            skipped = [Skipped("start-cold", f"{_DROP_CACHES} is not writable")]
            names = [name for name in names if name != "start-cold"]
        # The first start of a checkout compiles its bytecode, which an installation does.
        if not self._sampling.small:
            for release, code in enumerate(self._releases):
                self._started(code, self._home(f"warm-up-{release}"))
        samples = {name: [list[float]() for _ in self._releases] for name in names}
        for repeat in range(self._sampling.repeats):
            for release, code in enumerate(self._releases):
                home = self._home(f"{release}-{repeat}")
                for name, seconds in self._starts(names, code, home).items():
                    samples[name][release].append(seconds)
        return [*(self._figure(name, samples[name]) for name in names), *skipped]

    def _starts(self, names: Sequence[str], code: Path, home: Path) -> dict[str, float]:
        """The seconds of each kind of start; the first start fills the caches of the others."""
        found = {"start-first": self._started(code, home)}
        if "start-again" in names:
            found["start-again"] = self._started(code, home)
        if "start-cold" in names:
            os.sync()
            _DROP_CACHES.write_text("3\n")
            found["start-cold"] = self._started(code, home)
        return {name: seconds for name, seconds in found.items() if name in names}

    def _home(self, name: str) -> Path:
        home = self._folder / f"home-{name}"
        home.mkdir()
        return home

    def _started(self, code: Path, home: Path) -> float:
        """Starts a service with this home, where its caches and its store are; returns seconds."""
        port = free_port()
        command = [str(Path(sys.executable).with_name("scope-judge")), "serve"]
        begun = time.perf_counter()
        with HttpServer(
            self._folder,
            f"start-{port}",
            command,
            self._environment(code, home, port),
            port=port,
            ready_path="/readyz",
        ):
            seconds = time.perf_counter() - begun
        self._sampling.on_sample()
        return seconds

    def _environment(self, code: Path, home: Path, port: int) -> Mapping[str, str]:
        return {
            "PYTHONPATH": f"{code}:{code / 'clients' / 'python'}",
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_DATA_HOME": str(home / ".local" / "share"),
            "SCOPE_API_KEYS_FILE": str(keys_file(self._folder)),
            "SCOPE_PORT": str(port),
            "SCOPE_DRAIN_LAG_S": "0",
        }

    def _figure(self, name: str, samples: Sequence[Sequence[float]]) -> Figure:
        ours, theirs = samples[0], samples[1] if len(samples) > 1 else ()
        notes = [f"`scope-judge serve` until the first 200 of /readyz; {_WHAT[name]}"]
        if theirs:
            notes.append(f"theirs is {named_release(self._releases[1])}")
        return Figure(name, "s", tuple(ours), tuple(theirs), None, at_most=True, notes=(*notes,))
