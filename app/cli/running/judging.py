"""Judges the rows of files with a running service, and writes a row with a result for each."""

import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli.connection import connected
from app.cli.console import CommandError, say
from app.cli.running.coverage import (
    judged_pairs,
    print_contradictions,
    print_ties,
    print_unlike,
    unlike_sets,
)
from app.cli.running.drawn import keep_drawn
from app.cli.running.rows import Item, check_output, delimiter_of, is_table, read_items, write_all
from app.cli.running.run import (
    Ask,
    Finished,
    Run,
    answered,
    asked_of,
    beside,
    error_of,
    finished,
    is_judged,
    unaskable,
)
from app.cli.summary import print_summary
from app.core.errors import StartupError
from app.files.reading import InputFormat, files_of
from app.files.results import with_result
from app.files.shapes import CALIBRATION
from app.files.writing import json_line

# The help of a command needs its options only: functions import the client and Ray.
if TYPE_CHECKING:
    from app.fleet.bulk import RayJudges
    from scope_judge import ItemError, Judgment, ScopeClient

# Errors of the run and not of a row: the service or its calibration must be repaired first.
_OF_RUN = frozenset(
    {"calibration_not_found", "judge_mismatch", "forbidden", "store_corrupt", "labels_missing"}
)
# Statuses of errors after which the same comparison may get a judgment later.
_PASSING = (429, 503, 504)
_UNCALIBRATED = ". Here: scope-judge calibrate FILE --name NAME, or --no-alpha"
# Name of the bundled judge.
_TOY = "demo"
# The end of the message if the output cannot be written.
NOTHING_LOST = "; no result is lost: rerun the command to resume"


@dataclass(frozen=True, kw_only=True, slots=True)
class FileOptions:
    """How a run reads and writes.

    Args:
        form: How the rows are written.
        out: File of the results; None for stdout.
        overwrite: Replace a file of results, and drop an unfinished run with other settings.
        flat: Write the fields of a judgment beside the columns of the row; None for tables only.
        excel: Write a table that Excel opens.
        keep_texts: Keep the columns that the comparison was made of.
        only_verdicts: Write only the rows with a verdict.
        otherwise: Alternative to name in the message if there is no service.
        may_fail: Whether the run succeeds although rows have no judgment.
    """

    form: InputFormat = field(default_factory=InputFormat)
    out: Path | None = None
    overwrite: bool = False
    flat: bool | None = None
    excel: bool = False
    keep_texts: bool = True
    only_verdicts: bool = False
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
    """Judges all rows of files, in order."""
    judges = connected(url, patience_s=patience_s, otherwise=options.otherwise)
    _judge_files(inputs, criterion, options, judges)


def judge_files_on_ray(
    inputs: Sequence[Path],
    criterion: Mapping[str, Any],
    options: FileOptions,
    *,
    address: str | None,
    replicas: int | None,
    batch_size: int,
) -> None:
    """Judges all rows of files with the judge of the settings, loaded on a Ray cluster."""
    # Imported late: Ray takes seconds.
    from app.settings import read_settings

    try:
        from app.fleet.bulk import joined
    except ImportError:
        raise StartupError("Ray is not installed: install scope-judge[ray]") from None
    try:
        settings = read_settings()
    except ValueError as exc:
        raise CommandError(str(exc)) from None
    judges = joined(address, settings, criterion, replicas=replicas, batch_size=batch_size)
    _judge_files(inputs, criterion, options, judges)


