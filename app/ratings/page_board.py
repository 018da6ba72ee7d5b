"""One judge's board as the page shows it: rows, plots, facts and shares of wins."""

from collections.abc import Sequence
from typing import NamedTuple

from scipy.special import expit

from app.ratings.page_plot import Strip, Tick, WhiskerPlot, plot_of
from app.ratings.page_words import TITLES, WORDS, ViewWords, count, share
from app.ratings.presentation import ModelFacts, Presentation, on_the_scale
from app.ratings.results import (
    VIEWS,
    Board,
    LeaderboardResults,
    ModelPair,
    Rating,
    RatingSettings,
    View,
    ViewName,
)

# Rows of a table that would grow with the square of the models; results.json has all.
_MOST_PAIRS = 300
# Models of a win matrix: beyond them a page takes seconds to lay out.
_MOST_IN_MATRIX = 100


class WinShare(NamedTuple):
    """The share of battles that a model wins against the reference, in percent.

    Args:
        share: The share that the ratings imply.
        low, high: Its interval.
    """

    share: float
    low: float
    high: float


class Row(NamedTuple):
    """A model of the main table.

    Args:
        rating: Its rating.
        facts: The publisher's facts about it.
        strip: Its interval bar.
        known: Its known rating, with the zero of the view.
        against: None without a reference, or if the two never met.
        raw_share: The same without control, in percent.
    """

    rating: Rating
    facts: ModelFacts
    strip: Strip
    known: float | None
    against: WinShare | None
    raw_share: float | None


class Group(NamedTuple):
    """Models that met each other, directly or through others: number, and rows, the best first."""

    number: int
    rows: tuple[Row, ...]


class Standing(NamedTuple):
    """A main table: the ratings of one view.

    Args:
        view: The view.
        battles: Number of the battles of all models, with errors.
        category: The kind of question; None for all battles.
        groups: Ranked models by component.
        provisional: Rated models without a rank.
        unrated: Models without a battle that counts.
        ticks: Marks of the axis of the interval bars.
        held: Number of models whose interval holds their known rating, and of all that have one.
    """

    view: View
    battles: int
    category: str | None
    groups: tuple[Group, ...]
    provisional: tuple[Row, ...]
    unrated: tuple[str, ...]
    ticks: tuple[Tick, ...]
    held: tuple[int, int]


class MatrixCell(NamedTuple):
    """A cell of a win matrix.

    Args:
        text: The share of wins.
        shade: CSS class, from "w0" (lost all) to "w8" (won all); "" without a share.
    """

    text: str
    shade: str


Comparison = tuple[tuple[str, tuple[Rating | None, ...]], ...]
Matrix = tuple[tuple[str, tuple[MatrixCell, ...]], ...]


class Shown(NamedTuple):
    """A board with what the page shows beside its fields.

    Args:
        board: The board.
        facts: Terms and their values.
        summary: Sentences at the top.
        standings: The main table, and that of each category.
        by_category: For each model its ratings in the order of `standings`.
        plots: Number of each component, and dots and whiskers of its models in all views.
        views: In the order to show.
        words: Plain English of each of these views.
        scores: For each model of the main view its ratings in the order of `views`.
        fitted: Ranked model and its cells, in the order of the main view, by the ratings; empty
            for too many models.
        outcomes: The same by the mean outcome of the battles.
        pairs: Pairs of models, the lowest coverage first.
        more_pairs: Number of pairs that are left out.
        reasons: Reasons of abstentions that occur.
    """

    board: Board
    facts: tuple[tuple[str, str], ...]
    summary: tuple[str, ...]
    standings: tuple[Standing, ...]
    by_category: Comparison
    plots: tuple[tuple[int, WhiskerPlot], ...]
    views: tuple[View, ...]
    words: tuple[ViewWords, ...]
    scores: Comparison
    fitted: Matrix
    outcomes: Matrix
    pairs: tuple[ModelPair, ...]
    more_pairs: int
    reasons: tuple[str, ...]


def shown(board: Board, results: LeaderboardResults, presentation: Presentation) -> Shown:
    """A board with what the page shows beside its fields."""
    main = board.views[board.main]
    names: list[ViewName] = [board.main]
    names += [name for name in VIEWS if name in board.views and name != board.main]
    views = tuple(board.views[name] for name in names)
    standings = tuple(
        _standing(view, battles, category, results.settings, presentation)
        for view, battles, category in (
            (main, board.battles, None),
            *((each.view, each.battles, each.name) for each in board.categories),
        )
    )
    coverage = sorted(board.pairs, key=lambda pair: (pair.coverage is None, pair.coverage))
    return Shown(
        board=board,
        facts=_facts(board, results),
        summary=tuple(_summary(board)),
        standings=standings,
        by_category=_compared([each.view for each in standings], main) if board.categories else (),
        plots=tuple(
            (number, plot_of(views, [rating.model for rating in ratings], TITLES))
            for number, ratings in _components(main)
        ),
        views=views,
        words=tuple(WORDS[name] for name in names),
        scores=_compared(views, main),
        fitted=_fitted(main, results.settings),
        outcomes=_outcomes(board, main),
        pairs=tuple(coverage[:_MOST_PAIRS]),
        more_pairs=len(coverage[_MOST_PAIRS:]),
        reasons=tuple(sorted({reason for pair in board.pairs for reason in pair.reasons})),
    )


def _components(view: View) -> list[tuple[int, tuple[Rating, ...]]]:
    """The rated models of each component, the best first."""
    numbers = sorted({each.component for each in view.ratings if each.component is not None})
    return [
        (number, tuple(each for each in view.ratings if each.component == number))
        for number in numbers
    ]


