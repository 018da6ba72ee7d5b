"""`scope-judge label`: a person labels pairs in a terminal, only as many as the tests need.

The pairs become the pool of a calibration set, which says what to label next. Each answer is kept
in a journal beside the file, and sent when the next test needs it. So an interrupted run
resumes where it stopped, also after kill -9, and asks nothing twice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.console import CommandError, say
from app.cli.labelled_rows import print_label_report
from app.cli.labelling.pool import Level, Pool, plan_fields
from app.cli.labelling.report import Ended, print_report
from app.cli.labelling.terminal import check_terminal
from app.cli.running.options import (
    ColumnMap,
    DeltaFor,
    Encoding,
    ShapeName,
    check_share,
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
from app.core.comparison import STANDARD_DELTA, shared_delta
from app.core.errors import InvalidRequestError
from app.core.looks import Looks
from app.files.journal import Journal
from app.files.labelled import FilePair, has_label, read_pairs
from app.service.labelling.answers import Answers
from app.service.labelling.checking import CheckedRows, checked
from app.service.labelling.pairs import BlindPair, drawn, left_side
from app.service.labelling.session import LabelSession

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge import NextLabels


def label(
    files: Annotated[
        list[Path],
        typer.Argument(help="Files, folders or patterns, as for `judge`."),
    ],
    name: Annotated[str, typer.Option(help="Name of the new calibration set.")],
    alpha: Annotated[
        float,
        typer.Option(help="Largest share of wrong verdicts. Choose it before you label."),
    ],
    delta: Annotated[
        float, typer.Option(help="Probability that the guarantee fails.")
    ] = STANDARD_DELTA,
    delta_for: DeltaFor = None,
    looks: Annotated[
        str | None,
        typer.Option(
            help="Planned numbers of pairs, such as 250,500,1000, until one reaches "
            "--until-coverage."
        ),
    ] = None,
    until_coverage: Annotated[
        float | None, typer.Option(help="Share of accepted pairs that ends the looks.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for the random side of each response.")] = 0,
    shape: ShapeName = None,
    columns: ColumnMap = None,
    encoding: Encoding = None,
    add: Annotated[bool, typer.Option("--add", help="Add to a set with labels.")] = False,
    overwrite: Annotated[
        bool,
        typer.Option(help="Start a new journal. The service keeps its labels."),
    ] = False,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
) -> None:
    """Label pairs by keyboard, only as many as pac needs for one alpha and delta.

    Draw the pairs at random from your traffic. Verdicts are hidden, and sides are random.
    """
    level = _level(alpha, delta, delta_for)
    plan = _plan(looks, until_coverage, level, is_new=delta_for is None and not add)
    check_terminal(files, otherwise="`scope-judge calibrate` takes a file of labels")
    rows = checked(read_pairs(files, given_format(shape, columns, encoding), labelled=False))
    kept = journal_path(files, f"label-{name}.journal")
    with connected(url, patience_s=patience) as service:
        settings = {"judge": service.fingerprint, "calibration": name, "seed": seed}
        settings |= asdict(level) | ({} if plan is None else plan_fields(plan))
        with Journal(kept, settings, replace=overwrite) as journal:
            answers = Answers(journal, _pairs(rows.unlabelled, seed))
            if not journal.results and not add:
                _refuse_labelled_set(service, name)
            with resumable(f"your answers are in {kept}; rerun the command to resume"):
                pool = Pool(service, name, level, plan)
                _fill(pool, answers, rows, seed)
                _label(pool, answers, rows)


def _level(alpha: float, delta: float, delta_for: int | None) -> Level:
    check_share("alpha", alpha)
    check_share("delta", delta)
    return Level(alpha=alpha, delta=shared_delta(delta, delta_for or 1))


def _plan(
    looks: str | None, until_coverage: float | None, level: Level, *, is_new: bool
) -> Looks | None:
    """The planned looks; None without any.

    Args:
        looks: The sizes, separated by commas.
        until_coverage: The coverage that suffices.
        level: The alpha, and the delta of all looks.
        is_new: Whether the set is a new one, with its own delta.
    """
    if (looks is None) != (until_coverage is None):
        raise CommandError("--looks and --until-coverage go together: a plan names both")
    if looks is None or until_coverage is None:
        return None
    if not is_new:
        raise CommandError("--looks takes a new set and divides delta itself, without --delta-for")
    try:
        sizes = tuple(int(size) for size in looks.split(","))
        return Looks(
            sizes=sizes, until_coverage=until_coverage, alpha=level.alpha, delta=level.delta
        )
    except ValueError as exc:
        raise InvalidRequestError(f"--looks {looks}: {exc}") from None


def _refuse_labelled_set(service: ServiceClient, name: str) -> None:
    """Ends the command if pairs without labels would come to a set that is in use."""
    from app.cli.set_answers import Sets

    sets = read(Sets, service.get("/calibrations")).calibrations
    present = next((one for one in sets if one.name == name), None)
    if present is not None and not present.unlabelled and present.n:
        raise CommandError(
            f"{name} already has labels, and it has no marginal threshold while some of its pairs "
            "have none: name a new set, or add the pairs anyway with --add"
        )


def _label(pool: Pool, answers: Answers, rows: CheckedRows[FilePair]) -> None:
    print_label_report(rows.report)
    known = sum(has_label(row) for row in rows.unlabelled)
    if known:
        say(
            f"{known} of the pairs have a label in the files, which is not used: `scope-judge "
            "calibrate` takes labels"
        )
    try:
        ended = _asked(pool, answers)
    except EOFError:
        # The terminal was closed: nobody reads a message.
        raise typer.Exit(1) from None
    print_report(pool, answers, ended)


def _fill(pool: Pool, answers: Answers, rows: CheckedRows[FilePair], seed: int) -> None:
    """Sends pairs to the pool, and says which ones could not be judged.

    With planned looks, these are as many pairs as the last look has, drawn at random.
    """
    keys: Sequence[str] = [pair.key for pair in answers.pairs]
    if pool.plan is not None:
        if len(keys) < pool.plan.last:
            raise CommandError(
                f"the last look has {pool.plan.last} pairs, and there are only {len(keys)}"
            )
        # The sides are drawn with the seed itself.
        keys = drawn(keys, most=pool.plan.last, seed=seed + 1)
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
    looks = 0
    while True:
        pool.post(answers)
        last = pool.next()
        looks = _say_looks(last, looks)
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


def _say_looks(last: "NextLabels", said: int) -> int:
    """Says the results of further looks; returns the number of all that were taken."""
    if last.looks is None:
        return 0
    looks = last.looks
    for number, look in enumerate(looks.taken[said:], start=said + 1):
        say(
            (f"Look {number} of {len(looks.sizes)}, at {look.size} pairs:", "bold"),
            f" coverage {look.coverage:.0%}, wanted {looks.until_coverage:.0%}.",
        )
    return len(looks.taken)
