"""Output that the commands share: errors, progress bars, and the table of thresholds."""

import time
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from app.cli.heartbeat import EVERY_S, Heartbeat

# Progress and notes go to stderr, so that a pipe reads only results from stdout.
console = Console(stderr=True)


def failure(message: str) -> typer.Exit:
    """Prints an error message; the caller raises the returned exit with status 1."""
    # Square brackets in a message are not markup, and a long path must not be wrapped.
    console.print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
    return typer.Exit(1)


def print_sentence(text: str, printed: Console = console) -> None:
    """Prints markup; lines break between words on a terminal, and nowhere in a pipe."""
    printed.print(text, highlight=False, soft_wrap=not printed.is_terminal)


class _RateColumn(ProgressColumn):
    """Rate in steps a second."""

    def render(self, task: Task) -> Text:
        """The rate as text; empty before the first step."""
        return Text(f"{task.speed:.0f}/s" if task.speed else "", style="progress.data.speed")


def progress_bar() -> Progress:
    """A progress bar with counts, rate and remaining time."""
    return Progress(
        TextColumn("        {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _RateColumn(),
        TimeRemainingColumn(),
        console=console,
    )


class ConsoleObserver:
    """Prints the progress of a start to stderr.

    Args:
        beat_s: Seconds between two signs of life, where stderr is no terminal.
    """

    def __init__(self, *, beat_s: float = EVERY_S) -> None:
        self._begun = time.monotonic()
        self._beat_s = beat_s
        self._progress: Progress | None = None
        self._heartbeat: Heartbeat | None = None

    def stage(self, text: str) -> None:
        """Prints the name of a stage with the seconds since the start."""
        self.finish()
        console.print(f"[dim]{time.monotonic() - self._begun:5.1f} s[/]  {escape(text)} ...")
        self._heartbeat = Heartbeat(console, text, begun=self._begun, every_s=self._beat_s)

    def note(self, text: str) -> None:
        """Prints a note."""
        console.print(escape(text), highlight=False, soft_wrap=True)

    def warning(self, text: str) -> None:
        """Prints a warning."""
        console.print(f"[yellow]warning:[/] {escape(text)}", soft_wrap=True)

    def calibrated(self, done: int, total: int) -> None:
        """Updates the progress bar; makes it first if needed."""
        if self._progress is None:
            self.finish()
            self._progress = progress_bar()
            self._progress.start()
            self._progress.add_task("judging", total=total)
        self._progress.update(self._progress.task_ids[0], completed=done)

    def finish(self) -> None:
        """Removes the progress bar or the sign of life, if there is one."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begun


def print_thresholds(
    name: str,
    version: int,
    n: int,
    rows: list[dict[str, Any]],
    *,
    output: Console = console,
) -> None:
    """Prints the thresholds of a calibration set.

    Args:
        name: Name of the calibration set.
        version: Version of the set.
        n: Number of examples.
        rows: Thresholds as in the answer of POST /calibrate.
        output: Console for the table.
    """
    table = Table(title=f"calibration {name}, version {version}, n = {n}", title_justify="left")
    for heading in ("guarantee", "alpha", "threshold", "coverage", "empirical risk"):
        table.add_column(heading, justify="left" if heading == "guarantee" else "right")
    for row in rows:
        delta = f", delta {row['delta']:g}" if row["delta"] is not None else ""
        risk = row["empirical_risk"]
        table.add_row(
            row["guarantee"] + delta,
            f"{row['alpha']:.2f}",
            _threshold(row),
            f"{row['coverage']:.3f}",
            "" if risk is None else f"{risk:.3f}",
        )
    output.print(table)


def _threshold(row: dict[str, Any]) -> str:
    if row["feasible"]:
        return f"{row['threshold']:.6f}"
    # Services of older releases have no pairs without labels.
    return "labels missing" if row.get("labels_missing") else "infeasible"
