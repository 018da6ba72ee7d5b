"""`scope-judge label`: a person labels pairs in a terminal, only as many as the tests need.

The pairs become the pool of a calibration set, which says what to label next. Each answer is kept
in a journal beside the file, and sent when the next test needs it. So an interrupted run
resumes where it stopped, also after kill -9, and asks nothing twice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from app.cli.console import CommandError, say
from app.cli.labelled_rows import print_label_report
from app.cli.labelling.pool import Level, Pool
from app.cli.labelling.report import Ended, print_report
from app.cli.labelling.terminal import check_terminal
from app.cli.running.options import (
    ColumnMap,
    DeltaFor,
    Encoding,
    ShapeName,
    check_share,
    divided_delta,
    given_format,
)
from app.cli.running.rows import comparison_key
from app.cli.running.run import journal_path
from app.cli.service_client import (
    DEFAULT_URL,
    PATIENCE_S,
    Patience,
    ServiceClient,
    Url,
    connected,
    read,
)
from app.cli.stopping import resumable
from app.core.comparison import STANDARD_DELTA
from app.files.journal import Journal
from app.files.labelled import FilePair, has_label, read_pairs
from app.service.labelling.answers import Answers
from app.service.labelling.checking import CheckedRows, checked
from app.service.labelling.looks import Looks
from app.service.labelling.pairs import BlindPair, left_side
from app.service.labelling.session import LabelSession


def label(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="JSONL, JSON, CSV, TSV or Parquet, also as .gz or .zst; folders and patterns."
        ),
    ],
    name: Annotated[
        str, typer.Option(help="Name of the new calibration set, which receives the pairs.")
    ],
    alpha: Annotated[
        float,
        typer.Option(
            help="Largest share of wrong verdicts, in (0, 1); choose it before the first label."
        ),
    ],
    delta: Annotated[
        float, typer.Option(help="Probability that the pac guarantee fails, in (0, 1).")
    ] = STANDARD_DELTA,
    delta_for: DeltaFor = None,
    looks: Annotated[
        str | None,
        typer.Option(
            help="Numbers of pairs at which to look, such as 250,500,1000: stop at the first that "
            "reaches --until-coverage. Each look gets its share of delta."
        ),
    ] = None,
    until_coverage: Annotated[
        float | None, typer.Option(help="Share of the pairs to accept at least; ends the looks.")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Decides for each pair which response is on the left.")
    ] = 0,
    shape: ShapeName = None,
    columns: ColumnMap = None,
    encoding: Encoding = None,
    add: Annotated[
        bool, typer.Option("--add", help="Add the pairs to a set that already has labels.")
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option(help="Start a new journal; labels that the service already has stay there."),
    ] = False,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
) -> None:
    """Label pairs with key presses, only as many as pac needs for one alpha and delta.

    Shows each pair without the judge's opinion, its sides in random order. Asks in the order of
    increasing uncertainty, and stops when the threshold is known: it is the one that labels for all
    pairs would give. Draw the pairs at random from the traffic. If interrupted, rerun the
    command; it resumes where it stopped.
    """
    plan = _plan(looks, until_coverage, delta_for, add=add)
    level = _level(alpha, delta, len(plan.sizes) if plan else delta_for)
    check_terminal(files, otherwise="`scope-judge calibrate` takes a file of labels")
    rows = checked(read_pairs(files, given_format(shape, columns, encoding), labelled=False))
    kept = journal_path(files, f"label-{name}.journal")
    with connected(url, patience_s=patience) as service:
        settings = {"judge": service.fingerprint, "calibration": name, "seed": seed}
        settings |= asdict(level) | (asdict(plan) | {"sizes": list(plan.sizes)} if plan else {})
        with Journal(kept, settings, replace=overwrite) as journal:
            answers = Answers(journal, _pairs(rows.unlabelled, seed))
            if not journal.results and not add:
                _refuse_labelled_set(service, name, empty=plan is not None)
            with resumable(f"your answers are in {kept}; rerun the command to resume"):
                pool = Pool(service, name, level)
                parts = _parts(plan, answers, seed)
                _label(pool, answers, rows, parts, plan)


def _level(alpha: float, delta: float, delta_for: int | None) -> Level:
    check_share("alpha", alpha)
    check_share("delta", delta)
    return Level(alpha=alpha, delta=divided_delta(delta, delta_for))


def _plan(
    looks: str | None, until_coverage: float | None, delta_for: int | None, *, add: bool
) -> Looks | None:
    """The planned looks; None without any."""
    if (looks is None) != (until_coverage is None):
        raise CommandError("--looks and --until-coverage go together: a plan names both")
    if looks is None or until_coverage is None:
        return None
    if delta_for is not None or add:
        raise CommandError("--looks takes a new set and divides delta itself, without --delta-for")
    return Looks.parse(looks, until_coverage)


def _parts(plan: Looks | None, answers: Answers, seed: int) -> list[Sequence[str]]:
    """The keys of the pairs that the pool has at each look that is still to come."""
    keys = [pair.key for pair in answers.pairs]
    if plan is None:
        return [keys]
    order = plan.order(keys, seed)
    return [order[: plan.sizes[number]] for number in plan.remaining(len(answers.pooled))]


def _refuse_labelled_set(service: ServiceClient, name: str, *, empty: bool) -> None:
    """Ends the command if pairs without labels would come to a set that is in use.

    Args:
        service: The service.
        name: Name of the set.
        empty: Refuse every set that has a pair: the sizes of looks are those of the set.
    """
    from app.cli.set_answers import Sets

    sets = read(Sets, service.get("/calibrations")).calibrations
    present = next((one for one in sets if one.name == name), None)
    if present is not None and present.n and empty:
        raise CommandError(f"{name} has pairs already: looks are planned for a new set")
    if present is not None and not present.unlabelled and present.n:
        raise CommandError(
            f"{name} already has labels, and it has no marginal threshold while some of its pairs "
            "have none: name a new set, or add the pairs anyway with --add"
        )


def _label(
    pool: Pool,
    answers: Answers,
    rows: CheckedRows[FilePair],
    parts: Sequence[Sequence[str]],
    plan: Looks | None,
) -> None:
    print_label_report(rows.report)
    known = sum(has_label(row) for row in rows.unlabelled)
    if known:
        say(
            f"{known} of the pairs have a label in the files, which is not used: `scope-judge "
            "calibrate` takes labels"
        )
    for part in parts:
        _fill(pool, answers, rows, part)
        try:
            ended = _asked(pool, answers)
        except EOFError:
            # The terminal was closed: nobody reads a message.
            raise typer.Exit(1) from None
        if plan is None or not ended.last.complete or not _goes_on(pool, ended, plan, len(part)):
            break
    print_report(pool, answers, ended)


def _goes_on(pool: Pool, ended: Ended, plan: Looks, size: int) -> bool:
    """Says what a look has found; whether another one follows."""
    coverage = 0.0 if ended.last.threshold is None else pool.coverage()
    number = plan.sizes.index(size) + 1
    say(
        (f"Look {number} of {len(plan.sizes)}, at {size} pairs:", "bold"),
        f" coverage {coverage:.0%}, wanted {plan.until_coverage:.0%}.",
    )
    return not plan.suffices(coverage) and number < len(plan.sizes)


def _fill(pool: Pool, answers: Answers, rows: CheckedRows[FilePair], keys: Sequence[str]) -> None:
    """Sends pairs to the pool, and says which ones could not be judged."""
    failed = pool.fill(answers, keys)
    if failed:
        place = next(row.place for row in rows.unlabelled if comparison_key(row.fields) in failed)
        reason = next(iter(failed.values()))
        say(f"not judged: {len(failed)} pairs, e.g. {place}: {reason}")
    if not answers.pooled:
        raise CommandError("no pair was judged")


def _pairs(rows: Sequence[FilePair], seed: int) -> Iterator[BlindPair]:
    for row in rows:
        key = comparison_key(row.fields)
        yield BlindPair(key=key, fields=row.fields, left=left_side(seed, key))


def _asked(pool: Pool, answers: Answers) -> Ended:
    """Asks for labels until the threshold is known, nothing can be asked, or the person quits."""
    # Imported late: the help needs no terminal.
    from app.cli.labelling.screen import PairScreen

    session = LabelSession(answers)
    screen = PairScreen(session)
    resent: set[str] = set()
    while True:
        pool.post(answers)
        last = pool.next()
        needed = session.needed(last.digests)
        if needed.dropped:
            # Somebody has rolled the set back: nothing is asked twice.
            if resent.issuperset(needed.dropped):
                raise CommandError(
                    "the service does not keep the labels: look at the versions of the set"
                )
            resent.update(needed.dropped)
            answers.note_posted(needed.dropped, posted=False)
            continue
        if last.complete or not needed.asked:
            return Ended(last=last, skipped=needed.skipped, absent=needed.absent)
        session.ask(needed.asked)
        if screen.run() == "quit":
            pool.post(answers)
            return Ended(last=pool.next())