def _compared(views: Sequence[View], main: View) -> Comparison:
    """For each model of the main view its ratings in several views."""
    by_model = [{rating.model: rating for rating in view.ratings} for view in views]
    return tuple(
        (rating.model, tuple(ratings.get(rating.model) for ratings in by_model))
        for rating in main.ratings
    )


def _standing(
    view: View,
    battles: int,
    category: str | None,
    settings: RatingSettings,
    presentation: Presentation,
) -> Standing:
    components = _components(view)
    known: dict[str, float] = {}
    for _, ratings in components:
        known |= on_the_scale(presentation.known, ratings)
    plot = plot_of([view], [each.model for _, group in components for each in group], TITLES, known)
    strips = {strip.model: strip for strip in plot.strips}
    at: dict[str | None, int | None] = {each.model: each.component for each in view.ratings}
    rows = [
        _row(
            rating,
            settings,
            facts=presentation.models.get(rating.model, ModelFacts()),
            strip=strips[rating.model],
            known=known.get(rating.model),
            compares=at.get(settings.reference) == rating.component,
        )
        for _, ratings in components
        for rating in ratings
    ]
    groups = tuple(
        Group(
            number,
            tuple(
                row for row in rows if row.rating.component == number and not row.rating.provisional
            ),
        )
        for number, _ in components
    )
    marked = [row.rating for row in rows if row.known is not None]
    return Standing(
        view=view,
        battles=battles,
        category=category,
        groups=tuple(group for group in groups if group.rows),
        provisional=tuple(row for row in rows if row.rating.provisional),
        unrated=tuple(each.model for each in view.ratings if each.component is None),
        ticks=plot.ticks,
        held=(sum(_holds(each, known[each.model]) for each in marked), len(marked)),
    )


def _row(
    rating: Rating,
    settings: RatingSettings,
    *,
    facts: ModelFacts,
    strip: Strip,
    known: float | None,
    compares: bool,
) -> Row:
    """The row of a model; `compares` says whether it met the reference."""
    has_share = compares and rating.model != settings.reference
    raw = rating.raw_score
    return Row(
        rating,
        facts,
        strip,
        known,
        _against(rating, settings) if has_share else None,
        _win_share(raw - settings.centre, settings) if has_share and raw is not None else None,
    )


def _holds(rating: Rating, known: float) -> bool:
    """Whether the interval of a rating holds a score."""
    above = rating.low is None or known >= rating.low
    return above and (rating.high is None or known <= rating.high)


def _against(rating: Rating, settings: RatingSettings) -> WinShare | None:
    """A model's share of wins against the reference, whose score is the centre."""
    if rating.score is None:
        return None
    return WinShare(
        share=_win_share(rating.score - settings.centre, settings),
        low=0.0 if rating.low is None else _win_share(rating.low - settings.centre, settings),
        high=100.0 if rating.high is None else _win_share(rating.high - settings.centre, settings),
    )


def _win_share(gap: float, settings: RatingSettings) -> float:
    """Percent of the battles that a model wins which is better by a gap in points."""
    return 100.0 * float(expit(gap / settings.points))


def _facts(board: Board, results: LeaderboardResults) -> tuple[tuple[str, str], ...]:
    settings = results.settings
    battles = [count(board.battles, "battle"), f"{board.questions:,} questions"]
    if board.errors:
        battles.append(f"{board.errors:,} without a judgment")
    if board.repeated:
        battles.append(f"{board.repeated:,} copies left out")
    labelled = "none" if board.agreement is None else f"{board.agreement.labelled:,}"
    coverage = share(board.accepted / board.judged) if board.judged else "none was judged"
    return (
        ("Judge", board.judge),
        ("Models", f"{len(board.models):,}"),
        ("Battles", ", ".join(battles)),
        ("Accepted verdicts", coverage),
        ("Labelled by people", labelled),
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


def _fitted(main: View, settings: RatingSettings) -> Matrix:
    """Shares of wins between 0 and 100, by the ratings of models that compare."""
    ranked = _in_matrix(main)
    return tuple(
        (row.model, tuple(_cell(_fitted_share(row, column, settings)) for column in ranked))
        for row in ranked
    )


def _in_matrix(main: View) -> list[Rating]:
    """The models of a win matrix, the best first: those with a rank, unless there are too many."""
    ranked = [rating for rating in main.ratings if rating.rank is not None]
    return ranked if 1 < len(ranked) <= _MOST_IN_MATRIX else []


def _fitted_share(row: Rating, column: Rating, settings: RatingSettings) -> float | None:
    compare = row.model != column.model and row.component == column.component
    if not compare or row.score is None or column.score is None:
        return None
    return _win_share(row.score - column.score, settings)


def _outcomes(board: Board, main: View) -> Matrix:
    """Mean outcomes of the battles, with rows and columns in the order of the ratings."""
    place = {model: number for number, model in enumerate(board.models)}
    order = [rating.model for rating in _in_matrix(main)]
    return tuple(
        (row, tuple(_cell(_outcome(main, place[row], place[column])) for column in order))
        for row in order
    )


def _outcome(main: View, row: int, column: int) -> float | None:
    value = None if row == column else main.win_rates[row][column]
    return None if value is None else 100.0 * value


def _cell(percent: float | None) -> MatrixCell:
    if percent is None:
        return MatrixCell("", "")
    # A sum, because -0.0 would be shown with its sign.
    shade = round(8 * min(100.0, max(0.0, percent)) / 100.0)
    return MatrixCell(f"{round(percent) + 0.0:.0f}", f"w{shade}")
