"""`scope-judge battles --schedule`: the pairs of models to judge next, from the rows so far."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.cli.asking import write_all
from app.cli.console import failure, print_sentence
from app.core.errors import InvalidRequestError
from app.ratings.results import Settings
from app.ratings.rows import read_battles
from app.ratings.schedule import schedule_of


def print_schedule(inputs: Sequence[Path], count: int, out: Path | None) -> None:
    """Prints which pairs of models the next battles should be of.

    Args:
        inputs: Rows of `scope-judge battles`.
        count: Number of battles.
        out: File for the pairs; it is replaced. None to print only.

    Raises:
        typer.Exit: The rows cannot be read, or the file cannot be written.
    """
    try:
        found = schedule_of(read_battles(inputs)[0], count)
        if out is not None:
            write_all(out, [pair._asdict() for pair in found.pairs])
    except InvalidRequestError as exc:
        raise failure(exc.detail) from None
    points = Settings().points
    table = Table(title=f"the next {count} battles", title_justify="left")
    for heading in ("model_a", "model_b"):
        table.add_column(heading)
    table.add_column("battles", justify="right")
    for pair in found.pairs:
        table.add_row(escape(pair.model_a), escape(pair.model_b), str(pair.battles))
    stdout = Console(highlight=False)
    stdout.print(table)
    print_sentence(
        f"Mean standard error of a rating: {points * found.error_now:.1f} points now, "
        f"{points * found.error_then:.1f} after these battles, {points * found.error_evenly:.1f} "
        "if they were spread evenly over all pairs."
    )
