"""`scope-judge leaderboard`: rates models from the rows of judged battles."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from app.cli.console import CommandError, console, print_table, say, stdout
from app.cli.running import options

# The help needs none of these: functions import them.
if TYPE_CHECKING:
    from app.ratings.board import Leaderboard
    from app.ratings.results import Rating

PAGE_NAME = "leaderboard.html"


def leaderboard(
    rows: Annotated[
        list[Path],
        typer.Argument(help="Rows of `battles`: files, folders or patterns."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for results.json, the page and the tables.")],
    against: Annotated[
        Path | None,
        typer.Option(help="Folder of an earlier run, to show the changes."),
    ] = None,
    human_probability: Annotated[
        float | None,
        typer.Option(
            help="Probability that a row was drawn for labeling, if the rows do not say it."
        ),
    ] = None,
    label_noise: Annotated[
        float,
        typer.Option(help="Share of wrong human labels, in [0, 0.5)."),
    ] = 0.0,
    min_battles: Annotated[
        int,
        typer.Option(
            min=1,
            help="Judged battles that a model needs for a rank.",
        ),
    ] = 30,
    rounds: Annotated[int, typer.Option(min=100, help="Rounds of the bootstrap.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    encoding: options.Encoding = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the board in --out.")] = (
        False
    ),
) -> None:
    """Rate models from the rows that `scope-judge battles` writes.

    The columns human and human_probability hold labels of a random sample.
    """
    options.check_extra("ratings")
    if not 0.0 <= label_noise < 0.5:
        raise CommandError(f"--label-noise must be at least 0 and below 0.5, got {label_noise}")
    if human_probability is not None and not 0.0 < human_probability <= 1.0:
        raise CommandError(
            f"--human-probability must be above 0 and at most 1, got {human_probability}"
        )
    from app.ratings.leaderboard import RESULTS_NAME, leaderboard_from
    from app.ratings.results import RatingSettings
    from app.ratings.rows import read_battles

    settings = RatingSettings(
        rounds=rounds,
        seed=seed,
        min_battles=min_battles,
    )
    if title is not None and not title.strip():
        raise CommandError("--title is empty")
    if (out / RESULTS_NAME).exists() and not overwrite:
        raise CommandError(
            f"{out} already has a board: name another --out, or replace it with --overwrite"
        )
    begun = time.monotonic()
    made = datetime.now(UTC).isoformat(timespec="seconds")
    battles = read_battles(
        rows, human_probability=human_probability, label_noise=label_noise, encoding=encoding
    )
    with console.status("rating"):
        found = leaderboard_from(battles, settings, made=made, against=against)
    _write(found, title, out)
    _print(found)
    say((f"{time.monotonic() - begun:.1f} s", "dim"), f"  {out / PAGE_NAME}")


def _write(found: "Leaderboard", title: str | None, out: Path) -> None:
    from app.ratings.leaderboard import write_leaderboard
    from app.ratings.page import write_page

    try:
        out.mkdir(parents=True, exist_ok=True)
        write_leaderboard(found, out)
        write_page(found.results, out / PAGE_NAME, title)
    except OSError as exc:
        raise CommandError(f"{exc.filename or out} cannot be written: {exc.strerror}") from None


def _print(found: "Leaderboard") -> None:
    """Prints the main view of a board, the changes and the notes."""
    from app.ratings.page import change_sentences
    from app.ratings.results import LEVEL

    board = found.results.board
    main = board.views[board.main]
    failures = board.errors > 0
    table = Table("rank", "rank set", "model")
    for heading in ("score", f"{LEVEL:.0%} interval", "battles"):
        table.add_column(heading, justify="right")
    if failures:
        table.add_column("failed", justify="right")
    for provisional in (False, True):
        for rating in main.ratings:
            if rating.provisional is provisional:
                table.add_row(
                    str(rating.rank or ""),
                    "provisional" if provisional else _rank_set(rating),
                    rating.model,
                    _points(rating),
                    _interval(rating),
                    str(rating.battles),
                    *((str(rating.failed),) if failures else ()),
                )
        table.add_section()
    title = f"{board.judge}: {board.judged} judged battles, view {board.main}"
    print_table(table, title=title)
    changes = [] if found.results.changes is None else change_sentences(found.results.changes)
    for note in [*changes, *board.notes]:
        say(f"- {note}", output=stdout)


def _rank_set(rating: "Rating") -> str:
    if rating.rank is None or rating.rank_low == rating.rank_high:
        return str(rating.rank or "")
    return f"{rating.rank_low}-{rating.rank_high}"


def _interval(rating: "Rating") -> str:
    if rating.score is None or rating.provisional:
        return ""
    low = "below" if rating.low is None else f"{rating.low:.0f}"
    high = "above" if rating.high is None else f"{rating.high:.0f}"
    return f"{low} to {high}"


def _points(rating: "Rating") -> str:
    """The score; that of a provisional model would mislead."""
    return "-" if rating.score is None or rating.provisional else f"{rating.score:.0f}"
