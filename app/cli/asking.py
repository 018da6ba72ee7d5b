"""Asks a service about the rows of files; keeps the results in a journal, so that a run goes on."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from app.cli.comparisons import Item
from app.cli.console import failure, progress_bar
from app.cli.service_client import ServiceClient
from app.core.errors import ScopeJudgeError, UnavailableError
from app.files.journal import Journal
from app.files.shapes import OPTIONAL
from app.files.writing import replace_file

ROWS_PER_REQUEST = 100
# Errors of the run and not of a row: the service, or its calibration, must be mended first.
_OF_RUN = frozenset(
    {"calibration_not_found", "judge_mismatch", "forbidden", "store_corrupt", "labels_missing"}
)
_UNCALIBRATED = ". Here: scope-judge calibrate FILE, or --no-alpha"

Results = dict[str, dict[str, Any]]


class Run(NamedTuple):
    """How a run asks, and where it keeps its results.

    Args:
        out: File that the run writes at its end, no link; the journal is beside it.
        overwrite: Drop an unfinished run with other settings.
        batch_size: Largest number of comparisons in one request.
        settings: More that the results depend on, by name.
        dated: Keep the time of each judgment as its `timestamp`.
    """

    out: Path
    overwrite: bool
    batch_size: int
    settings: Mapping[str, Any] = MappingProxyType({})
    dated: bool = False


def judged_with_journal(
    items: Sequence[Item],
    criterion: Mapping[str, Any],
    service: ServiceClient,
    run: Run,
    write: Callable[[Results], None],
) -> tuple[Results, int]:
    """Judges what an earlier run has not judged, and writes the output.

    Args:
        items: All rows.
        criterion: Fields of the criterion that the command line sets.
        service: The service.
        run: How the run asks, and where it keeps its results.
        write: Writes the output from all results; the journal is removed after it.

    Returns:
        The results by key, and the number of comparisons that were asked for now.

    Raises:
        InvalidRequestError: The journal belongs to a run with other settings.
        typer.Exit: The service cannot be used, or the output cannot be written.
    """
    results = unaskable(items)
    settings = {"judge": service.fingerprint, "criterion": dict(criterion), **run.settings}
    unfinished = run.out.with_name(f"{run.out.name}.partial")
    with Journal(unfinished, settings, replace=run.overwrite) as journal:
        results |= journal.results
        known = len(results)
        # Results are written and synced while the service works on the next request.
        with ThreadPoolExecutor(1) as writer:
            written: Future[None] | None = None
            for answered in answers(items, criterion, service, results, run.batch_size):
                if run.dated:
                    answered = _dated(answered)
                if written is not None:
                    written.result()
                written = writer.submit(journal.append, answered.items())
                results |= answered
            if written is not None:
                written.result()
        write(results)
        journal.remove()
    return results, len(results) - known


def _dated(answered: Results) -> Results:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {key: {**result, "timestamp": now} for key, result in answered.items()}


def unaskable(items: Iterable[Item]) -> Results:
    """The results of the rows without a comparison: their errors."""
    from app.wire.problems import problem_of

    return {
        item.key: {"error": problem_of(item.fields).model_dump(mode="json", exclude_none=True)}
        for item in items
        if isinstance(item.fields, ScopeJudgeError)
    }


def answers(
    items: Sequence[Item],
    criterion: Mapping[str, Any],
    service: ServiceClient,
    known: Mapping[str, Any],
    batch_size: int,
) -> Iterator[Results]:
    """Yields the results of the items that are not known, some at a time.

    Raises:
        typer.Exit: The service does not answer for too long, or an error is not of a row.
    """
    asked = {item.key: item.fields for item in items if item.key not in known}
    total = len({item.key for item in items})
    size = min(batch_size, service.max_batch)
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


def write_all(out: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replaces a file as a whole.

    Raises:
        InvalidRequestError: The name asks for an unknown format.
        typer.Exit: The file cannot be written.
    """
    try:
        replace_file(out, rows)
    except OSError as exc:
        raise failure(
            f"{out} cannot be written: {exc.strerror}; no result is lost, and the same command "
            "goes on"
        ) from None


@cache
def _passing() -> frozenset[str]:
    """Codes of the errors after which the same comparison may get a judgment later."""
    from app.wire.problems import STATUS

    return frozenset(error.code for error in STATUS if issubclass(error, UnavailableError))


def _check_run(fields: Sequence[Any], results: Iterable[Mapping[str, Any]]) -> None:
    """Ends the run if an error is not of a row: as a result it would be kept for good."""
    for asked, result in zip(fields, results, strict=True):
        error = result.get("error", {})
        # Which labels are needed depends on the whole criterion, which a row may have of its own.
        own = OPTIONAL if error.get("code") == "labels_missing" else ("calibration",)
        if error.get("code") in _OF_RUN and not any(name in asked for name in own):
            hint = "" if error["code"] != "calibration_not_found" else _UNCALIBRATED
            raise failure(f"{error['detail']}{hint}")
