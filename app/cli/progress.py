"""The progress of a run and of a start: live on a terminal, else a line now and then."""

import time
from typing import Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from app.cli.console import console, say

# Between two lines of progress, where the output is not a terminal.
_LINE_EVERY_S = 60.0


class _PlainProgress(Progress):
    """Progress where the output is not a terminal: a line at the first step and now and then.

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
        task = next(one for one in self.tasks if one.id == task_id)
        if self.console.is_terminal or task.completed == 0 or now < self._next_line_s:
            return
        self._next_line_s = now + _LINE_EVERY_S
        of = "" if task.total is None else f" of {task.total:,.0f}"
        line = f"        {task.description}: {task.completed:,.0f}{of}"
        say(line, output=self.console)


def progress_bar() -> Progress:
    """A progress bar with counts and remaining time; lines where there is no terminal."""
    return _PlainProgress(
        TextColumn("        {task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )


class ConsoleObserver:
    """Prints the progress of a start to stderr."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    def stage(self, text: str) -> None:
        """Prints the name of a stage with the seconds since the start."""
        say((f"{self.elapsed_s:5.1f} s", "dim"), f"  {text} ...")

    def note(self, text: str) -> None:
        """Prints a note."""
        say(text)

    def warning(self, text: str) -> None:
        """Prints a warning."""
        say(("warning:", "yellow"), f" {text}")

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begun
