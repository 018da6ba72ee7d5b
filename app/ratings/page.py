"""The leaderboard as one HTML page, without external resources."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from app.core.printable import printable_value
from app.files.replacing import replace_text
from app.ratings import page_words
from app.ratings.page_plot import WhiskerPlot, interval_text, plot_of
from app.ratings.page_words import TITLES, WORDS, ViewWords, count, share
from app.ratings.results import (
    VIEWS,
    Board,
    Changes,
    LeaderboardResults,
    ModelPair,
    Rating,
    View,
    ViewName,
)

_TEMPLATE = Path(__file__).with_name("page.html.j2")
_SCRIPT = Path(__file__).with_name("page.js")
# Rows of a table that would grow with the square of the models; results.json has all.
_MOST_PAIRS = 300
# Models of a win matrix: beyond them a page takes seconds to lay out.
_MOST_IN_MATRIX = 100


class ConnectedModels(NamedTuple):
    """Models that met each other, directly or through others.

    Args:
        number: Number of the group.
        ratings: In the main view, the best first.
        plot: Dots and whiskers of all views.
    """

    number: int
    ratings: tuple[Rating, ...]
    plot: WhiskerPlot


class MatrixCell(NamedTuple):
    """A cell of the win matrix.

    Args:
        text: The share of wins.
        shade: CSS class, from "w0" (lost all) to "w8" (won all); "" without battles.
    """

    text: str
    shade: str


class Shown(NamedTuple):
    """A board with what the page shows beside its fields.

    Args:
        board: The board.
        facts: Terms and their values.
        summary: Sentences at the top.
        groups: Rated models by component.
        unrated: Models without a battle that counts.
        views: In the order to show.
        words: Plain English of each of these views.
        scores: For each model of the main view its ratings in the order of `views`.
        matrix: Model and its cells, in the order of the main view; empty for too many models.
        pairs: Pairs of models, the lowest coverage first.
        more_pairs: Number of pairs that are left out.
        reasons: Reasons of abstentions that occur.
    """

    board: Board
    facts: tuple[tuple[str, str], ...]
    summary: tuple[str, ...]
    groups: tuple[ConnectedModels, ...]
    unrated: tuple[str, ...]
    views: tuple[View, ...]
    words: tuple[ViewWords, ...]
    scores: tuple[tuple[str, tuple[Rating | None, ...]], ...]
    matrix: tuple[tuple[str, tuple[MatrixCell, ...]], ...]
    pairs: tuple[ModelPair, ...]
    more_pairs: int
    reasons: tuple[str, ...]


def write_page(results: LeaderboardResults, path: Path) -> None:
    """Writes the page; equal results write equal bytes.

    Raises:
        OSError: The file cannot be written.
    """
    replace_text(path, render_page(results))


def render_page(results: LeaderboardResults) -> str:
    """The page as HTML; names of models and judges are escaped."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATE.parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=printable_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "code": _with_code,
        "share": share,
        "level": page_words.level,
        "score": page_words.score,
        "signed": page_words.signed,
        "count": count,
        "interval": interval_text,
    }
    environment.globals |= {"ranks": page_words.ranks, "reason_words": page_words.REASONS}
    script = _SCRIPT.read_text(encoding="utf-8")
    return environment.get_template(_TEMPLATE.name).render(
        results=results,
        boards=[shown(board, results) for board in (results.board, *results.other_boards)],
        moved=_moved(results.changes),
        titles=TITLES,
        script=script,
        # The browser runs this script and no other, even if a text slipped through the escaping.
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def shown(board: Board, results: LeaderboardResults) -> Shown:
    """A board with what the page shows beside its fields."""
    main = board.views[board.main]
    names: list[ViewName] = [board.main]
    names += [name for name in VIEWS if name in board.views and name != board.main]
    views = tuple(board.views[name] for name in names)
    by_model = [{rating.model: rating for rating in view.ratings} for view in views]
    numbers = sorted({rating.component for rating in main.ratings if rating.component is not None})
    coverage = sorted(board.pairs, key=lambda pair: (pair.coverage is None, pair.coverage))
    return Shown(
        board=board,
        facts=_facts(board, results),
        summary=tuple(_summary(board)),
        groups=tuple(
            ConnectedModels(
                number,
                tuple(rating for rating in main.ratings if rating.component == number),
                plot_of(board, number, TITLES),
            )
            for number in numbers
        ),
        unrated=tuple(rating.model for rating in main.ratings if rating.component is None),
        views=views,
        words=tuple(WORDS[name] for name in names),
        scores=tuple(
            (rating.model, tuple(ratings.get(rating.model) for ratings in by_model))
            for rating in main.ratings
        ),
        matrix=_matrix(board, main),
        pairs=tuple(coverage[:_MOST_PAIRS]),
        more_pairs=len(coverage[_MOST_PAIRS:]),
        reasons=tuple(sorted({reason for pair in board.pairs for reason in pair.reasons})),
    )


def _facts(board: Board, results: LeaderboardResults) -> tuple[tuple[str, str], ...]:
    settings = results.settings
    battles = [count(board.battles, "battle"), f"{board.questions:,} questions"]
    if board.errors:
        battles.append(f"{board.errors:,} without a judgment")
    if board.repeated:
        battles.append(f"{board.repeated:,} copies left out")
    labelled = "none" if board.agreement is None else f"{board.agreement.labelled:,}"
    coverage = share(board.accepted / board.judged) if board.judged else "none was judged"
    scale = f"{settings.scale:g} points are odds of 10 to 1"
    centre = settings.reference or "the mean model"
    return (
        ("Models", f"{len(board.models):,}"),
        ("Battles", ", ".join(battles)),
        ("Accepted verdicts", coverage),
        ("Labelled by people", labelled),
        ("Scale", f"{scale}; {centre} has {settings.centre:g}"),
        (
            "Intervals",
            f"{100 * settings.level:g}%, bootstrap over questions, {settings.rounds:,} rounds, "
            f"seed {settings.seed}",
        ),
        ("Made", f"{results.made}, scope-judge {results.version}"),
    )


def _summary(board: Board) -> list[str]:
    """The result in sentences."""
    main = board.views[board.main]
    first = [rating for rating in main.ratings if rating.component == 1 and rating.rank_low == 1]
    sentences = []
    if len(first) == 1 and len(board.models) > 1:
        sentences.append(f"{first[0].model} is first, beyond the uncertainty of the intervals.")
    elif first:
        names = ", ".join(rating.model for rating in first[:5])
        more = f" and {len(first) - 5} more" if len(first) > 5 else ""
        sentences.append(f"The first place may belong to any of {names}{more}.")
    place = main.first_place
    if place is not None and place.dropped is not None and place.share is not None:
        least = "" if place.least else " or fewer"
        sentences.append(
            f"Without {count(place.dropped, 'battle')}{least} ({share(place.share)} of all), "
            f"{place.challenger} would be first instead of {place.model}."
        )
    return sentences


def _matrix(board: Board, main: View) -> tuple[tuple[str, tuple[MatrixCell, ...]], ...]:
    """Shares of wins, with rows and columns in the order of the ratings."""
    if not 1 < len(board.models) <= _MOST_IN_MATRIX:
        return ()
    place = {model: number for number, model in enumerate(board.models)}
    order = [rating.model for rating in main.ratings if rating.model in place]
    return tuple(
        (
            row,
            tuple(
                _cell(None if row == column else main.win_rates[place[row]][place[column]])
                for column in order
            ),
        )
        for row in order
    )


def _cell(value: float | None) -> MatrixCell:
    if value is None:
        return MatrixCell("", "")
    # A sum, because -0.0 would be shown with its sign.
    return MatrixCell(
        f"{round(100.0 * value) + 0.0:.0f}", f"w{round(8 * min(1.0, max(0.0, value)))}"
    )


def _with_code(text: str) -> Markup:
    """A text as HTML in which `words` are code."""
    parts = (
        f"<code>{escape(p)}</code>" if i % 2 else escape(p) for i, p in enumerate(text.split("`"))
    )
    return Markup("".join(parts))


def _moved(changes: Changes | None) -> Sequence[str]:
    """The models whose rating has changed beyond both intervals."""
    return [] if changes is None else [change.model for change in changes.models if change.moved]
