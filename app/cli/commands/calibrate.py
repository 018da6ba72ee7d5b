"""`scope-judge calibrate`: adds files of labeled pairs to a set of a running service.

All pairs are judged first, and their scores are kept in calibrate-NAME.partial. Then all of them
become one version of the set. So an interrupted run leaves the set unchanged, and can be resumed.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from app.cli.assessment import print_detail
from app.cli.connection import DEFAULT_URL, PATIENCE_S, Patience, Url, connected
from app.cli.console import CommandError, ask, console, print_table, say
from app.cli.effects import EvenIfInfeasible, Yes, show_change
from app.cli.progress import progress_bar
from app.cli.running import options
from app.cli.running.rows import Ask, Item, checked_pairs, error_of, finished, is_judged
from app.cli.stopping import resumable
from app.core.assessment import share_interval
from app.core.comparison import MIRRORED, Label
from app.files.labeled import FilePair

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge import ScopeClient
    from scope_judge.records import CalibrationDetail, CalibrationReport, Info, ScoredExample

_SHOWN_FAILURES = 3
_SET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# A set of its own needs hundreds of pairs.
_MOST_SETS = 32


def calibrate(
    files: options.Inputs,
    name: Annotated[str, typer.Option(help="Name of the calibration set.")] = "default",
    by: Annotated[
        str | None,
        typer.Option(help="Column whose values each get a set of their own, NAME-VALUE."),
    ] = None,
    hold_out: Annotated[
        float | None,
        typer.Option(
            parser=options.share,
            help="Share of the questions to keep out of the set, to check its thresholds on them.",
        ),
    ] = None,
    columns: options.ColumnMap = None,
    encoding: options.Encoding = None,
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
    change_labels: Annotated[
        bool,
        typer.Option(
            "--change-labels",
            help="Let the label count for a pair that has another one in the set.",
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
    if not _SET_NAME.fullmatch(name):
        raise CommandError(
            f"--name {name!r}: a set is named with up to 64 letters, digits, dots, hyphens and "
            "underscores, and begins with a letter or digit"
        )
    form = options.given_format(columns, encoding)
    rows, report = checked_pairs(files, form)
    sets = {name: rows} if by is None else _sets_by(by, name, rows)
    failed = unusable = len(report.unusable)
    with connected(url, patience_s=patience) as client:
        info = client.info()
        if hold_out is not None and info.kind == "cascade":
            raise CommandError("--hold-out is for one judge: a cascade has two thresholds")
        for of_set, all_pairs in sets.items():
            pairs, checked = held_out(all_pairs, hold_out or 0.0)
            kept = f"{of_set} is unchanged; rerun the command to resume"
            scoring = _scored(client, info, of_set, pairs, overwrite=overwrite, kept=kept)
            with scoring as (judged, failures):
                add = partial(client.add_scores, of_set, [score for _, score in judged])
                add = partial(add, fingerprint=info.fingerprint, judge=info.judge)
                # A person who agrees to a replacement has seen how many labels change.
                add = partial(add, change_labels=change_labels or replace)
                with resumable(kept):
                    if replace:
                        add = partial(add, replace=True, even_if_infeasible=even_if_infeasible)
                        _confirm(of_set, add(dry_run=True), failed=len(failures), yes=yes)
                    elif not change_labels:
                        _refuse_differing(client, of_set, judged)
                whole = "has been replaced as a whole, or is unchanged"
                state = whole if replace else "may have changed already"
                with resumable(f"{of_set} {state}; rerun the command to resume"):
                    done = add()
            detail = client.calibration(of_set)
            print_detail(detail)
            if info.judge == "scripted":
                say("The judge `scripted` is for tests and guesses: these figures mean nothing.")
            say(
                f"added {done.added}, updated {done.updated}, ties {done.ties}, "
                f"removed {done.removed}, failed {len(failures) + unusable}"
            )
            _print_failures(failures)
            failed += len(failures)
            if hold_out is not None:
                sided = [pair for pair in checked if pair.label in ("A", "B")]
                print_held_out(client, detail, sided)
                if detail.n > len(pairs):
                    say(
                        ("warning:", "yellow"),
                        f" {of_set} has examples of earlier runs. If the held-out pairs are among "
                        "them, these verdicts look better than those on new pairs: use a new "
                        "--name",
                    )
    if failed:
        raise typer.Exit(1)


@contextmanager
def _scored(
    client: "ScopeClient",
    info: "Info",
    name: str,
    pairs: Sequence[FilePair],
    *,
    overwrite: bool,
    kept: str,
) -> "Iterator[tuple[list[tuple[str, ScoredExample]], list[str]]]":
    """Yields the scores of pairs, each with its place, and the failures of the others in words.

    The scores are kept in a file until the block ends.
    """
    # Imported late: the help needs no client.
    from scope_judge.parsing import parse
    from scope_judge.records import ScoredExample

    items = [Item.of(row.row, row.shape, {**row.fields, "label": row.label}) for row in pairs]
    running = finished(
        items,
        _scoring(client, name),
        journal=Path(f"calibrate-{name}.partial"),
        settings={"judge": info.fingerprint, "calibration": name},
        overwrite=overwrite,
        kept=kept,
        title="calibrating",
        keep_errors=False,
    )
    with running as results:
        judged, failures = list[tuple[str, ScoredExample]](), list[str]()
        for item in items:
            place, result = item.row.place, results[item.key]
            if is_judged(result):
                judged.append((place, parse(ScoredExample, result)))
            else:
                failures.append(f"{place}: {result['error']['detail']}")
        if not judged:
            _print_failures(failures)
            raise CommandError(f"no pair was judged, and {name} is unchanged")
        yield judged, failures


def _confirm(name: str, would: "CalibrationReport", *, failed: int, yes: bool) -> None:
    """Asks before pairs replace all examples of a set."""
    if failed:
        say(f"{failed} pairs were not judged, and will not be in the set.")
    show_change(name, would)
    ask(f"Replace the examples of {name}?", yes=yes, otherwise="nothing was replaced")


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


def _refuse_differing(
    client: "ScopeClient", name: str, judged: "Sequence[tuple[str, ScoredExample]]"
) -> None:
    """Refuses pairs that have another label in the set, before any of them is added."""
    from scope_judge import NotFoundError

    known: dict[str, Label | None] = {}
    with suppress(NotFoundError):
        known = {example.digest: example.label for example in client.examples(name).examples}
    rows = list[str]()
    for place, score in judged:
        was = known.get(score.digest)
        if was is not None and score.is_reversed:
            was = MIRRORED[was]
        if was not in (None, score.label):
            rows.append(f"{place} ({score.label}, and {was} in {name})")
    if rows:
        more = "; ..." if len(rows) > _SHOWN_FAILURES else ""
        raise CommandError(
            f"{len(rows)} of the pairs have another label in {name}: "
            f"{'; '.join(rows[:_SHOWN_FAILURES])}{more}. Correct them, or let these labels count "
            "with --change-labels"
        )


def _scoring(client: "ScopeClient", name: str) -> Ask:
    """Asks a service for the scores of labeled pairs; a pair that failed has its error."""
    # Imported late: the help needs no client.
    from scope_judge import ItemError

    def scores(examples: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        results = client.score_many(examples.values(), calibration=name)
        for key, result in zip(examples, results, strict=True):
            yield key, error_of(result.error) if isinstance(result, ItemError) else asdict(result)

    return scores


def _print_failures(failures: Sequence[str]) -> None:
    for failure in failures[:_SHOWN_FAILURES]:
        say(("not added:", "yellow"), f" {failure}")
    if len(failures) > _SHOWN_FAILURES:
        say(f"and {len(failures) - _SHOWN_FAILURES} more")


def held_out(pairs: Sequence[FilePair], share: float) -> tuple[list[FilePair], list[FilePair]]:
    """Splits pairs by their questions into those of the set and those that are held out.

    A question is on one side with all of its pairs, and on the same side in every run.
    """
    kept: tuple[list[FilePair], list[FilePair]] = ([], [])
    for pair in pairs:
        text = json.dumps(pair.fields["question"], sort_keys=True)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        kept[int.from_bytes(digest[:4]) < share * 2**32].append(pair)
    return kept


def print_held_out(
    client: "ScopeClient", detail: "CalibrationDetail", pairs: Sequence[FilePair]
) -> None:
    """Prints the verdicts and the errors of each criterion of a set on held-out pairs.

    Its thresholds are applied to their scores. Nothing is judged, so that these pairs are no
    traffic of the set, and are not drawn for audits.
    """
    # Imported late: numpy takes a while.
    from app.core.verdict_errors import accepted_and_wrong

    least_mass, judged = client.info().min_label_mass, 0
    gaps: list[tuple[float, float | None]] = []
    sides: list[bool] = []
    with progress_bar() as bar:
        shown = bar.add_task("scoring held-out pairs", total=len(pairs))
        scores = client.score_pairs(pair.fields for pair in pairs)
        for pair, score in zip(pairs, scores, strict=True):
            bar.advance(shown)
            judged += score.error is None
            is_on_task = score.label_mass is None or score.label_mass >= least_mass
            if score.gap_fwd is not None and is_on_task:
                gaps.append((score.gap_fwd, score.gap_rev))
                sides.append(pair.label == "A")
    rows = [row for row in detail.thresholds if row.threshold is not None]
    if not rows:
        say("No alpha of the table gives verdicts, so there is nothing to check.")
        return
    thresholds = [row.threshold for row in rows if row.threshold is not None]
    counts = accepted_and_wrong(gaps, sides, thresholds, temperature=detail.temperature or 1.0)
    table = Table()
    for heading in ("guarantee", "alpha", "accepted", "wrong", "wrong of accepted", "95% interval"):
        table.add_column(heading, justify="left" if heading == "guarantee" else "right")
    for row, (accepted, wrong) in zip(rows, counts, strict=True):
        share, interval = "", ""
        if accepted:
            low, high = share_interval(wrong / accepted, accepted)
            share, interval = f"{wrong / accepted:.1%}", f"{low:.1%} to {high:.1%}"
        of = f"{accepted} of {judged}"
        table.add_row(row.guarantee, f"{row.alpha:g}", of, str(wrong), share, interval)
    print_table(
        table, title=f"{len(pairs)} held-out pairs under the new thresholds", output=console
    )
