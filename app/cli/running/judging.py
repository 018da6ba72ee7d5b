"""Judges the rows of files with a running service, and writes a row with a result for each."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli.console import CommandError, say
from app.cli.running.coverage import (
    judged_pairs,
    print_contradictions,
    print_unlike,
)
from app.cli.running.rows import (
    Ask,
    Item,
    Results,
    answered,
    check_output,
    error_of,
    finished,
    is_judged,
    read_items,
    unaskable,
    write_all,
)
from app.cli.summary import infeasible_in_words, print_summary
from app.files.reading import DRAWN_ENDING, InputFormat, files_of, read_rows
from app.files.results import with_result
from app.files.shapes import CALIBRATION, REQUIRED
from app.files.writing import format_of, json_line

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
_OF_TOY = (
    " the demo judge is a toy that knows ten small tasks, and its own set `default` decides what "
    "it accepts: name yours with --calibration"
)
# The end of the message if the output cannot be written.
_NOTHING_LOST = "; no result is lost: rerun the command to resume"


def judge_files(
    inputs: Sequence[Path],
    criterion: Mapping[str, Any],
    judges: "AbstractContextManager[ScopeClient | RayJudges]",
    *,
    form: InputFormat,
    out: Path | None,
    overwrite: bool = False,
    only_verdicts: bool = False,
    may_fail: bool = False,
) -> None:
    """Judges all rows of files, in order, into a file or to stdout.

    Args:
        inputs: Files, folders and patterns.
        criterion: Fields of the criterion that the command line sets.
        judges: Opens what judges.
        form: How the rows are written.
        out: File of the results; None for stdout.
        overwrite: Replace a file of results, and drop an unfinished run with other settings.
        only_verdicts: Write only the rows with a verdict.
        may_fail: Whether the run succeeds although rows have no judgment.
    """
    items = read_items(inputs, form)
    check_output(out, files_of(inputs), overwrite=overwrite)
    taken = {name for item in items for name in item.row.fields}
    flat = out is not None and format_of(out) in ("csv", "tsv", "xlsx")

    def rows_of(some: Iterable[Item], results: Results) -> list[dict[str, Any]]:
        return [
            # The row itself has the id.
            with_result(
                item.row.fields,
                {name: value for name, value in results[item.key].items() if name != "id"},
                taken=taken,
                flat=flat,
            )
            for item in some
            if not only_verdicts or results[item.key].get("verdict") in ("A", "B")
        ]

    # Connected last, so that a wrong file is reported first.
    with judges as service:
        # Imported late: the help needs no client.
        from scope_judge import ScopeClient

        client: ScopeClient | None = None
        ask: Ask
        if not isinstance(service, ScopeClient):
            fingerprint, ask = service.fingerprint, service.ask
        else:
            client, info = service, service.info()
            fingerprint, ask = info.fingerprint, judging(service, criterion)
            # Without an alpha, no set decides.
            if info.judge == _TOY and CALIBRATION not in criterion and criterion != {"alpha": None}:
                say(("note:", "yellow"), _OF_TOY)
        if out is None:
            found = _printed(items, ask, rows_of)
        else:
            found = judged_into(
                out,
                items,
                ask,
                lambda results: rows_of(items, results),
                settings={"judge": fingerprint, "criterion": dict(criterion)},
                overwrite=overwrite,
            )
        results = [found[item.key] for item in items]
        pairs = judged_pairs(items, found)
        print_summary(results, [item.row.place for item in items])
        print_contradictions(pairs)
        print_unlike(client, pairs)
    if not may_fail:
        refuse_failed(results)


def judged_into(
    out: Path,
    items: Sequence[Item],
    ask: Ask,
    rows_of: Callable[[Results], Sequence[Mapping[str, Any]]],
    *,
    settings: Mapping[str, Any],
    overwrite: bool,
) -> Results:
    """Judges rows into a file that appears at the end; an interrupted run resumes.

    `rows_of` makes the rows of the file; `settings` are all that the results depend on beside their
    comparisons.
    """
    # A link stays, and its target is replaced.
    out = out.resolve()
    running = finished(
        items,
        ask,
        journal=out.with_name(f"{out.name}.partial"),
        settings=settings,
        overwrite=overwrite,
        kept=f"rerun the command to resume {out}",
    )
    with running as results:
        # CSV is written with the delimiter of CSV that was read.
        delimiters = (item.row.delimiter for item in items)
        delimiter = next((each for each in delimiters if each in (",", ";")), None)
        # Before the output, which ends the run.
        _keep_drawn(out, items, results)
        write_all(out, rows_of(results), kept=_NOTHING_LOST, delimiter=delimiter)
    return results


def _keep_drawn(out: Path, items: Iterable[Item], results: Results) -> None:
    """Writes the pairs of a run that were drawn for audits, with their texts, beside its output.

    A service may keep no texts, so what is lost here cannot be labeled. A row has the id and the
    texts alone, because people who label audits should know neither the verdicts nor the models.
    A pair that is in the file already stays as it is, because it may have been labeled there.
    """
    path = out.with_name(f"{out.name}{DRAWN_ENDING}")
    drawn = {
        audit["id"]: {"audit": audit["id"], **{name: item.fields[name] for name in REQUIRED}}
        for item in items
        if isinstance(item.fields, dict)
        if (audit := results[item.key].get("audit")) is not None
    }
    earlier = [row.fields for row in read_rows(path)] if drawn and path.exists() else []
    known = {row.get("audit") for row in earlier}
    new = [row for audit, row in drawn.items() if audit not in known]
    if new:
        write_all(path, [*earlier, *new], kept=_NOTHING_LOST)
    if drawn:
        say(
            f"{len(drawn)} pairs were drawn for audits: add a column label to {path}, and send it "
            "with `scope-judge audits label`"
        )


def refuse_failed(results: Sequence[Mapping[str, Any]]) -> None:
    """Ends the command with an error if a row has no judgment."""
    if failed := sum(not is_judged(result) for result in results):
        raise CommandError(
            f"{failed} of {len(results)} rows got no judgment; an example of each error is above"
        )


def judging(client: "ScopeClient", criterion: Mapping[str, Any], *, dated: bool = False) -> Ask:
    """Asks a service for judgments; `dated` keeps the time of each as its `timestamp`."""

    def ask(comparisons: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        results = client.judge_many(comparisons.values(), **criterion)
        for (key, fields), outcome in zip(comparisons.items(), results, strict=True):
            result = _checked(fields, outcome)
            if dated:
                result["timestamp"] = datetime.now(UTC).isoformat(timespec="seconds")
            yield key, result

    return ask


def _checked(fields: Mapping[str, Any], outcome: "Judgment | ItemError") -> dict[str, Any]:
    """The JSON of a result; what is wrong with the whole run, and not with the row, ends it."""
    # Imported late: the help needs no client.
    from scope_judge import ItemError, ScopeError

    if not isinstance(outcome, ItemError):
        alpha, used = outcome.alpha, outcome.calibration
        if outcome.reason == "infeasible" and alpha and used and CALIBRATION not in fields:
            # Every other row would abstain, too.
            detail = infeasible_in_words(alpha, outcome.delta, used.name, used.n)
            raise ScopeError(detail, code="infeasible", status=409)
        return asdict(outcome)
    error = outcome.error
    if error.status in _PASSING or (error.code in _OF_RUN and CALIBRATION not in fields):
        hint = "" if error.code != "calibration_not_found" else _UNCALIBRATED
        raise ScopeError(f"{error.detail}{hint}", code=error.code, status=error.status)
    return error_of(error)


def _printed(items: Sequence[Item], ask: Ask, rows_of: Callable[..., Any]) -> Results:
    """Prints each row in order, as soon as its result is there."""
    results = unaskable(items)
    waiting = deque(items)
    for key, result in answered(items, ask, results):
        results[key] = result
        while waiting and waiting[0].key in results:
            for row in rows_of([waiting.popleft()], results):
                print(json_line(row))
        sys.stdout.flush()
    for row in rows_of(waiting, results):
        print(json_line(row))
    return results
