"""Judges the rows of files with a running service; a run that was stopped goes on where it was."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape

from app.cli.asking import (
    ROWS_PER_REQUEST,
    Results,
    Run,
    answers,
    judged_with_journal,
    unaskable,
    write_all,
)
from app.cli.comparisons import Item, read_items
from app.cli.console import console, failure
from app.cli.output_file import check_output
from app.cli.service_client import ServiceClient, connected
from app.cli.summary import print_summary
from app.core.errors import ScopeJudgeError
from app.files.reading import files_of
from app.files.results import OutputColumns
from app.files.shapes import Shape
from app.files.writing import json_line


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How a run reads and writes.

    Args:
        shape: How the rows hold their comparison; None to recognise it for each file.
        out: File of the results; None for stdout.
        overwrite: Replace a file of results, and drop an unfinished run with other settings.
        flat: Write the fields of a judgment beside the columns of the row.
        keep_texts: Keep the columns that the comparison was made of.
        batch_size: Largest number of comparisons in one request.
        otherwise: Another way, for the message, if there is no service.
        may_fail: Whether rows without a judgment are no failure of the run.
    """

    shape: Shape | None = None
    out: Path | None = None
    overwrite: bool = False
    flat: bool = False
    keep_texts: bool = True
    batch_size: int = ROWS_PER_REQUEST
    otherwise: str = ""
    may_fail: bool = False


def judge_files(
    inputs: Sequence[Path],
    criterion: Mapping[str, Any],
    options: FileOptions,
    *,
    url: str,
    patience_s: float,
) -> None:
    """Judges all rows of files, in order.

    Args:
        inputs: Files, folders and patterns.
        criterion: Fields of the criterion that the command line sets.
        options: How the run reads and writes.
        url: Address of the service.
        patience_s: How long a request is repeated while the service does not answer.

    Raises:
        typer.Exit: The run was stopped, a file cannot be read or written, the service cannot be
            used, or a row got no judgment.
    """
    begun = time.monotonic()
    with stoppable(options.out):
        items = read_items(inputs, options.shape, labelled=False)
        check_output(options.out, files_of(inputs), overwrite=options.overwrite)
        # Connected last, so that a wrong file is reported first.
        with connected(url, patience_s=patience_s, otherwise=options.otherwise) as service:
            results, asked = _judged(items, criterion, options, service)
    found = [results[item.key] for item in items]
    places = [item.row.place for item in items]
    print_summary(found, places, asked=asked, seconds=time.monotonic() - begun)
    failed = sum("error" in result for result in found)
    if failed and not options.may_fail:
        raise failure(f"{failed} of {len(found)} rows got no judgment; see their `error`")


@contextmanager
def stoppable(out: Path | None) -> Iterator[None]:
    """Ends the command with a message at an error of its input, and at Ctrl-C.

    Args:
        out: The file that the same command goes on with; None if nothing is kept.
    """
    try:
        yield
    except ScopeJudgeError as exc:
        raise failure(exc.detail) from None
    except KeyboardInterrupt:
        kept = "" if out is None else f"; the same command goes on with {out}"
        console.print(f"[yellow]stopped[/]{escape(kept)}", highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None


def _judged(
    items: Sequence[Item],
    criterion: Mapping[str, Any],
    options: FileOptions,
    service: ServiceClient,
) -> tuple[Results, int]:
    """Judges what is not judged yet and writes all results.

    Returns:
        The results by key, and the number of comparisons that were asked for now.
    """
    taken = {column for item in items for column in item.row.fields}
    columns = OutputColumns(taken, flat=options.flat)
    row = partial(_row, columns=columns, texts=options.keep_texts)
    if options.out is not None:
        # A link stays, and its target is replaced.
        out = options.out.resolve()
        return judged_with_journal(
            items,
            criterion,
            service,
            Run(out, options.overwrite, options.batch_size),
            lambda results: write_all(out, [row(item, results[item.key]) for item in items]),
        )
    results, printed = unaskable(items), 0
    for answered in answers(items, criterion, service, results, options.batch_size):
        results |= answered
        printed = _print_ready(items, results, row, printed)
    _print_ready(items, results, row, printed)
    return results, len(results)


def _row(item: Item, result: Mapping[str, Any], columns: OutputColumns, *, texts: bool) -> Any:
    """A row of the output: the columns of the input, and the result."""
    kept = item.row.fields
    if not texts:
        kept = {name: value for name, value in kept.items() if name not in item.shape.texts}
    # The row itself has the id.
    return columns.row(kept, {name: value for name, value in result.items() if name != "id"})


def _print_ready(
    items: Sequence[Item], results: Mapping[str, Any], row: Callable[..., Any], printed: int
) -> int:
    """Prints the rows whose results are there, in order, and returns how many were printed."""
    while printed < len(items) and items[printed].key in results:
        item = items[printed]
        print(json_line(row(item, results[item.key])))
        printed += 1
    sys.stdout.flush()
    return printed
