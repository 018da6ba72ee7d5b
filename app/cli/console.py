"""Output that the commands share: sentences, errors and tables.

All of it is plain text. A name from outside, such as that of a column or a model, has neither
markup nor characters that steer a terminal.

Lines that programs read, and paths, are never cut at the width of the terminal.
"""

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from app.core.printable import printable, printable_line

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge.records import Threshold


class _PlainConsole(Console):
    """A console that shows each text as it is, with escapes for steering characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """The text of a line or a cell, in which a line end is an escape, too."""
        return super().render_str(printable_line(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """All output passes here; only Rich's own control codes stay."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


# Progress and notes go to stderr, so that a pipe reads only results from stdout.
console = _PlainConsole(stderr=True)
stdout = _PlainConsole()
# More than any table is wide.
_UNLIMITED = 100_000
# A cell that lists names is broken after so many characters.
_LIST_WIDTH = 40
# Begins each further line of a text, so that a name with a line end cannot forge a line.
_CONTINUED = "\n  "


class CommandError(Exception):
    """A command cannot continue; `app.cli.stopping` prints the reason and ends it with status 1.

    It does the same with errors of the core and of the client, so functions of this package say
    nothing of what they raise.
    """

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


def print_error(message: str) -> None:
    """Prints the reason why a command ends."""
    console.print(_words(("error:", "bold red"), f" {message}"), soft_wrap=True)


def say(*parts: str | tuple[str, str], output: Console = console) -> None:
    """Prints a sentence; lines break between words on a terminal, and nowhere in a pipe.

    A word longer than a line, such as a path, is not cut.
    """
    words = _words(*parts)
    # As an option of `print`, it would also keep lines whole.
    words.overflow = "ignore"
    for line in words.wrap(output, output.width) if output.is_terminal else [words]:
        line.rstrip()
        output.print(line, soft_wrap=True)


def _words(*parts: str | tuple[str, str]) -> Text:
    styled = ((part, "") if isinstance(part, str) else part for part in parts)
    return Text.assemble(
        *((printable(text).replace("\n", _CONTINUED), style) for text, style in styled)
    )


def print_table(table: Table, *, title: str = "", output: Console = stdout) -> None:
    """Prints a table in whole rows, which a terminal may wrap, under its title."""
    if title:
        say((title, "italic"), output=output)
    options = output.options.update(width=_UNLIMITED)
    width = Measurement.get(output, options, table).maximum
    _PlainConsole(file=output.file, width=width).print(table)


def print_cells(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[str] = (),
) -> None:
    """Prints rows to stdout: as a table with numbers to the right, or to a pipe, tab-separated."""
    if not on_a_terminal():
        for cells in rows:
            print("\t".join(map(printable_line, cells)))
        return
    table = Table()
    for heading in headings:
        table.add_column(
            heading,
            overflow="fold",
            justify="right" if heading in right else "left",
            max_width=_LIST_WIDTH,
        )
    for cells in rows:
        table.add_row(*cells)
    print_table(table)


def ask(question: str, *, yes: bool, otherwise: str) -> None:
    """Asks whether a change is to be made, unless `yes` was given; continues only after a yes.

    If nobody can be asked, or the answer is no, the command ends with the message `otherwise`.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(
            f"{otherwise}: stdin is not a terminal, so nobody can be asked; give --yes"
        )
    if not typer.confirm(printable_line(question), err=True):
        raise CommandError(otherwise)


def on_a_terminal() -> bool:
    """Whether people read stdout."""
    return sys.stdout.isatty()


def evidence(value: float) -> str:
    """Evidence for people: beyond 1000 its size says nothing more."""
    return "more than 1000" if value > 1000.0 else f"{value:.4g}"


def print_thresholds(
    title: str,
    rows: "Sequence[Threshold]",
    *,
    more: Sequence[str] = (),
    output: Console = console,
) -> None:
    """Prints thresholds; `more` has the labels that are missing for each of them, in words."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    headings = ["guarantee", "alpha", "threshold", "coverage", "empirical risk"]
    for heading in [*headings, *(["more labels"] if more else [])]:
        table.add_column(heading, justify="left" if heading == "guarantee" else "right")
    for number, row in enumerate(rows):
        delta = f", delta {row.delta:g}" if row.delta is not None else ""
        table.add_row(
            row.guarantee + delta,
            f"{row.alpha:g}",
            threshold_cell(row),
            f"{row.coverage:.3f}",
            "" if row.empirical_risk is None else f"{row.empirical_risk:.3f}",
            *more[number : number + 1],
        )
    print_table(table, title=title, output=output)


def threshold_cell(row: "Threshold") -> str:
    """The threshold of a row, or the reason why it has none."""
    if row.threshold is not None:
        return f"{row.threshold:.6f}"
    return "labels missing" if row.labels_missing else "infeasible"
