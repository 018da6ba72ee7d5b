"""Errors and Ctrl-C of any command end in one place, with what is kept."""

import pytest
import typer

from app.cli.console import CommandError
from app.cli.stopping import ending, resumable
from app.core.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (CommandError("no [such] file"), 1, "error: no [such] file"),
        (InvalidRequestError("line 7 is not JSON"), 1, "error: line 7 is not JSON"),
        (KeyboardInterrupt(), 130, "stopped"),
    ],
)
def test_an_error_is_a_line_and_a_status(
    error: BaseException, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, ending():
        raise error
    assert ended.value.exit_code == status
    assert capsys.readouterr().err.splitlines() == [line]


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (KeyboardInterrupt(), ["stopped: the results are in /tmp/x"]),
        (CommandError("no connection"), ["error: no connection", "the results are in /tmp/x"]),
    ],
)
def test_a_resumable_command_says_what_is_kept(
    error: BaseException, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit), ending(), resumable("the results are in /tmp/x"):
        raise error
    assert capsys.readouterr().err.splitlines() == lines
