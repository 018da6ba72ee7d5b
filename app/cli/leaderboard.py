"""`scope-judge leaderboard`: rates models from the rows of judged battles."""

import time
from datetime import UTC, datetime
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.cli.console import console, failure, print_sentence
from app.core.errors import InvalidRequestError

# The help needs none of these: functions import them.
if TYPE_CHECKING:
    from app.ratings.battles import Battles
    from app.ratings.results import Board, Rating, Results, Settings

PAGE_NAME = "leaderboard.html"
_FEWEST_ROUNDS = 100
_LEAST_WIDTH = 100


class Control(StrEnum):
    """Features of the responses that can be held equal."""

    length = "length"


def leaderboard(
    rows: Annotated[
        list[Path],
        typer.Argument(help="Rows of battles: JSONL, Parquet or CSV files, folders or patterns."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for results.json, the page and the tables.")],
    against: Annotated[
        Path | None, typer.Option(help="Folder of an earlier run: also show the changes.")
    ] = None,
    control: Annotated[
        Control | None,
        typer.Option(help="Hold length and markdown of the responses equal, as arena boards do."),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(help="Model whose score is 1000.  [default: the mean of all models]"),
    ] = None,
    human_probability: Annotated[
        float | None,
        typer.Option(
            help="Probability with which each row was drawn for labelling, if the rows do not "
            "have the column human_probability."
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(help=f"Rounds of the bootstrap, {_FEWEST_ROUNDS} at least.")
    ] = 1000,
    level: Annotated[float, typer.Option(help="Level of the intervals, in (0, 1).")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
) -> None:
    """Rates models from the rows that `scope-judge battles` writes.

    The rows have question_id, model_a, model_b, winner (model_a, model_b, tie or abstain) and
    p_bar. If people labelled a random sample, they also have human and human_probability.
    """
    _check(rounds, level, human_probability)
    from app.ratings.leaderboard import results_from
    from app.ratings.results import Settings
    from app.ratings.rows import read_battles

    settings = Settings(
        rounds=rounds,
        seed=seed,
        level=level,
        reference=reference,
        control=None if control is None else "length",
    )
    begun = time.monotonic()
    made = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        battles = read_battles(rows, human_probability=human_probability)
        with console.status("rating"):
            results = results_from(battles, settings, made=made, against=against)
    except InvalidRequestError as exc:
        raise failure(exc.detail) from None
    _write(results, battles[0], out)
    _print(results, settings)
    print_sentence(f"[dim]{time.monotonic() - begun:.1f} s[/]  {escape(str(out / PAGE_NAME))}")


def _check(rounds: int, level: float, human_probability: float | None) -> None:
    missing = [name for name in ("evalica", "jinja2") if find_spec(name) is None]
    if missing:
        raise failure(f"{', '.join(missing)} cannot be imported: pip install scope-judge[ratings]")
    if rounds < _FEWEST_ROUNDS:
        raise failure(f"--rounds must be at least {_FEWEST_ROUNDS}, got {rounds}")
    if not 0.0 < level < 1.0:
        raise failure(f"--level must be between 0 and 1, both excluded, got {level}")
    if human_probability is not None and not 0.0 < human_probability <= 1.0:
        raise failure(f"--human-probability must be above 0 and at most 1, got {human_probability}")


def _write(results: "Results", battles: "Battles", out: Path) -> None:
    from app.ratings.codec import results_text
    from app.ratings.export import write_csv, write_rows
    from app.ratings.leaderboard import RESULTS_NAME
    from app.ratings.page import write_page

    try:
        (out / "rows").mkdir(parents=True, exist_ok=True)
        (out / RESULTS_NAME).write_text(results_text(results), encoding="utf-8")
        write_csv(results, out / "leaderboard.csv")
        write_rows(battles, results.board, out / "rows")
        write_page(results, out / PAGE_NAME)
    except OSError as exc:
        raise failure(f"{exc.filename or out} cannot be written: {exc.strerror}") from None


def _print(results: "Results", settings: "Settings") -> None:
    stdout = Console(highlight=False)
    # A pipe gets whole rows, too.
    stdout.width = max(stdout.width, _LEAST_WIDTH)
    for board in (results.board, *results.other_boards):
        stdout.print(_table(board, settings))
        stdout.print(_views_table(board))
    for pair in results.judges:
        correlation = pair.rank_correlation
        shown = "no rank correlation" if correlation is None else f"tau {correlation:.2f}"
        disagree = "" if pair.disagree is None else f", disagree on {pair.disagree:.1%} of battles"
        stdout.print(f"{pair.judge_a} and {pair.judge_b}: {shown}{disagree}", markup=False)
    if results.changes is not None:
        _print_changes(results, stdout)
    for note in results.board.notes:
        stdout.print(f"- {note}", markup=False, soft_wrap=not stdout.is_terminal)


def _table(board: "Board", settings: "Settings") -> Table:
    """The main view of a board."""
    main = board.views[board.main]
    title = f"{escape(board.judge)}: {board.judged} judged battles, view {board.main}"
    grouped = main.components > 1
    headings = (*(("group",) if grouped else ()), "rank", "rank set", "model")
    table = Table(*headings, title=title, title_justify="left")
    for heading in ("score", f"{settings.level:.0%} interval", "battles"):
        table.add_column(heading, justify="right")
    for rating in main.ratings:
        table.add_row(
            *((str(rating.component or ""),) if grouped else ()),
            str(rating.rank or ""),
            _rank_set(rating),
            escape(rating.model),
            _points(rating.score),
            _interval(rating),
            str(rating.battles),
        )
    return table


def _views_table(board: "Board") -> Table:
    """The scores of all views beside each other, in the order of the main view."""
    title = f"{escape(board.judge)}: scores by view"
    table = Table("model", title=title, title_justify="left")
    for name in board.views:
        table.add_column(name, justify="right")
    scores = [{each.model: each.score for each in view.ratings} for view in board.views.values()]
    for rating in board.views[board.main].ratings:
        cells = (_points(each[rating.model]) for each in scores)
        table.add_row(escape(rating.model), *cells)
    return table


def _rank_set(rating: "Rating") -> str:
    if rating.rank is None or rating.rank_low == rating.rank_high:
        return str(rating.rank or "")
    return f"{rating.rank_low}-{rating.rank_high}"


def _interval(rating: "Rating") -> str:
    if rating.score is None:
        return ""
    low = "below" if rating.low is None else f"{rating.low:.0f}"
    high = "above" if rating.high is None else f"{rating.high:.0f}"
    return f"{low} to {high}"


def _points(score: float | None) -> str:
    return "" if score is None else f"{score:.0f}"


def _print_changes(results: "Results", stdout: Console) -> None:
    changes = results.changes
    assert changes is not None
    same = "the same signature" if changes.same_signature else "another signature"
    table = Table(title=f"changes since {escape(changes.folder)}, {same}", title_justify="left")
    for heading in ("model", "rank", "score", "intervals"):
        table.add_column(heading)
    for change in changes.models:
        table.add_row(
            escape(change.model),
            f"{change.rank_before or '-'} -> {change.rank or '-'}",
            f"{_points(change.score_before) or '-'} -> {_points(change.score) or '-'}",
            "apart" if change.moved else "",
        )
    stdout.print(table)