def _judge_files(
    inputs: Sequence[Path],
    criterion: Mapping[str, Any],
    options: FileOptions,
    judges: "AbstractContextManager[ScopeClient | RayJudges]",
) -> None:
    # Imported late: the help needs no client.
    from scope_judge import ScopeClient

    begun = time.monotonic()
    items = read_items(inputs, options.form)
    check_output(options.out, files_of(inputs), overwrite=options.overwrite)
    flat = is_table(options.out) if options.flat is None else options.flat
    taken = {name for item in items for name in item.row.fields}
    row = partial(_row, taken=taken, flat=flat, texts=options.keep_texts)

    def rows_of(some: Sequence[Item], results: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [
            row(item, results[item.key])
            for item in some
            if not options.only_verdicts or _has_verdict(results[item.key])
        ]

    # Connected last, so that a wrong file is reported first.
    with judges as service:
        if isinstance(service, ScopeClient):
            info = service.info()
            fingerprint, ask = info.fingerprint, judging(service, criterion)
            if info.judge == _TOY and CALIBRATION not in criterion:
                say(
                    ("note:", "yellow"),
                    " the demo judge is a toy that knows ten small tasks, and its own set "
                    "`default` decides what it accepts: name yours with --calibration",
                )
        else:
            fingerprint, ask = service.fingerprint, service.ask
        if options.out is None:
            done = _printed(items, ask, rows_of)
        else:
            # A link stays, and its target is replaced.
            out = options.out.resolve()
            run = run_into(out, fingerprint, criterion, overwrite=options.overwrite)
            with finished(items, ask, run) as done:
                rows = rows_of(items, done.results)
                keep_drawn(out, items, done.results, kept=NOTHING_LOST)
                delimiter = delimiter_of(item.row for item in items)
                write_all(out, rows, kept=NOTHING_LOST, excel=options.excel, delimiter=delimiter)
        pairs = judged_pairs(items, done.results)
        # Nothing tells the score distribution of a set without a service.
        unlike = unlike_sets(service, pairs) if isinstance(service, ScopeClient) else []
    results = [done.results[item.key] for item in items]
    places = [item.row.place for item in items]
    print_contradictions(pairs)
    print_ties(pairs)
    print_summary(results, places, asked=done.asked, seconds=time.monotonic() - begun)
    print_unlike(unlike)
    failed = sum(not is_judged(result) for result in results)
    if failed and not options.may_fail:
        raise CommandError(f"{failed} of {len(results)} rows got no judgment; see their `error`")


def run_into(
    out: Path,
    fingerprint: str,
    criterion: Mapping[str, Any],
    *,
    overwrite: bool,
    **settings: Any,
) -> Run:
    """A run that judges, and writes a file at its end."""
    return Run(
        journal=beside(out),
        settings={"judge": fingerprint, "criterion": dict(criterion), **settings},
        overwrite=overwrite,
        kept=f"rerun the command to resume {out}",
    )


def judging(client: "ScopeClient", criterion: Mapping[str, Any], *, dated: bool = False) -> Ask:
    """Asks a service for judgments.

    Args:
        client: The client of the service.
        criterion: Fields of the criterion that the command line sets.
        dated: Keep the time of each judgment as its `timestamp`.
    """

    def ask(comparisons: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        results = client.judge_many(comparisons.values(), **criterion)
        for (key, fields), outcome in zip(comparisons.items(), results, strict=True):
            result = _checked(fields, outcome)
            if dated:
                result["timestamp"] = datetime.now(UTC).isoformat(timespec="seconds")
            yield key, result

    return ask


def _checked(fields: Mapping[str, Any], outcome: "Judgment | ItemError") -> dict[str, Any]:
    """The JSON of a result; an error that is not one of the row ends the run."""
    # Imported late: the help needs no client.
    from scope_judge import ItemError

    if not isinstance(outcome, ItemError):
        return asdict(outcome)
    error = outcome.error
    if error.status in _PASSING:
        raise CommandError(f"{error.code}: {error.detail}")
    if error.code in _OF_RUN and CALIBRATION not in fields:
        hint = "" if error.code != "calibration_not_found" else _UNCALIBRATED
        raise CommandError(f"{error.detail}{hint}")
    return error_of(error)


def _row(
    item: Item, result: Mapping[str, Any], *, taken: Collection[str], flat: bool, texts: bool
) -> dict[str, Any]:
    """A row of the output: the columns of the input, and the result."""
    kept = item.row.fields
    if not texts:
        kept = {name: value for name, value in kept.items() if name not in item.shape.texts}
    # The row itself has the id.
    shown = {name: value for name, value in result.items() if name != "id"}
    return with_result(kept, shown, taken=taken, flat=flat)


def _has_verdict(result: Mapping[str, Any]) -> bool:
    return is_judged(result) and result["verdict"] != "abstain"


def _printed(items: Sequence[Item], ask: Ask, rows_of: Callable[..., Any]) -> Finished:
    """Prints each row in order, as soon as its result is there."""
    results = unaskable(items)
    refused = len(results)
    waiting = deque(items)
    for key, result in answered(asked_of(items), ask, results):
        results[key] = result
        while waiting and waiting[0].key in results:
            for row in rows_of([waiting.popleft()], results):
                print(json_line(row))
        sys.stdout.flush()
    for row in rows_of(waiting, results):
        print(json_line(row))
    return Finished(results=results, asked=len(results) - refused)
