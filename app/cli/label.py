"""`scope-judge label`: a person labels pairs in a terminal, only as many as the tests need.

The pairs become the pool of a calibration set, which says what to label next. Each answer is kept
in a journal beside the file, and sent when the next test needs it. So a run that is stopped, also
by kill -9, goes on later, and nothing is asked twice.
"""

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from app.cli.comparisons import ColumnMap, Item, ShapeName, given_shape, read_items
from app.cli.console import console, failure
from app.cli.criterion import DeltaFor
from app.cli.journal_path import journal_path
from app.cli.key_press import Keyboard
from app.cli.label_answers import Answers
from app.cli.label_pool import Level, Pool
from app.cli.label_report import print_report
from app.cli.label_session import LabelSession
from app.cli.service_client import (
    DEFAULT_URL,
    PATIENCE_S,
    Patience,
    ServiceClient,
    Url,
    connected,
)
from app.core.comparison import STANDARD_DELTA
from app.core.errors import ScopeJudgeError
from app.files.journal import Journal
from app.files.reading import STDIN


def label(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="JSONL, JSON, CSV, TSV or Parquet, also as .gz or .zst; folders and patterns."
        ),
    ],
    name: Annotated[
        str, typer.Option(help="Name of the calibration set, a new one; it gets the pairs.")
    ],
    alpha: Annotated[
        float,
        typer.Option(
            help="Largest share of wrong verdicts, in (0, 1); decide it before the first label."
        ),
    ],
    delta: Annotated[
        float, typer.Option(help="Probability that the pac guarantee fails, in (0, 1).")
    ] = STANDARD_DELTA,
    delta_for: DeltaFor = None,
    seed: Annotated[
        int, typer.Option(help="Decides for each pair which response is on the left.")
    ] = 0,
    shape: ShapeName = None,
    columns: ColumnMap = None,
    add: Annotated[
        bool, typer.Option("--add", help="Add the pairs to a set that has labels already.")
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option(help="Begin a new journal; labels that the service has stay there."),
    ] = False,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
) -> None:
    """Label pairs with key presses, only as many as pac needs for one alpha and delta.

    Shows each pair without the judge's opinion, its sides in random order. Asks in the order of
    rising uncertainty, and stops when the threshold is known: it is the one that labels for all
    pairs would give. Draw the pairs at random from the traffic. If the command is stopped, run it
    again: it goes on.
    """
    level = _level(alpha, delta, delta_for)
    _check_terminal(files)
    try:
        items = read_items(files, given_shape(shape, columns), labelled=False)
        kept = journal_path(files, f"label-{name}.journal")
        with connected(url, patience_s=patience) as service, _keeping(kept):
            settings = {"judge": service.fingerprint, "calibration": name, "seed": seed}
            with Journal(kept, {**settings, **level._asdict()}, replace=overwrite) as journal:
                answers = Answers(journal, items, seed)
                if not journal.results and not add:
                    _refuse_labelled_set(service, name)
                _label(Pool(service, name, level), answers, items)
    except ScopeJudgeError as exc:
        raise failure(exc.detail) from None


def _level(alpha: float, delta: float, delta_for: int | None) -> Level:
    for option, value in (("alpha", alpha), ("delta", delta)):
        if not 0.0 < value < 1.0:
            raise failure(f"--{option} must be between 0 and 1, both excluded, got {value}")
    share = delta / (delta_for or 1)
    if share == 0.0:
        raise failure(f"--delta {delta} cannot be divided by --delta-for {delta_for}")
    return Level(alpha, share)


def _check_terminal(files: Sequence[Path]) -> None:
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise failure(
            "label shows pairs and takes key presses, so it needs a terminal; `scope-judge "
            "calibrate` takes a file of labels"
        )
    if STDIN in files:
        raise failure("label reads keys from standard input: give a file of pairs")


def _refuse_labelled_set(service: ServiceClient, name: str) -> None:
    """Ends the command if pairs without labels would come to a set that is in use."""
    sets = service.get("/calibrations")["calibrations"]
    found = next((each for each in sets if each["name"] == name), None)
    if found is not None and not found["unlabelled"] and found["n"]:
        raise failure(
            f"{name} has labels already, and while pairs of it have none, it has no threshold of "
            "marginal: name a new set, or add the pairs all the same with --add"
        )


@contextmanager
def _keeping(journal: Path) -> Iterator[None]:
    """Says where the answers are if the block is interrupted or fails."""
    try:
        yield
    except KeyboardInterrupt:
        console.print()
        _say(f"stopped: your answers are in {journal}. The same command goes on")
        raise typer.Exit(130) from None
    except typer.Exit as exc:
        if exc.exit_code and journal.exists():
            _say(f"your answers are in {journal}. The same command goes on")
        raise


def _label(pool: Pool, answers: Answers, items: Sequence[Item]) -> None:
    left_out = [item for item in items if isinstance(item.fields, ScopeJudgeError)]
    if left_out:
        _say(f"left out: {len(left_out)} rows without a comparison, e.g. {_reason(left_out[0])}")
    failed = pool.fill(answers)
    if failed:
        pair, reason = failed[0]
        _say(f"not judged: {len(failed)} pairs, e.g. {pair.item.row.place}: {reason}")
    if not answers.by_digest:
        raise failure("no pair was judged")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal without Unicode shows question marks, instead of ending the run.
        sys.stdout.reconfigure(errors="replace")
    with Keyboard(sys.stdin.fileno()) as keyboard:
        session = LabelSession(answers, keyboard, Console(file=sys.stdout))
        try:
            outcome = session.run(pool)
        except EOFError:
            # The terminal was closed: nobody reads a message.
            raise typer.Exit(1) from None
    print_report(pool, answers, outcome)


def _reason(item: Item) -> str:
    assert isinstance(item.fields, ScopeJudgeError), "only rows without a comparison"
    return f"{item.row.place}: {item.fields.detail}"


def _say(text: str) -> None:
    console.print(escape(text), highlight=False, soft_wrap=True)
