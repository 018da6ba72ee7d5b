"""The leaderboard as one HTML page, without external resources."""

import base64
import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from app.core.printable import printable_value
from app.files.replacing import replace_text
from app.ratings.results import (
    CENTER,
    LEVEL,
    SCALE,
    VIEWS,
    Board,
    Changes,
    LeaderboardResults,
    Rating,
    RatingChange,
    Unbounded,
    View,
    ViewName,
)

_TEMPLATE = Path(__file__).with_name("page.html.j2")
_SCRIPT = Path(__file__).with_name("page.js")
_STYLE = Path(__file__).with_name("page.css")
# A missing number, and the sign between two ranks.
_DASH = "\N{EN DASH}"
# Models that a sentence names.
_NAMED = 5
# Rows of a table that would grow with the square of the models; results.json has all.
_MOST_PAIRS = 300
_MOST_TICKS = 6
# Free room beside the outermost intervals, as a share of the axis.
_MARGIN = 0.03
_UNBOUNDED: dict[Unbounded, str] = {
    "above": "no upper bound",
    "below": "no lower bound",
    "both": "no bound",
}


class ViewWords(NamedTuple):
    """A view in plain English: its title, the battles that it counts, and why it can be wrong."""

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
        opens_left, opens_right: Whether nothing bounds it on that side.
        outside: Whether the rating itself lies outside the axis, so that it has no marker.
    """

    x: float
    low: float
    high: float
    opens_left: bool
    opens_right: bool
    outside: bool


class Row(NamedTuple):
    """A model of the main table: its rating and its interval."""

    rating: Rating
    bar: Bar | None


def write_page(results: LeaderboardResults, path: Path, title: str | None = None) -> None:
    """Writes the page; equal results write equal bytes.

    Raises:
        OSError: The file cannot be written.
    """
    replace_text(path, render_page(results, title))


def render_page(results: LeaderboardResults, title: str | None = None) -> str:
    """The page as HTML; texts of users are escaped. Without a title it names the judge."""
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
        "share": _share,
        "level": lambda value: f"{100.0 * value:g}%",
        "score": lambda value: _DASH if value is None else f"{value:.0f}",
        "points": points,
        "count": count,
        "interval": interval_text,
    }
    environment.globals |= {
        "dash": _DASH,
        "level": f"{100 * LEVEL:g}%",
        "scale": f"{SCALE:g}",
        "center": f"{CENTER:g}",
        "ranks": _ranks,
        "change_words": change_words,
        "unbounded_words": _UNBOUNDED,
    }
    script = _SCRIPT.read_text(encoding="utf-8")
    return environment.get_template(_TEMPLATE.name).render(
        results=results,
        title=title or f"Leaderboard by {results.board.judge}",
        shown=shown(results),
        change_sentences=() if results.changes is None else change_sentences(results.changes),
        titles={name: words.title for name, words in WORDS.items()},
        style=Markup(_STYLE.read_text(encoding="utf-8")),
        script=script,
        # The browser runs this script and no other, even if a text slipped through the escaping.
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _with_code(text: str) -> Markup:
    """A text as HTML in which `words` are code."""
    parts = (
        f"<code>{escape(p)}</code>" if i % 2 else escape(p) for i, p in enumerate(text.split("`"))
    )
    return Markup("".join(parts))


def _share(value: float | None) -> str:
    return _DASH if value is None else f"{100.0 * value:.1f}%"


def _ranks(low: int | None, high: int | None) -> str:
    """A set of ranks, from the best to the worst."""
    if low is None or high is None:
        return _DASH
    return f"{low}" if low == high else f"{low}{_DASH}{high}"


def points(value: float) -> str:
    """A difference of ratings with its sign."""
    text = f"{round(value):+d}" if round(value) else "0"
    return text.replace("-", "\N{MINUS SIGN}")


def interval_text(rating: Rating) -> str:
    """The interval of a rating in words; an end that nothing bounds is left open."""
    if rating.low is None and rating.high is None:
        return "no interval"
    if rating.low is None:
        return f"at most {rating.high:.0f}"
    if rating.high is None:
        return f"at least {rating.low:.0f}"
    return f"{rating.low:.0f} to {rating.high:.0f}"


def change_words(change: RatingChange) -> str:
    """The meaning of a change in a word or two."""
    if change.score_before is None:
        return "new"
    if change.score is None:
        return "gone"
    if change.change is None:
        return "not compared"
    if not change.moved:
        return "within chance"
    return "improved" if change.change > 0 else "fell"


def change_sentences(changes: Changes) -> Iterator[str]:
    """Yields what changed since previous results, and how it was compared."""
    moved = [each.model for each in changes.models if each.moved]
    verb = "changes" if len(moved) == 1 else "change"
    more = f" and {len(moved) - _NAMED} more" if len(moved) > _NAMED else ""
    yield (
        f"{count(len(moved), 'rating')} {verb} by more than chance: {', '.join(moved[:_NAMED])}"
        f"{more}. The intervals of all changes hold together, and the models with a rank in both "
        "boards have the same mean before and after."
        if moved
        else "No rating changes by more than chance. The intervals of all changes hold together."
    )
    yield changes.note


def shown(results: LeaderboardResults) -> dict[str, Any]:
    """The values that the page shows beside the fields of the results, by their template names."""
    board = results.board
    main = board.views[board.main]
    names = [board.main, *(n for n in VIEWS if n in board.views and n != board.main)]
    by_model = [{each.model: each for each in board.views[name].ratings} for name in names]
    axis = _axis([each for each in main.ratings if _if_shown(each)])
    rows = [Row(each, _bar(each, axis) if _if_shown(each) else None) for each in main.ratings]
    coverage = sorted(board.pairs, key=lambda pair: (pair.coverage is None, pair.coverage))
    return {
        # Terms and their values.
        "facts": _facts(board, results),
        "summary": _summary(main, board),
        "ranked": [row for row in rows if row.rating.rank],
        "provisional": [row for row in rows if row.rating.provisional],
        "unrated": [row for row in rows if not (row.rating.rank or row.rating.provisional)],
        # Marks of the axis of the interval bars: place in percent, and text.
        "ticks": [(axis.place(tick), f"{tick:g}") for tick in _ticks(axis)],
        "views": [(board.views[name], WORDS[name]) for name in names],
        # For each model of the main view its ratings in the order of the views.
        "scores": [
            (each.model, [_if_shown(ratings.get(each.model)) for ratings in by_model])
            for each in main.ratings
        ],
        # The lowest coverage first.
        "pairs": coverage[:_MOST_PAIRS],
        "more_pairs": len(coverage[_MOST_PAIRS:]),
    }


def _if_shown(rating: Rating | None) -> Rating | None:
    """A rating whose score the page prints: that of a provisional model would mislead."""
    is_shown = rating is not None and rating.score is not None and not rating.provisional
    return rating if is_shown else None


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
            f"{100 * LEVEL:g}%, bootstrap over questions, {settings.rounds:,} rounds, "
            f"seed {settings.seed}",
        ),
        ("Made", f"{results.made}, scope-judge {results.version}"),
    )


def count(value: int, noun: str, nouns: str | None = None) -> str:
    """A number with its noun in the right form, such as "1 battle"."""
    return f"{value:,} {noun if value == 1 else nouns or f'{noun}s'}"


def _summary(main: View, board: Board) -> str:
    """The first place in a sentence."""
    first = [each.model for each in main.ratings if each.rank_low == 1]
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
