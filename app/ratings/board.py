"""From the battles of a judge to its board: all views with intervals, ranks and robustness."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from app.core.errors import InvalidRequestError
from app.ratings.agreement import agreement_of
from app.ratings.battles import UNNAMED, Battles
from app.ratings.bootstrap import Cells, Games, cells_of, replicates
from app.ratings.bradley_terry import (
    Bools,
    Floats,
    Solution,
    Structure,
    centre_shares,
    centred,
    covariance,
    information_of,
    ratings,
    structure_of,
    sums,
)
from app.ratings.dropping import first_place
from app.ratings.intervals import (
    Intervals,
    RankSets,
    intervals_of,
    rank_sets,
    unsolved_of,
)
from app.ratings.notes import FEW_UNITS, notes_of
from app.ratings.outcomes import Outcomes, debiased, games_of, views_of
from app.ratings.pairs import pairs_of, win_rates_of
from app.ratings.results import (
    Board,
    Category,
    FirstPlace,
    Rating,
    RatingSettings,
    StyleEffect,
    Unbounded,
    View,
    ViewName,
)
from app.ratings.rounds import RatedBoard, Rounds
from app.ratings.style import (
    Features,
    controlled,
    controlled_replicates,
    features_of,
    within_battles,
)
from app.ratings.tuning import judge_weights

# Share of the rounds without finite ratings beyond which a view is no main view.
_MOST_UNSOLVED = 0.5
# Views that the table can show, the most trustworthy first.
_MAIN: tuple[ViewName, ...] = ("debiased", "soft", "abstain_as_tie")
# Tabs that a reader can overlook; each costs the bootstrap of two views.
_MOST_CATEGORIES = 20


@dataclass(frozen=True, kw_only=True)
class _Point:
    """One view, rated without its uncertainty.

    Args:
        name: Name of the view.
        outcomes: The battles that the view counts.
        games, cells: The same, by battle and by pair.
        structure: Structure of the battles.
        features: Surface features that are held equal; none without `control`.
        solution: Shape (models + f,). Ratings and effects of the features, in logits.
        judge_weight: Mean weight of the judge in "debiased"; None for another view.
        raw: Shape (models,). With `control`, the ratings without it; else None.
    """

    name: ViewName
    outcomes: Outcomes
    games: Games
    cells: Cells
    structure: Structure
    features: Features
    solution: Floats
    judge_weight: float | None = None
    raw: Floats | None = None


class _Standing(NamedTuple):
    """How much the battles of each model tell, the same in all views.

    Args:
        established: Shape (models,). Whether the model has enough judged battles for a rank.
        weight: Shape (models,). Fisher information of its judged battles; 0 if it has not.
    """

    established: Bools
    weight: Floats


def board_of(battles: Battles, settings: RatingSettings) -> Board:
    """The board of `rated`."""
    return rated(battles, settings).board


def rated(battles: Battles, settings: RatingSettings) -> RatedBoard:
    """Rates the models of one judge's battles.

    Raises:
        InvalidRequestError: The reference is not a model of the battles, or features are missing.
    """
    if settings.reference is not None and settings.reference not in battles.models:
        raise InvalidRequestError(
            f"the reference {settings.reference!r} is not a model of these battles: "
            f"{', '.join(battles.models[:20])}"
        )
    views, theta = _views(battles, views_of(battles), settings)
    kinds = Counter(battles.category[battles.category >= 0].tolist()).most_common()
    if len(kinds) == 1:
        kinds = []
    categories = [_category(battles, kind, settings) for kind, _ in kinds[:_MOST_CATEGORIES]]
    accepted = battles.judged & ~np.isnan(battles.verdict)
    board = Board(
        judge=battles.judge,
        signature=battles.signature,
        alpha=battles.alpha,
        guarantee=battles.guarantee,
        models=battles.models,
        battles=battles.n + battles.placeless,
        judged=int(battles.judged.sum()),
        errors=int((~battles.judged).sum()) + battles.placeless,
        accepted=int(accepted.sum()),
        repeated=battles.repeated,
        label_noise=battles.label_noise,
        questions=battles.units,
        main=_main(battles, views),
        views=views,
        pairs=pairs_of(battles),
        win_rates=win_rates_of(battles),
        agreement=agreement_of(battles, level=settings.level),
        notes=(),
        categories=tuple(each for each in categories if each is not None),
        more_categories=len(kinds[_MOST_CATEGORIES:]),
    )
    keys = np.unique(battles.keys)
    return RatedBoard(
        board=replace(board, notes=notes_of(board, settings)),
        rounds=Rounds(keys=keys[keys < UNNAMED], theta=theta),
    )


def _views(
    battles: Battles, outcomes: Mapping[ViewName, Outcomes], settings: RatingSettings
) -> tuple[dict[str, View], dict[ViewName, Floats]]:
    """The views, and for each the ratings of its bootstrap, of shape (rounds, models)."""
    points = [
        _debiased_point(battles, settings)
        if name == "debiased"
        else _point(battles, name, counted, settings)
        for name, counted in outcomes.items()
    ]
    standing = _standing(battles, points, settings)
    rounds = _rounds(points, settings)
    views: dict[str, View] = {
        point.name: _view(battles, point, drawn, standing, settings)
        for point, drawn in zip(points, rounds, strict=True)
    }
    theta = {
        point.name: drawn.theta[:, : len(battles.models)]
        for point, drawn in zip(points, rounds, strict=True)
    }
    return views, theta


def _category(battles: Battles, kind: int, settings: RatingSettings) -> Category | None:
    """The ratings of one kind of question; None if none of its battles counts."""
    own = battles.where(battles.category == kind)
    view = main_view(own, settings)
    if view is None:
        return None
    return Category(
        name=battles.categories[kind],
        battles=own.n,
        labelled=int(own.labelled.sum()),
        view=view,
    )


def main_view(battles: Battles, settings: RatingSettings) -> View | None:
    """The view that the table shows, without the others; None if none of its battles counts."""
    # A bootstrap of the views that no reader sees would take most of the time.
    counted = {name: view for name, view in views_of(battles).items() if name in _MAIN}
    if not counted:
        return None
    views, _ = _views(battles, counted, settings)
    return views[_main(battles, views)]


def _debiased_point(battles: Battles, settings: RatingSettings) -> _Point:
    weights = judge_weights(battles)
    point = _point(battles, "debiased", debiased(battles, weights), settings)
    return replace(point, judge_weight=float(weights[battles.judged].mean()))


def _point(
    battles: Battles, name: ViewName, outcomes: Outcomes, settings: RatingSettings
) -> _Point:
    games = games_of(battles, outcomes)
    cells = cells_of(games)
    structure = structure_of(cells.whole, _reference(battles, settings))
    prior_sd = settings.prior_sd / settings.points
    solution = ratings(cells.whole, structure, prior_sd=prior_sd)
    raw = None if settings.control is None else solution
    if settings.control is None:
        features = Features((), np.zeros((len(games.first), 0)))
    elif battles.style is None:
        raise InvalidRequestError(
            "the rows lack length_a, length_b, headers_a, headers_b, bold_a, bold_b, lists_a or "
            "lists_b: `scope-judge battles` writes them, --control needs them"
        )
    else:
        features = features_of(battles.style[outcomes.counted])
        games = within_battles(games, cells)
        solution = controlled(games, cells, features.values, prior_sd=prior_sd)
    return _Point(
        name=name,
        outcomes=outcomes,
        games=games,
        cells=cells,
        structure=structure,
        features=features,
        solution=solution,
        raw=raw,
    )


def _standing(battles: Battles, points: Sequence[_Point], settings: RatingSettings) -> _Standing:
    games = games_of(battles, Outcomes(battles.judged, np.ones(battles.n), np.full(battles.n, 0.5)))
    tally = cells_of(games).whole
    played = sums(tally.first, tally.weight, tally.models)
    played += sums(tally.second, tally.weight, tally.models)
    established = played >= settings.min_battles
    point = next((point for point in points if point.name == "soft"), points[0])
    weight = information_of(tally, np.nan_to_num(point.solution[: tally.models]))
    return _Standing(established, np.where(established, weight, 0.0))


def _main(battles: Battles, views: Mapping[str, View]) -> ViewName:
    """The first view with enough questions, and finite ratings in most rounds."""
    available = [name for name in _MAIN if name in views]
    solved = [name for name in available if (views[name].unsolved or 0.0) <= _MOST_UNSOLVED]
    if len(np.unique(battles.unit[battles.labelled])) < FEW_UNITS:
        solved = [name for name in solved if name != "debiased"]
    return (solved or available)[0]


def _reference(battles: Battles, settings: RatingSettings) -> int | None:
    return None if settings.reference is None else battles.models.index(settings.reference)


def _rounds(points: list[_Point], settings: RatingSettings) -> list[Solution]:
    """Shape (rounds, models + f) for each view, by the same draws; no pull with control."""
    prior_sd = settings.prior_sd / settings.points
    if settings.control is None:
        return replicates(
            [point.cells for point in points],
            [point.solution for point in points],
            rounds=settings.rounds,
            seed=settings.seed,
            prior_sd=prior_sd,
        )
    drawn = (
        controlled_replicates(
            point.games,
            point.cells,
            point.features.values,
            point.solution,
            rounds=settings.rounds,
            seed=settings.seed,
            prior_sd=prior_sd,
        )
        for point in points
    )
    return [Solution(each, np.zeros_like(each)) for each in drawn]


def _view(
    battles: Battles,
    point: _Point,
    drawn: Solution,
    standing: _Standing,
    settings: RatingSettings,
) -> View:
    m, level = len(battles.models), settings.level
    reference = _reference(battles, settings)
    unsolved = unsolved_of(drawn.pull[:, :m], point.structure, standing.established, reference)
    structure = unsolved.structure
    shares = centre_shares(structure, standing.weight, reference)
    theta = centred(point.solution[:m], structure, shares)
    rounds = centred(drawn.theta[:, :m], structure, shares)
    prior_sd = settings.prior_sd / settings.points
    spread = covariance(point.cells.whole, np.nan_to_num(theta), prior_sd=prior_sd)
    deviation = _implied_deviations(spread, structure, shares)
    few = ~standing.established
    ranked = ~(few | (structure.no_floor & structure.no_ceiling)) & (structure.component >= 0)
    return View(
        name=point.name,
        battles=len(point.games.first),
        questions=len(np.unique(point.games.unit)),
        components=int(structure.component.max(initial=-1)) + 1,
        ratings=_ratings(
            battles,
            replace(point, structure=structure),
            theta,
            shares,
            intervals_of(theta, rounds, deviation, structure, level=level, few=few),
            rank_sets(theta, rounds, spread, structure, level=level, ranked=ranked),
            settings,
        ),
        win_rates=_win_rates(point.cells),
        first_place=_first_place(
            battles, point, theta, ranked & (structure.component == 0), prior_sd
        ),
        style=_effects(point.features, point.solution[m:], drawn.theta[:, m:], settings),
        judge_weight=point.judge_weight,
        unsolved=None if settings.control else unsolved.share,
    )


def _implied_deviations(spread: Floats, structure: Structure, shares: Floats) -> Floats:
    """Shape (models,). Standard deviations that the model implies for ratings less their zero."""
    identity = np.eye(len(spread))
    # Rows are the ratings less their zero, as combinations of the ratings.
    rows = np.nan_to_num(centred(identity, structure, shares).T)
    return np.asarray(np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", rows, spread, rows), 0.0)))


def _ratings(
    battles: Battles,
    point: _Point,
    theta: Floats,
    shares: Floats,
    intervals: Intervals,
    ranks: RankSets,
    settings: RatingSettings,
) -> tuple[Rating, ...]:
    """Best first, by component; then the provisional models, and those without battles last."""
    component, m = point.structure.component, len(battles.models)
    raw = None if point.raw is None else centred(point.raw, point.structure, shares)
    played = np.bincount(point.games.first, minlength=m)
    played += np.bincount(point.games.second, minlength=m)
    order = sorted(
        range(m),
        key=lambda i: (
            component[i] < 0,
            ranks.low[i] == 0,
            component[i],
            -np.nan_to_num(theta[i]),
        ),
    )
    rows, place = list[Rating](), dict[int, int]()
    for i in order:
        number = int(component[i])
        rated, ranked = number >= 0, bool(ranks.low[i])
        place[number] = place.get(number, 0) + ranked
        rows.append(
            Rating(
                model=battles.models[i],
                battles=int(played[i]),
                score=_score(theta[i], settings),
                low=_score(intervals.low[i], settings),
                high=_score(intervals.high[i], settings),
                rank=place[number] if ranked else None,
                rank_low=int(ranks.low[i]) if ranked else None,
                rank_high=int(ranks.high[i]) if ranked else None,
                component=number + 1 if rated else None,
                unbounded=_unbounded(point.structure, i) if rated else None,
                provisional=rated and not ranked,
                centre_share=float(shares[i]) if rated else None,
                raw_score=None if raw is None else _score(raw[i], settings),
            )
        )
    return tuple(rows)


def _unbounded(structure: Structure, model: int) -> Unbounded | None:
    above, below = bool(structure.no_ceiling[model]), bool(structure.no_floor[model])
    if above and below:
        return "both"
    return "above" if above else "below" if below else None


def _score(theta: float, settings: RatingSettings) -> float | None:
    """A rating on the Elo scale; None for one that is not finite."""
    score = settings.centre + settings.points * float(theta)
    return score if np.isfinite(score) else None


def _win_rates(cells: Cells) -> tuple[tuple[float | None, ...], ...]:
    whole = cells.whole
    table = np.full((whole.models, whole.models), np.nan)
    share = whole.points / whole.weight
    table[whole.first, whole.second] = share
    table[whole.second, whole.first] = 1.0 - share
    return tuple(tuple(None if x != x else x for x in row) for row in table.tolist())


def _first_place(
    battles: Battles, point: _Point, theta: Floats, ranked: Bools, prior_sd: float
) -> FirstPlace | None:
    """None with `control`, which the search does not know."""
    if point.features.names:
        return None
    names = tuple(battles.names[row] for row in np.flatnonzero(point.outcomes.counted))
    return first_place(
        point.games,
        point.cells,
        theta,
        ranked,
        models=battles.models,
        names=names,
        prior_sd=prior_sd,
    )


def _effects(
    features: Features, effects: Floats, drawn: Floats, settings: RatingSettings
) -> tuple[StyleEffect, ...]:
    reach = float(ndtri(0.5 + settings.level / 2.0)) * drawn.std(axis=0) * settings.points
    points = effects * settings.points
    return tuple(
        StyleEffect(feature=name, effect=effect, low=effect - width, high=effect + width)
        for name, effect, width in zip(features.names, points.tolist(), reach.tolist(), strict=True)
    )
