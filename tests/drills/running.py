"""A drill on the command line: its progress, its end by a signal, its table, and its figures."""

import argparse
import json
import signal
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.benchmarks.measured import about

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "docs" / "measured"


class Bar(Progress):
    """Shows on stderr how far a drill is; SIGTERM ends the drill in order, with its processes.

    Args:
        total: Number of steps; None if it is unknown.
    """

    def __init__(self, total: float | None = None) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._steps = self.add_task("starting", total=total)

    def stage(self, text: str) -> None:
        """Shows the current step."""
        self.update(self._steps, description=text)

    def step(self, steps: float = 1) -> None:
        """Counts finished steps."""
        self.advance(self._steps, steps)


def add_only(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Adds the option `--only`, whose default is all names."""
    names = list(names)
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names)
    )


def print_table(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    red: Container[int] = (),
) -> None:
    """Prints a table to stdout, as wide as it needs where stdout is not a terminal.

    Args:
        title: Title of the table.
        headings: Titles of the columns.
        rows: Texts of the cells.
        red: Numbers of the rows that broke a promise.
    """
    table = Table(*map(escape, headings), title=title)
    for number, row in enumerate(rows):
        table.add_row(*map(escape, row), style="red" if number in red else None)
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def write_json(name: str, content: Mapping[str, Any]) -> Path:
    """Writes figures with the time, commit, machine and versions of their measurement."""
    file = MEASURED / f"{name}.json"
    facts = about(repeats=1, quick=False)
    content = {key: facts[key] for key in ("made", "commit", "machine", "versions")} | dict(content)
    file.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return file
