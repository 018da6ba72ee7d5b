"""A table of the report, as Markdown and as CSV."""

import csv
import io
from dataclasses import dataclass

from app.core.printable import printable_line

NONE = "\N{EN DASH}"

# A missing number is None. CSV has numbers with 6 significant digits, Markdown with 3 decimals.
Cell = str | int | float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table with one row of headings.

    Args:
        name: Name of its CSV file.
        title: Title of the table.
        columns: Headings.
        rows: As many cells in each row.
        note: Meaning of the columns; "" if the headings say it.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        """The table below its title."""
        lines = [self.columns, ("---",) * len(self.columns)]
        lines += [tuple(_in_markdown(cell) for cell in row) for row in self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return "\n\n".join(filter(None, [f"## {self.title}", table, self.note]))

    def csv(self) -> str:
        """The table with a row of headings."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_in_csv(cell) for cell in row] for row in self.rows)
        return file.getvalue()


def number(value: float | None) -> str:
    """Three decimals, never "-0.000"; a dash for a missing number."""
    return NONE if value is None else f"{round(value, 3) + 0.0:.3f}"


def level(alpha: float) -> str:
    """An alpha or a share with two decimals, or with more if it has more."""
    return f"{alpha:.2f}" if round(alpha, 2) == alpha else f"{alpha:g}"


def as_text(name: str) -> str:
    """A name of a data set or a judge, which may hold anything, as text in Markdown."""
    shown = printable_line(name).replace("\\", "\\\\").replace("|", "\\|")
    return shown.replace("&", "&amp;").replace("<", "&lt;")


def _in_markdown(cell: Cell) -> str:
    return as_text(str(cell)) if isinstance(cell, str | int) else number(cell)


def _in_csv(cell: Cell) -> str | int:
    if isinstance(cell, float):
        return f"{cell:.6g}"
    return "" if cell is None else cell
