"""The progress of a run and of a start: live on a terminal, else a line now and then."""

import threading
import time
from typing import Any

from rich.console import Console
from rich.live import Live
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
from rich.text import Text

from app.cli.console import console, say

# Between two lines, where the output is not a terminal: of progress, and of a start.
_LINE_EVERY_S = 60.0
_BEAT_EVERY_S = 10.0
_REFRESHES_A_SECOND = 4


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
        parts = (f"{task.completed:,.0f}{of}", _speed(task))
        line = f"        {task.description}: {', '.join(filter(None, parts))}"
        say(line, output=self.console)


def progress_bar() -> Progress:
    """A progress bar with counts, rate and remaining time; lines where there is no terminal."""
    return _PlainProgress(
        TextColumn("        {task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        _RateColumn(),
        TimeRemainingColumn(),
        console=console,
    )


class ConsoleObserver:
    """Prints the progress of a start to stderr."""

    def __init__(self, *, beat_s: float = _BEAT_EVERY_S) -> None:
        self._begun = time.monotonic()
        self._beat_s = beat_s
        self._progress: Progress | None = None
        self._heartbeat: Heartbeat | None = None

    def stage(self, text: str) -> None:
        """Prints the name of a stage with the seconds since the start."""
        self.finish()
        say((f"{time.monotonic() - self._begun:5.1f} s", "dim"), f"  {text} ...")
        self._heartbeat = Heartbeat(console, text, begun=self._begun, every_s=self._beat_s)

    def note(self, text: str) -> None:
        """Prints a note."""
        say(text)

    def warning(self, text: str) -> None:
        """Prints a warning."""
        say(("warning:", "yellow"), f" {text}")

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


class Heartbeat:
    """Shows that a stage runs, until `stop`; the stage may block the interpreter's main thread.

    Args:
        console: Console to write to.
        text: Name of the stage.
        begun: Time of the monotonic clock from which seconds count.
        every_s: Seconds between two lines where the console is not a terminal.
    """

    def __init__(self, console: Console, text: str, *, begun: float, every_s: float) -> None:
        self._console, self._text, self._begun = console, text, begun
        self._every_s = every_s
        self._stage_begun = time.monotonic()
        self._stopped = threading.Event()
        self._live: Live | None = None
        self._thread: threading.Thread | None = None
        if console.is_terminal:
            # Other output stays as it is: its writers would lose their place in a queue.
            self._live = Live(
                get_renderable=self._line,
                console=console,
                refresh_per_second=_REFRESHES_A_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        else:
            self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Removes the live line, or ends the lines."""
        self._stopped.set()
        if self._live is not None:
            self._live.stop()
        if self._thread is not None:
            self._thread.join()

    def _line(self) -> Text:
        now = time.monotonic()
        stage_s = now - self._stage_begun
        return Text(f"{now - self._begun:5.1f} s  {self._text}: still at work, {stage_s:.0f} s")

    def _beat(self) -> None:
        while not self._stopped.wait(self._every_s):
            self._console.print(self._line(), soft_wrap=True)
