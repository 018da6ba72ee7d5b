"""The parts of a table of the report, and the format of its numbers."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

NONE = "\N{EN DASH}"

# "best" of its column; "over" alpha; "within": calibrated and tested on the same data set.
Mark = Literal["", "best", "over", "within", "over within"]


class Cell(NamedTuple):
    """One number of a table.

    Args:
        text: The number as printed.
        beside: Text in grey next to the number, such as the paper's number.
        mark: Highlighting of the cell.
        why: Reason for a missing number.
    """

    text: str
    beside: str = ""
    mark: Mark = ""
    why: str = ""


class Heading(NamedTuple):
    """The heading of a row, a column or several columns."""

    text: str
    why: str = ""
    spans: int = 1
    beside: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A row of a table."""

    heading: Heading
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table as the page shows it.

    Args:
        caption: Caption of the table.
        corner: Heading of the column of row headings.
        spanning: Upper row of headings; () for a single row of headings.
        columns: Heading of each cell of a line.
        bodies: Groups of lines, each with a title; "" for none.
        notes: Notes below the table.
    """

    caption: str
    corner: str
    spanning: tuple[Heading, ...]
    columns: tuple[Heading, ...]
    bodies: tuple[tuple[str, tuple[Line, ...]], ...]
    notes: tuple[str, ...] = ()

    @property
    def legend(self) -> str:
        """The meaning of the columns, for paper: a screen shows it where the mouse is."""
        meanings = {column.text: column.why for column in self.columns if column.why}
        return "; ".join(f"{text}: {why}" for text, why in meanings.items())


def number(value: float | None, *, signed: bool = False) -> str:
    """Three decimals, never "-0.000"; a dash for a missing number."""
    if value is None:
        return NONE
    return f"{round(value, 3) + 0.0:{'+' if signed else ''}.3f}"


def share(value: float) -> str:
    """A percentage with one decimal."""
    return f"{100 * value:.1f}%"


def level(alpha: float) -> str:
    """An alpha or a share with two decimals, or with more if it has more."""
    return f"{alpha:.2f}" if round(alpha, 2) == alpha else f"{alpha:g}"


def milliseconds(seconds: float) -> str:
    """Three digits, or all digits of a whole number; never an exponent."""
    value = 1000 * seconds
    return f"{value:.3g}" if value < 99.95 else f"{value:,.0f}"


def pair(first: float | None, second: float | None) -> str:
    """Two numbers in one cell."""
    return f"{number(first)} / {number(second)}"


def in_paper(figure: str) -> str:
    """The paper's number as printed beside ours; "" if the paper has none."""
    return f"paper {figure}" if figure != NONE else ""


def over(risk: float, alpha: float) -> Literal["over", ""]:
    """The mark of a risk that exceeds alpha after both are rounded to three decimals."""
    return "over" if round(risk, 3) > round(alpha, 3) else ""


def why_notes(lines: Iterable[Line]) -> tuple[str, ...]:
    """A note that explains the dashes, for readers who cannot hover over them."""
    reasons = dict.fromkeys(cell.why for line in lines for cell in line.cells if cell.why)
    return (f"{NONE} stands for: {'; '.join(reasons)}.",) if reasons else ()
