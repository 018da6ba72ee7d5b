"""No name from outside steers the terminal, forges a line, or is taken for markup."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.table import Table
from typer.testing import CliRunner

import app.cli
from app.cli import app as commands
from app.cli import console
from app.cli.console import print_cells, print_error, print_table, say

# A title for the terminal, a color in one byte, an override of the order, markup of Rich with a
# link and a faulty end, the code of an emoji, half of a surrogate pair, and a line of its own.
STEERING = "\x1b]0;owned\x07\x9b31m\x7f\u202e\u2066[red]x[/red][/][link=http://x.y]z:warning:\udc80"
EVIL = f"{STEERING}<img src=x>\r\nFORGED\tline"
# Sequences with which Rich draws styles; the hostile text has none of them.
DRAWN = re.compile(r"\x1b\[[\d;]*m|\r(?=\n)")


def check(shown: str) -> None:
    plain = DRAWN.sub("", shown)
    check_steering(plain)
    # Neither was the markup taken for markup, nor the code for an emoji.
    text = re.sub(r"[\s│┃]", "", plain)
    assert "owned" in text
    assert "[red]x[" in text
    assert ":warning:" in text


def check_steering(plain: str) -> None:
    steering = {char for char in plain if not char.isprintable()} - {"\n", "\t"}
    assert not steering, ascii(plain)
    assert not re.search("^FORGED", plain, re.MULTILINE), ascii(plain)


def table() -> None:
    made = Table(EVIL)
    made.add_row(EVIL)
    print_table(made, title=EVIL)


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize(
    "shown",
    [
        lambda: say((EVIL, "bold"), EVIL),
        lambda: print_error(EVIL),
        lambda: print_cells([EVIL], [[EVIL]]),
        table,
    ],
)
def test_a_hostile_name_is_printed_as_text(
    shown: Callable[[], None],
    terminal: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if terminal:
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
        monkeypatch.setattr(console, "on_a_terminal", lambda: True)
    shown()
    check("".join(capsys.readouterr()))


def test_a_file_whose_name_is_taken_for_an_option_is_refused_as_text() -> None:
    result = CliRunner().invoke(commands, ["judge", f"--{EVIL.replace('/', '')}"])
    assert result.exit_code == 2
    check_steering(DRAWN.sub("", result.output))


def test_commands_print_only_json_keys_and_what_the_console_has_made_safe() -> None:
    """Everything else goes through `app.cli.console`."""
    printed = {
        ast.unparse(node.args[0])
        for file in Path(app.cli.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
    }
    others = {call for call in printed if not call.startswith(("json_line(", "json.dumps("))}
    assert others == {"key", "'\\t'.join(map(printable_line, cells))"}
