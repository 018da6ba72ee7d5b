"""Progress is a bar on a terminal and lines elsewhere; no width cuts a path or a row."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from app.cli import progress as output
from app.cli.console import print_table, say
from app.cli.progress import progress_bar


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


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("width", [20, 60, 200])
def test_no_width_cuts_a_path_or_a_row(width: int, is_terminal: bool) -> None:
    path = "/" + "/".join(f"folder-{i}" for i in range(20))
    written = io.StringIO()
    narrow = Console(file=written, width=width, force_terminal=is_terminal, color_system=None)
    say(f"the results are in {path} now", output=narrow)
    table = Table("model", "score")
    table.add_row("a model with a long name", "1043")
    print_table(table, title=f"changes since {path}", output=narrow)
    lines = written.getvalue().splitlines()
    assert sum(path in line for line in lines) == 2
    assert any("a model with a long name" in line and "1043" in line for line in lines)


@pytest.mark.parametrize(
    ("is_terminal", "lines"),
    [
        (True, ["The results are in", "/folder/of/the/judge", "now, and words more."]),
        (False, ["The results are in /folder/of/the/judge now, and words more."]),
    ],
)
def test_a_sentence_breaks_between_words_on_a_terminal_alone(
    is_terminal: bool, lines: list[str]
) -> None:
    written = io.StringIO()
    narrow = Console(file=written, width=20, force_terminal=is_terminal, color_system=None)
    say("The results are in /folder/of/the/judge now, and words more.", output=narrow)
    assert written.getvalue().splitlines() == lines
