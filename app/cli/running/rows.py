"""A run over the rows of files: their comparisons, the results so far, and the output.

A result is kept as soon as it is there. So an interrupted run resumes where it stopped, also after
kill -9.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli.console import CommandError, say
from app.cli.progress import progress_bar
from app.cli.stopping import refuses, resumable
from app.core.errors import RequestError, ScopeJudgeError
from app.files.checking import LabelReport, checked
from app.files.journal import Journal
from app.files.labeled import FilePair, read_pairs, shape_of_rows
from app.files.reading import FileRow, InputFormat, files_of, read_rows
from app.files.shapes import ComparisonShape
from app.files.writing import format_of, json_line, replace_file

if TYPE_CHECKING:
    from scope_judge.records import Problem

Results = dict[str, dict[str, Any]]
# Asks about the comparisons of some keys; yields the key and the result of each as it comes.
Ask = Callable[[Mapping[str, Any]], Iterable[tuple[str, dict[str, Any]]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One row and the comparison that it holds, or the reason why there is none.

    The key is a digest of the fields, so that equal comparisons are judged once; a row without a
    comparison has its place instead.
    """

    row: FileRow
    shape: ComparisonShape
    fields: dict[str, Any] | ScopeJudgeError
    key: str

    @classmethod
    def of(
        cls, row: FileRow, shape: ComparisonShape, fields: dict[str, Any] | ScopeJudgeError
    ) -> "Item":
        """The item of a row, with its key."""
        if isinstance(fields, ScopeJudgeError):
            return cls(row=row, shape=shape, fields=fields, key=row.place)
        # A Parquet file may have dates and decimals where JSON has texts.
        fields = json.loads(_as_json(fields))
        return cls(row=row, shape=shape, fields=fields, key=comparison_key(fields))


def read_items(inputs: Sequence[Path], form: InputFormat) -> list[Item]:
    """Reads all rows of files; a row without a comparison has its error."""
    items: list[Item] = []
    for path in files_of(inputs):
        rows = list(read_rows(path, form.encoding))
        if rows:
            shape = shape_of_rows(rows, form)
            items += [_item(row, shape) for row in rows]
    check_any(items)
    return items


def check_any(items: Sequence[Item]) -> None:
    """Refuses rows of which none has a comparison, as after a wrong map of columns."""
    if not items:
        raise CommandError("the files have no rows")
    problems = [(i.row.place, i.fields) for i in items if isinstance(i.fields, ScopeJudgeError)]
    if len(problems) == len(items):
        place, problem = problems[0]
        raise CommandError(f"{place}: {problem.detail}")


def _item(row: FileRow, shape: ComparisonShape) -> Item:
    try:
        return Item.of(row, shape, shape.fields(row.fields))
    except RequestError as exc:
        return Item.of(row, shape, exc)


def comparison_key(fields: Any) -> str:
    """Digest of the fields of a comparison."""
    return hashlib.sha256(_as_json(fields).encode()).hexdigest()


def _as_json(fields: Any) -> str:
    # With NaN: the service reports it.
    return json.dumps(fields, sort_keys=True, default=str)


def checked_pairs(files: Sequence[Path], form: InputFormat) -> tuple[list[FilePair], LabelReport]:
    """The rows of files that count, and the report on all rows, which is printed."""
    rows, report = checked(read_pairs(files, form))
    print_label_report(report)
    return rows, report


def print_label_report(report: LabelReport) -> None:
    """Prints what became of labeled rows."""
    say((report.sentence, "bold"))
    for detail in report.details:
        kind, colon, rest = detail.partition(":")
        say((f"{kind}{colon}", "yellow"), rest)


def check_output(out: Path | None, inputs: Sequence[Path], *, overwrite: bool) -> None:
    """Refuses a file that cannot or must not be written, before any work is done."""
    if out is None:
        return
    format_of(out)
    if out.exists() and not out.is_file():
        raise CommandError(f"--out {out} is not a regular file; omit --out and redirect stdout")
    if not out.resolve().parent.is_dir():
        raise CommandError(
            f"--out {out} cannot be written: there is no folder {out.resolve().parent}"
        )
    if not out.exists():
        return
    if any(path.exists() and out.samefile(path) for path in inputs):
        raise CommandError(f"--out {out} would overwrite the file that is judged; name another one")
    if not overwrite:
        raise CommandError(
            f"{out} already exists: name another --out, or replace it with --overwrite"
        )
    if not os.access(out, os.W_OK):
        raise CommandError(f"{out} cannot be written: Permission denied")


def write_all(
    out: Path | None,
    rows: Sequence[Mapping[str, Any]],
    *,
    kept: str = "",
    delimiter: str | None = None,
) -> None:
    """Replaces a file atomically, or prints the rows as JSONL."""
    if out is None:
        for row in rows:
            print(json_line(row))
        return
    try:
        replace_file(out, rows, delimiter=delimiter)
    except OSError as exc:
        raise CommandError(f"{out} cannot be written: {exc.strerror}{kept}") from None


@contextmanager
def finished(
    items: Sequence[Item],
    ask: Ask,
    *,
    journal: Path,
    settings: Mapping[str, Any],
    overwrite: bool,
    kept: str,
    title: str = "judging",
    keep_errors: bool = True,
) -> Iterator[Results]:
    """Asks about the rows that no earlier run has an answer for, and yields all results.

    The journal is removed if the block does not raise.

    Args:
        items: The rows.
        ask: Asks about their comparisons.
        journal: File of the results so far.
        settings: Everything that the results depend on beside their comparisons.
        overwrite: Drop an unfinished run with other settings.
        kept: Sentence for a run that is stopped.
        title: Name of the work.
        keep_errors: Whether a row that failed is not asked about again by the next run.
    """
    results = unaskable(items)
    refused = len(results)
    with Journal(journal, settings, replace=overwrite) as kept_results:
        results |= kept_results.results
        with resumable(kept, only_if=lambda exc: len(results) > refused or not refuses(exc)):
            for key, result in answered(items, ask, results, title=title):
                if keep_errors or is_judged(result):
                    kept_results.append(key, result)
                results[key] = result
        yield results
        kept_results.remove()


def answered(
    items: Iterable[Item], ask: Ask, known: Collection[str], *, title: str = "judging"
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the results of the comparisons that are not known, with progress and speed."""
    comparisons = {item.key: item.fields for item in items}
    missing = {key: fields for key, fields in comparisons.items() if key not in known}
    if not missing:
        return
    total, begun = len(comparisons), time.monotonic()
    with progress_bar() as progress:
        task = progress.add_task(title, total=total, completed=total - len(missing))
        for key, result in ask(missing):
            progress.advance(task)
            yield key, result
    say(f"{title}: {len(missing) / (time.monotonic() - begun):,.0f} pairs a second")


def unaskable(items: Iterable[Item]) -> Results:
    """The results of the rows without a comparison: their errors."""
    from app.api.problems import problem_of

    return {
        item.key: error_of(problem_of(item.fields))
        for item in items
        if isinstance(item.fields, ScopeJudgeError)
    }


def error_of(problem: "Problem") -> dict[str, Any]:
    """The result of a row that has an error."""
    return {"error": {name: value for name, value in asdict(problem).items() if value is not None}}


def is_judged(result: Mapping[str, Any]) -> bool:
    """Whether a result is not an error."""
    return "error" not in result
