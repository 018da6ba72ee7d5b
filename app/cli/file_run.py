"""Judges the rows of files with a running service; a run that was stopped goes on where it was."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape

from app.cli.comparisons import Item, read_items
from app.cli.console import console, failure, progress_bar
from app.cli.output_file import check_output
from app.cli.service_client import ServiceClient, connected
from app.cli.summary import print_summary
from app.core.errors import ScopeJudgeError, UnavailableError
from app.files.journal import Journal
from app.files.reading import files_of
from app.files.results import OutputColumns
from app.files.shapes import Shape
from app.files.writing import json_line, replace_file

ROWS_PER_REQUEST = 100
# Errors of the run and not of a row: the service, or its calibration, must be mended first.
_OF_RUN = frozenset({"calibration_not_found", "judge_mismatch", "forbidden", "store_corrupt"})


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
    try:
        items = read_items(inputs, options.shape, labelled=False)
        check_output(options.out, files_of(inputs), overwrite=options.overwrite)
        # Connected last, so that a wrong file is reported first.
        with connected(url, patience_s=patience_s, otherwise=options.otherwise) as service:
            results, asked = _judged(items, criterion, options, service)
    except ScopeJudgeError as exc:
        raise failure(exc.detail) from None
    except KeyboardInterrupt:
        kept = "" if options.out is None else f"; the same command goes on with {options.out}"
        console.print(f"[yellow]stopped[/]{escape(kept)}", highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None
    found = [results[item.key] for item in items]
    places = [item.row.place for item in items]
    print_summary(found, places, asked=asked, seconds=time.monotonic() - begun)
    failed = sum("error" in result for result in found)
    if failed and not options.may_fail:
        raise failure(f"{failed} of {len(found)} rows got no judgment; see their `error`")


def _judged(
    items: Sequence[Item],
    criterion: Mapping[str, Any],
    options: FileOptions,
    service: ServiceClient,
) -> tuple[dict[str, dict[str, Any]], int]:
    """Judges what is not judged yet and writes all results.

    Returns:
        The results by key, and the number of comparisons that were asked for now.
    """
    taken = {column for item in items for column in item.row.fields}
    columns = OutputColumns(taken, flat=options.flat)
    row = partial(_row, columns=columns, texts=options.keep_texts)
    results = {item.key: _error(item) for item in items if isinstance(item.fields, ScopeJudgeError)}
    if options.out is None:
        printed = 0
        for answered in _answers(items, criterion, options, service, results):
            results |= answered
            printed = _print_ready(items, results, row, printed)
        _print_ready(items, results, row, printed)
        return results, len(results)
    out = options.out.resolve()
    settings = {"judge": service.fingerprint, "criterion": dict(criterion)}
    unfinished = out.with_name(f"{out.name}.partial")
    with Journal(unfinished, settings, replace=options.overwrite) as journal:
        results |= journal.results
        known = len(results)
        # Results are written and synced while the service works on the next request.
        with ThreadPoolExecutor(1) as writer:
            written: Future[None] | None = None
            for answered in _answers(items, criterion, options, service, results):
                if written is not None:
                    written.result()
                written = writer.submit(journal.append, answered.items())
                results |= answered
            if written is not None:
                written.result()
        _write(out, [row(item, results[item.key]) for item in items])
        journal.remove()
    return results, len(results) - known


@cache
def _passing() -> frozenset[str]:
    """Codes of the errors after which the same comparison may get a judgment later."""
    from app.wire.problems import STATUS

    return frozenset(error.code for error in STATUS if issubclass(error, UnavailableError))


def _error(item: Item) -> dict[str, Any]:
    from app.wire.problems import problem_of

    assert isinstance(item.fields, ScopeJudgeError)
    return {"error": problem_of(item.fields).model_dump(mode="json", exclude_none=True)}


def _answers(
    items: Sequence[Item],
    criterion: Mapping[str, Any],
    options: FileOptions,
    service: ServiceClient,
    known: Mapping[str, Any],
) -> Iterator[dict[str, dict[str, Any]]]:
    """Yields the results of the items that are not known, some at a time."""
    asked = {item.key: item.fields for item in items if item.key not in known}
    total = len({item.key for item in items})
    size = min(options.batch_size, service.max_batch)
    with progress_bar() as progress:
        task = progress.add_task("judging", total=total, completed=total - len(asked))
        keys = list(asked)
        for start in range(0, len(keys), size):
            some = keys[start : start + size]
            fields = [asked[key] for key in some]
            answered = dict(zip(some, service.judge(fields, criterion, _passing()), strict=True))
            _check_run(fields, answered.values())
            progress.advance(task, len(some))
            yield answered


def _check_run(fields: Sequence[Any], results: Iterable[Mapping[str, Any]]) -> None:
    """Ends the run if an error is not of a row: as a result it would be kept for good."""
    for asked, result in zip(fields, results, strict=True):
        error = result.get("error", {})
        if error.get("code") in _OF_RUN and "calibration" not in asked:
            raise failure(error["detail"])


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


def _write(out: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    try:
        replace_file(out, rows)
    except OSError as exc:
        raise failure(
            f"{out} cannot be written: {exc.strerror}; no result is lost, and the same command "
            "goes on"
        ) from None
