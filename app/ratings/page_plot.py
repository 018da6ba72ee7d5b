"""Geometry of dots and whiskers: places in percent of the width, so that they fit a phone."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from app.ratings.results import Rating, View, ViewName

# Height of a whisker, in pixels.
_LINE_PX = 13
_MARGIN_PX = 7
_MOST_TICKS = 6
# Free room beside the outermost whiskers, as a share of the axis.
_MARGIN = 0.03


class Whisker(NamedTuple):
    """The rating of one model in one view.

    Args:
        view: Name of the view, which selects the marker.
        y: Middle of the whisker, in pixels from the top of the model's strip.
        x: Place of the marker, in percent.
        low, high: Ends of the interval, in percent.
        opens_left, opens_right: Whether the interval leaves the plot on that side.
        outside: Whether the rating itself lies outside the plot, so that it has no marker.
    """

    view: str
    y: int
    x: float
    low: float
    high: float
    opens_left: bool
    opens_right: bool
    outside: bool


class Strip(NamedTuple):
    """One model of the plot.

    Args:
        model: Name.
        whiskers: One for each view that rates the model.
        says: The same in words.
        known: Place of the known rating, in percent; None without one.
    """

    model: str
    whiskers: tuple[Whisker, ...]
    says: str
    known: float | None = None


class Tick(NamedTuple):
    """A mark of the axis: its place in percent, and its text."""

    x: float
    text: str


class WhiskerPlot(NamedTuple):
    """A plot of models on one axis.

    Args:
        strips: The models, the best first.
        ticks: The marks of the axis, from left to right.
        height: Height of a strip, in pixels.
    """

    strips: tuple[Strip, ...]
    ticks: tuple[Tick, ...]
    height: int


class _Axis(NamedTuple):
    low: float
    high: float

    def place(self, score: float) -> float:
        """Percent of the width, at least 0 and at most 100."""
        share = (score - self.low) / (self.high - self.low)
        return round(100.0 * min(1.0, max(0.0, share)), 2)


def plot_of(
    views: Sequence[View],
    models: Sequence[str],
    titles: Mapping[str, str],
    known: Mapping[str, float] | None = None,
) -> WhiskerPlot:
    """Lays out models, with a whisker for each view.

    Args:
        views: The views, from the top of a strip to its bottom.
        models: The models, the best first.
        titles: Name of a view -> its title.
        known: Known ratings by model, which are marked.
    """
    known = known or {}
    ratings = {
        (view.name, rating.model): rating
        for view in views
        for rating in view.ratings
        if rating.model in models and rating.score is not None
    }
    axis = _axis(list(ratings.values()), [known[model] for model in models if model in known])
    strips = tuple(_strip(model, views, ratings, axis, titles, known) for model in models)
    ticks = tuple(Tick(axis.place(tick), f"{tick:g}") for tick in _ticks(axis))
    return WhiskerPlot(strips, ticks, _LINE_PX * len(views) + 2 * _MARGIN_PX)


def _strip(
    model: str,
    views: Sequence[View],
    ratings: Mapping[tuple[ViewName, str], Rating],
    axis: _Axis,
    titles: Mapping[str, str],
    known: Mapping[str, float],
) -> Strip:
    whiskers, said = [], []
    for place, view in enumerate(views):
        rating = ratings.get((view.name, model))
        if rating is None or rating.score is None:
            continue
        low, high = _ends(rating, axis)
        whiskers.append(
            Whisker(
                view=view.name,
                y=_MARGIN_PX + _LINE_PX * place + _LINE_PX // 2,
                x=axis.place(rating.score),
                low=axis.place(low),
                high=axis.place(high),
                opens_left=low < axis.low,
                opens_right=high > axis.high,
                outside=not axis.low <= rating.score <= axis.high,
            )
        )
        said.append(f"{titles[view.name]} {rating.score:.0f}, {interval_text(rating)}")
    mark = None
    if model in known:
        mark = axis.place(known[model])
        said.append(f"known rating {known[model]:.0f}")
    return Strip(model, tuple(whiskers), "; ".join(said), mark)


def interval_text(rating: Rating) -> str:
    """The interval of a rating in words; an end that nothing bounds is left open."""
    if rating.low is None and rating.high is None:
        return "no interval"
    if rating.low is None:
        return f"at most {rating.high:.0f}"
    if rating.high is None:
        return f"at least {rating.low:.0f}"
    return f"{rating.low:.0f} to {rating.high:.0f}"


def _ends(rating: Rating, axis: _Axis) -> tuple[float, float]:
    """Ends of an interval; beyond the axis where nothing bounds it."""
    beyond = axis.high - axis.low
    low = axis.low - beyond if rating.low is None else rating.low
    high = axis.high + beyond if rating.high is None else rating.high
    return low, high


def _axis(ratings: Sequence[Rating], known: Sequence[float]) -> _Axis:
    """The range of the scores and intervals that are bounded, or else of all scores."""
    bounded = [rating for rating in ratings if rating.unbounded is None]
    values = [rating.score for rating in bounded or ratings if rating.score is not None]
    values += known
    for rating in bounded:
        values += [end for end in (rating.low, rating.high) if end is not None]
    low, high = min(values, default=0.0), max(values, default=0.0)
    margin = max(1.0, _MARGIN * (high - low))
    return _Axis(low - margin, high + margin)


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
