"""`scope-judge calibrate`: adds files of labeled pairs to a set of a running service.

All pairs are judged first, and their scores are kept in the user's cache. Then all of them become
one version of the set. So an interrupted run leaves the set unchanged, and can be resumed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.assessment import print_detail
from app.cli.connection import DEFAULT_URL, PATIENCE_S, Patience, Url, connected
from app.cli.console import CommandError, ask, say
from app.cli.effects import EvenIfInfeasible, Yes, show_change
from app.cli.labeled_rows import checked_pairs
from app.cli.running.held_out import held_out, outcomes, print_held_out
from app.cli.running.options import (
    ColumnMap,
    Encoding,
    Inputs,
    OnContradictions,
    check_share,
    given_contradictions,
    given_format,
)
from app.cli.running.rows import Item
from app.cli.running.run import Ask, Run, error_of, finished, is_judged, journal_path
from app.cli.stopping import resumable
from app.files.labeled import FilePair

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge import ScopeClient
    from scope_judge.records import CalibrationDetail, CalibrationReport, ScoredExample

_SHOWN_FAILURES = 3
_SET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# A set of its own needs hundreds of pairs.
_MOST_SETS = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class _Failure:
    """A row that was not added, and the reason."""

    place: str
    detail: str


def calibrate(
    files: Inputs,
    name: Annotated[str, typer.Option(help="Name of the calibration set.")] = "default",
    by: Annotated[
        str | None,
        typer.Option(help="Column whose values each get a set of their own, NAME-VALUE."),
    ] = None,
    hold_out: Annotated[
        float | None,
        typer.Option(
            help="Share of the questions to keep out of the set, to check its thresholds on them."
        ),
    ] = None,
    columns: ColumnMap = None,
    encoding: Encoding = None,
    contradictions: OnContradictions = "drop",
    overwrite: Annotated[
        bool, typer.Option(help="Discard an unfinished run with another judge.")
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Remove all other examples of the set, after a preview.",
        ),
    ] = False,
    even_if_infeasible: EvenIfInfeasible = False,
    yes: Yes = False,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
) -> None:
    """Add labeled pairs to a calibration set of a running service.

    A label is A, B or tie (also model_a, model_b, both_bad, or a word of --map). A repeated pair
    counts once. All pairs of a set become one new version.
    """
    check_share("hold-out", hold_out)
    form = given_format(columns, encoding)
    rows = checked_pairs(files, form, given_contradictions(contradictions))
    sets = {name: rows.labelled} if by is None else _sets_by(by, name, rows.labelled)
    failed = len(rows.report.unusable)
    with connected(url, patience_s=patience) as client:
        info = client.info()
        if hold_out is not None and info.kind == "cascade":
            raise CommandError("--hold-out is for one judge: a cascade has two thresholds")
        fingerprint = info.fingerprint
        for of_set, all_pairs in sets.items():
            pairs, checked = held_out(all_pairs, hold_out or 0.0)
            run = Run(
                journal=journal_path(files, f"calibrate-{of_set}.partial"),
                settings={"judge": fingerprint, "calibration": of_set},
                overwrite=overwrite,
                kept=f"{of_set} is unchanged; rerun the command to resume",
                title="calibrating",
                keep_errors=False,
            )
            failed += _calibrated(
                client,
                of_set,
                [Item.of(row.row, row.shape, {**row.fields, "label": row.label}) for row in pairs],
                run,
                _Replacement(replace=replace, even_if_infeasible=even_if_infeasible, yes=yes),
                unusable=len(rows.report.unusable),
            )
            if hold_out is not None:
                sided = [pair for pair in checked if pair.label in ("A", "B")]
                detail = client.calibration(of_set)
                print_held_out(list(outcomes(client, detail, sided)), len(sided))
                if detail.n > len(pairs):
                    say(
                        ("warning:", "yellow"),
                        f" {of_set} has examples of earlier runs. If the held-out pairs are among "
                        "them, these verdicts look better than those on new pairs: use a new "
                        "--name",
                    )
    if failed:
        raise typer.Exit(1)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Replacement:
    """Whether the other examples of a set are removed, and without which questions."""

    replace: bool
    even_if_infeasible: bool
    yes: bool


def _calibrated(
    client: "ScopeClient",
    name: str,
    items: Sequence[Item],
    run: Run,
    replacement: _Replacement,
    *,
    unusable: int,
) -> int:
    """Judges the pairs of one set, adds them, and prints the outcome.

    Returns:
        The number of pairs that were not judged.
    """
    # Imported late: the help needs no client.
    from scope_judge.parsing import parse
    from scope_judge.records import ScoredExample

    with finished(items, _scoring(client, name), run) as done:
        results = [done.results[item.key] for item in items]
        failures = _failures(items, results)
        scores = [parse(ScoredExample, result) for result in results if is_judged(result)]
        if not scores:
            _print_failures(failures)
            raise CommandError(f"no pair was judged, and {name} is unchanged")
        report = _added(client, name, scores, replacement, failed=len(failures), kept=run.kept)
    _print_outcome(client.calibration(name), report, failed=len(failures) + unusable)
    _print_failures(failures)
    return len(failures)


def _sets_by(column: str, name: str, pairs: Sequence[FilePair]) -> dict[str, list[FilePair]]:
    """The pairs of each set NAME-VALUE, by the values of a column."""
    sets = dict[str, list[FilePair]]()
    for pair in pairs:
        value = pair.row.fields.get(column)
        of_set = f"{name}-{value}"
        if value is None or not _SET_NAME.fullmatch(of_set):
            raise CommandError(
                f"{pair.row.place}: --by {column} needs a value there that can end the name of a "
                f"set (letters, digits, dots, hyphens, underscores), and there is {value!r}"
            )
        sets.setdefault(of_set, []).append(pair)
    if len(sets) > _MOST_SETS:
        raise CommandError(
            f"--by {column} would make {len(sets)} sets, and at most {_MOST_SETS} are made: name a "
            "column with few values"
        )
    return sets


def _failures(items: Sequence[Item], results: Sequence[Mapping[str, Any]]) -> list[_Failure]:
    return [
        _Failure(place=item.row.place, detail=result["error"]["detail"])
        for item, result in zip(items, results, strict=True)
        if not is_judged(result)
    ]


def _added(
    client: "ScopeClient",
    name: str,
    scores: "Sequence[ScoredExample]",
    replacement: _Replacement,
    *,
    failed: int,
    kept: str,
) -> "CalibrationReport":
    """Adds the judged pairs; asks first if they replace the examples of the set."""
    info = client.info()
    add = partial(client.add_scores, name, scores, fingerprint=info.fingerprint, judge=info.judge)
    if not replacement.replace:
        with resumable(f"{name} may have changed already; rerun the command to resume"):
            return add()
    add = partial(add, replace=True, even_if_infeasible=replacement.even_if_infeasible)
    with resumable(kept):
        would = add(dry_run=True)
        if failed:
            say(f"{failed} pairs were not judged, and will not be in the set.")
        show_change(name, would)
        ask(
            f"Replace the examples of {name}?",
            yes=replacement.yes,
            otherwise="nothing was replaced",
        )
    with resumable(f"{name} has been replaced as a whole, or is unchanged; rerun the command"):
        return add()


def _scoring(client: "ScopeClient", name: str) -> Ask:
    """Asks a service for the scores of labeled pairs; a pair that failed has its error."""
    # Imported late: the help needs no client.
    from scope_judge import ItemError

    def scores(examples: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        results = client.score_many(examples.values(), calibration=name)
        for key, result in zip(examples, results, strict=True):
            yield key, error_of(result.error) if isinstance(result, ItemError) else asdict(result)

    return scores


def _print_outcome(
    detail: "CalibrationDetail", report: "CalibrationReport", *, failed: int
) -> None:
    """Prints the set after the run, and the numbers of pairs that were added and so on."""
    print_detail(detail)
    say(
        f"added {report.added}, updated {report.updated}, ties {report.ties}, "
        f"removed {report.removed}, failed {failed}"
    )


def _print_failures(failures: Sequence[_Failure]) -> None:
    for failure in failures[:_SHOWN_FAILURES]:
        say(("not added:", "yellow"), f" {failure.place}: {failure.detail}")
    if len(failures) > _SHOWN_FAILURES:
        say(f"and {len(failures) - _SHOWN_FAILURES} more")
