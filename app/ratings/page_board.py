"""The board as the page shows it: rows, interval bars and facts."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from app.ratings.results import (
    VIEWS,
    Board,
    LeaderboardResults,
    ModelPair,
    Rating,
    View,
    ViewName,
)

# Rows of a table that would grow with the square of the models; results.json has all.
_MOST_PAIRS = 300
_MOST_TICKS = 6
# Free room beside the outermost intervals, as a share of the axis.
_MARGIN = 0.03


class ViewWords(NamedTuple):
    """A view in plain English.

    Args:
        title: A few words.
        counts: The battles that it counts, and how.
        beware: The reason why it can be wrong.
    """

    title: str
    counts: str
    beware: str


WORDS: dict[ViewName, ViewWords] = {
    "debiased": ViewWords(
        "Corrected by people",
        "Counts the judge's probability on every battle, and corrects it by the battles that "
        "people labeled. Each labeled battle weighs as many battles as its draw stands for.",
        "It needs labels of a random sample whose probabilities are known. Then it estimates the "
        "rating that people would give, whatever the judge prefers.",
    ),
    "soft": ViewWords(
        "All battles, by probability",
        "Counts every judged battle by the judge's probability that the first model is better.",
        "Nothing is dropped. An unsure judge makes the gaps look smaller than they are, and a "
        "judge that prefers a style shifts the ratings.",
    ),
    "accepted": ViewWords(
        "Accepted verdicts only",
        "Counts the verdicts that the judge gave, and drops its abstentions.",
        "Abstentions are not missing at random: close battles abstain more often. So the gaps are "
        "those of clearer battles, while wrong verdicts among them shrink the gaps.",
    ),
    "abstain_as_tie": ViewWords(
        "Abstentions as ties",
        "Counts a verdict as a win and an abstention as half a win for each model.",
        "Nothing is dropped. An abstention often has a better side that the judge could not name, "
        "so the gaps look smaller than they are.",
    ),
    "people": ViewWords(
        "People alone",
        "Counts the labeled battles only, each by the probability of its draw.",
        "The judge has no influence. The intervals are wide, because the labels are few.",
    ),
}


class Bar(NamedTuple):
    """The interval of a rating in percent of the axis.

    Args:
        x: Place of the rating.
        low, high: Ends of the interval.
        opens_left, opens_right: Whether nothing bounds it on that side.
        outside: Whether the rating itself lies outside the axis, so that it has no marker.
    """

    x: float
    low: float
    high: float
    opens_left: bool
    opens_right: bool
    outside: bool


class Tick(NamedTuple):
    """A mark of the axis: its place in percent, and its text."""

    x: float
    text: str


class Row(NamedTuple):
    """A model of the main table: its rating and its interval."""

    rating: Rating
    bar: Bar | None


class Group(NamedTuple):
    """Models that met each other, directly or through others: number, and rows, the best first."""

    number: int
    rows: tuple[Row, ...]


class Shown(NamedTuple):
    """A board with what the page shows beside its fields.

    Args:
        board: The board.
        facts: Terms and their values.
        summary: Sentence at the top; "" without a ranked model.
        groups: Ranked models of the main table by component.
        provisional: Provisional models.
        unrated: Models without a battle that counts.
        ticks: Marks of the axis of the interval bars.
        views: In the order to show, each with its words.
        scores: For each model of the main view its ratings in the order of `views`.
        pairs: Pairs of models, the lowest coverage first.
        more_pairs: Number of pairs that are left out.
        reasons: Reasons of abstentions that occur.
    """

    board: Board
    facts: tuple[tuple[str, str], ...]
    summary: str
    groups: tuple[Group, ...]
    provisional: tuple[Row, ...]
    unrated: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    views: tuple[tuple[View, ViewWords], ...]
    scores: tuple[tuple[str, tuple[Rating | None, ...]], ...]
    pairs: tuple[ModelPair, ...]
    more_pairs: int
    reasons: tuple[str, ...]


def shown(results: LeaderboardResults) -> Shown:
    """The board with what the page shows beside its fields."""
    board = results.board
    main = board.views[board.main]
    names = [board.main, *(n for n in VIEWS if n in board.views and n != board.main)]
    by_model = [{each.model: each for each in board.views[name].ratings} for name in names]
    axis = _axis([each for each in main.ratings if is_shown(each)])
    rows = [Row(each, _bar(each, axis) if is_shown(each) else None) for each in main.ratings]
    numbers = sorted({each.component for each in main.ratings if each.rank and each.component})
    coverage = sorted(board.pairs, key=lambda pair: (pair.coverage is None, pair.coverage))
    return Shown(
        board=board,
        facts=_facts(board, results),
        summary=_summary(main, board),
        groups=tuple(
            Group(
                number,
                tuple(row for row in rows if row.rating.rank and row.rating.component == number),
            )
            for number in numbers
        ),
        provisional=tuple(row for row in rows if row.rating.provisional),
        unrated=tuple(row for row in rows if not (row.rating.rank or row.rating.provisional)),
        ticks=tuple(Tick(axis.place(tick), f"{tick:g}") for tick in _ticks(axis)),
        views=tuple((board.views[name], WORDS[name]) for name in names),
        scores=tuple(
            (each.model, tuple(_if_shown(ratings.get(each.model)) for ratings in by_model))
            for each in main.ratings
        ),
        pairs=tuple(coverage[:_MOST_PAIRS]),
        more_pairs=len(coverage[_MOST_PAIRS:]),
        reasons=tuple(sorted({reason for pair in board.pairs for reason in pair.reasons})),
    )


def is_shown(rating: Rating) -> bool:
    """Whether a page prints the score: that of a provisional model would mislead."""
    return rating.score is not None and not rating.provisional


def _if_shown(rating: Rating | None) -> Rating | None:
    return rating if rating is not None and is_shown(rating) else None


def _facts(board: Board, results: LeaderboardResults) -> tuple[tuple[str, str], ...]:
    settings = results.settings
    battles = f"{count(board.battles, 'battle')}, {count(board.questions, 'question')}"
    if board.errors:
        battles += f", {board.errors:,} without a judgment"
    if board.repeated:
        battles += f", {count(board.repeated, 'copy', 'copies')} left out"
    labeled = "none" if board.agreement is None else f"{board.agreement.labelled:,}"
    coverage = f"{100.0 * board.accepted / board.judged:.1f}%" if board.judged else "none"
    return (
        ("Judge", board.judge),
        ("Models", f"{len(board.models):,}"),
        ("Battles", battles),
        ("Accepted verdicts", coverage),
        ("Labeled by people", labeled),
        (
            "Intervals",
            f"{100 * settings.level:g}%, bootstrap over questions, {settings.rounds:,} rounds, "
            f"seed {settings.seed}",
        ),
        ("Made", f"{results.made}, scope-judge {results.version}"),
    )


def count(value: int, noun: str, nouns: str | None = None) -> str:
    """A number with its noun in the right form, such as "1 battle"."""
    return f"{value:,} {noun if value == 1 else nouns or f'{noun}s'}"


def _summary(main: View, board: Board) -> str:
    """The first place in a sentence."""
    first = [each.model for each in main.ratings if each.component == 1 and each.rank_low == 1]
    if len(first) == 1 and len(board.models) > 1:
        return f"{first[0]} is first, beyond the uncertainty of the intervals."
    more = f" and {len(first) - 5} more" if len(first) > 5 else ""
    names = ", ".join(first[:5])
    return f"The first place may belong to any of {names}{more}." if first else ""


class _Axis(NamedTuple):
    low: float
    high: float

    def place(self, score: float) -> float:
        """Percent of the width, at least 0 and at most 100."""
        share = (score - self.low) / (self.high - self.low)
        return round(100.0 * min(1.0, max(0.0, share)), 2)


def _axis(ratings: Sequence[Rating]) -> _Axis:
    """The range of the scores and intervals that are bounded, or else of all scores."""
    bounded = [rating for rating in ratings if rating.unbounded is None]
    values = [rating.score for rating in bounded or ratings]
    values += [end for rating in bounded for end in (rating.low, rating.high)]
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    margin = max(1.0, _MARGIN * (high - low))
    return _Axis(low - margin, high + margin)


def _bar(rating: Rating, axis: _Axis) -> Bar:
    assert rating.score is not None, "a shown rating has a score"
    low = -math.inf if rating.low is None else rating.low
    high = math.inf if rating.high is None else rating.high
    return Bar(
        x=axis.place(rating.score),
        low=axis.place(max(low, axis.low)),
        high=axis.place(min(high, axis.high)),
        opens_left=low < axis.low,
        opens_right=high > axis.high,
        outside=not axis.low <= rating.score <= axis.high,
    )


def _ticks(axis: _Axis) -> Iterator[float]:
    """Round numbers on the axis."""
    rough = (axis.high - axis.low) / _MOST_TICKS
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    number = math.ceil(axis.low / step)
    while number * step <= axis.high:
        # A sum, because -0.0 would be shown with its sign.
        yield number * step + 0.0
        number += 1
