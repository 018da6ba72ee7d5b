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
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from app.cli.heartbeat import EVERY_S, Heartbeat

# Progress and notes go to stderr, so that a pipe reads only results from stdout.
console = Console(stderr=True)
# Between two lines of progress, where the output is no terminal.
_LINE_EVERY_S = 60.0


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
        return Text(_speed(task), style="progress.data.speed")


def _speed(task: Task) -> str:
    """Steps a second; empty before the first step."""
    if not task.speed:
        return ""
    # A large judge on a CPU answers less than one pair a second.
    return f"{task.speed:.0f}/s" if task.speed >= 10 else f"{task.speed:.1f}/s"


class _PlainProgress(Progress):
    """Progress whose output is no terminal: prints a line at the first step and then now and then.

    Rich itself prints nothing there until the end.
    """

    _next_line_s = 0.0

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """Like `Progress.update`; prints a line if the last one is old."""
        super().update(task_id, **changes)
        self._tell(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """Like `Progress.advance`; prints a line if the last one is old."""
        super().advance(task_id, advance)
        self._tell(task_id)

    def _tell(self, task_id: TaskID) -> None:
        now = time.monotonic()
        task = next(each for each in self.tasks if each.id == task_id)
        if self.console.is_terminal or task.completed == 0 or now < self._next_line_s:
            return
        self._next_line_s = now + _LINE_EVERY_S
        of = "" if task.total is None else f" of {task.total:,.0f}"
        parts = (f"{task.completed:,.0f}{of}", _speed(task))
        line = f"        {task.description}: {', '.join(filter(None, parts))}"
        self.console.print(line, highlight=False, soft_wrap=True)


def progress_bar() -> Progress:
    """A progress bar with counts, rate and remaining time; lines where there is no terminal."""
    return _PlainProgress(
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
