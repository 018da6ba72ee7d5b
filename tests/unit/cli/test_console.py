"""Progress shows on a terminal as a bar, and elsewhere as lines."""

import io

import pytest
from rich.console import Console

from app.cli import console as output
from app.cli.console import progress_bar


def test_without_a_terminal_the_first_step_prints_a_line_and_the_next_ones_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(output, "console", Console(file=written))
    with progress_bar() as progress:
        task = progress.add_task("judging", total=400)
        progress.advance(task, 3)
        lines = written.getvalue().splitlines()
        assert [line.strip() for line in lines] == ["judging: 3 of 400"]
        for _ in range(10):
            progress.advance(task)
        assert written.getvalue().splitlines() == lines


def test_a_task_without_a_step_prints_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(output, "console", Console(file=written))
    with progress_bar() as progress:
        progress.add_task("judging", total=400)
        assert written.getvalue() == ""
