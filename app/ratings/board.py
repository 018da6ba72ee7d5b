"""From the battles of a judge to its board: all views with intervals and rank sets.

Provisional models enter no sum: battles with one are left out before anything is fitted, so that
six battles of a new model cannot move the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from app.core.errors import InvalidRequestError
from app.ratings.battles import UNNAMED, Battles
from app.ratings.bootstrap import Cells, Games, Keys, cells_of, replicates
from app.ratings.bradley_terry import (
    Bools,
    Floats,
    Ints,
    Solution,
    Structure,
    center_shares,
    centered,
    covariance,
    information_of,
    largest_group,
    ratings,
    structure_of,
)
from app.ratings.counts import agreement_of, pairs_of
from app.ratings.intervals import intervals_of, rank_sets, unsolved_of
from app.ratings.notes import FEW_UNITS, notes_of
from app.ratings.outcomes import Outcomes, games_of, views_of
from app.ratings.results import (
    CENTER,
    POINTS,
    PRIOR_SD,
    Board,
    LeaderboardResults,
    Rating,
    RatingSettings,
    Unbounded,
    View,
    ViewName,
)

# Share of the rounds without finite ratings beyond which a view is no main view.
_MOST_UNSOLVED = 0.5
# Views that the table can show, the most trustworthy first.
_MAIN: tuple[ViewName, ...] = ("debiased", "soft", "abstain_as_tie", "people")


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """The bootstrap of a board.

    Args:
        keys: Shape (units,). Keys of the units that have a name, in ascending order.
        theta: For each view shape (rounds, models): ratings in logits, for the models in the order
            of Board.models. Their zero is free.
    """

    keys: Keys
    theta: Mapping[ViewName, Floats]


class Leaderboard(NamedTuple):
    """The results of a leaderboard, and the bootstrap of its board, for the next results."""

    results: LeaderboardResults
    rounds: Rounds


@dataclass(frozen=True, kw_only=True)
class _Point:
    """One view, rated without its uncertainty.

    Args:
        played: Shape (models,). Battles that the view counts, with those of provisional models.
        games, cells: The battles that are fitted, one by one and by pair.
        theta: Shape (models,). Ratings, in logits.
    """

    name: ViewName
    played: Ints
    games: Games
    cells: Cells
    structure: Structure
    theta: Floats


def rated(battles: Battles, settings: RatingSettings) -> tuple[Board, Rounds]:
    """Rates the models of one judge's battles, and keeps the bootstrap for later comparisons.

    Raises:
        InvalidRequestError: There is nothing to rank by.
    """
    established = battles.played(battles.judged) >= settings.min_battles
    fitted = battles
    both = established[battles.first] & established[battles.second]
    if both.any():
        fitted = battles.where(both)
    points = [
        _point(name, outcomes, battles, fitted) for name, outcomes in views_of(battles).items()
    ]
    if not points:
        raise InvalidRequestError(
            "there is nothing to rank by: no verdict was accepted, and the rows have neither p_bar "
            "nor labels of people"
        )
    rounds = replicates(
        [point.cells for point in points],
        [point.theta for point in points],
        rounds=settings.rounds,
        seed=settings.seed,
        prior_sd=PRIOR_SD,
    )
    weight = _weights(fitted, points, established)
    views: dict[str, View] = {
        point.name: _view(point, drawn, weight, battles, established)
        for point, drawn in zip(points, rounds, strict=True)
    }
    board = Board(
        judge=battles.judge,
        signature=battles.signature,
        alpha=battles.alpha,
        guarantee=battles.guarantee,
        models=battles.models,
        battles=battles.n + battles.placeless,
        judged=int(battles.judged.sum()),
        errors=int((~battles.judged).sum()) + battles.placeless,
        accepted=int(battles.accepted.sum()),
        repeated=battles.repeated,
        label_noise=battles.label_noise,
        questions=battles.units,
        main=_main(fitted, views),
        views=views,
        pairs=pairs_of(battles),
        agreement=agreement_of(battles),
        notes=(),
    )
    keys = np.unique(fitted.keys)
    theta = {point.name: drawn.theta for point, drawn in zip(points, rounds, strict=True)}
    board = replace(board, notes=notes_of(board, settings))
    return board, Rounds(keys=keys[keys < UNNAMED], theta=theta)


def _point(name: ViewName, outcomes: Outcomes, battles: Battles, fitted: Battles) -> _Point:
    counted = views_of(fitted).get(name)
    if counted is None:
        nothing = np.zeros(fitted.n)
        counted = Outcomes(np.zeros(fitted.n, dtype=bool), nothing, nothing)
    of_view = counted.counted
    met = largest_group(len(fitted.models), fitted.first[of_view], fitted.second[of_view])
    games = games_of(fitted, counted._replace(counted=of_view & met[fitted.first]))
    cells = cells_of(games)
    structure = structure_of(cells.whole)
    return _Point(
        name=name,
        played=battles.played(outcomes.counted),
        games=games,
        cells=cells,
        structure=structure,
        theta=ratings(cells.whole, structure, prior_sd=PRIOR_SD),
    )


def _weights(fitted: Battles, points: list[_Point], established: Bools) -> Floats:
    """Shape (models,). Fisher information of the judged battles of established models."""
    half = Outcomes(fitted.judged, np.ones(fitted.n), np.full(fitted.n, 0.5))
    tally = cells_of(games_of(fitted, half)).whole
    point = next((point for point in points if point.name == "soft"), points[0])
    weight = information_of(tally, np.nan_to_num(point.theta))
    return np.where(established, weight, 0.0)


def _main(fitted: Battles, views: Mapping[str, View]) -> ViewName:
    """The first view with enough questions, and finite ratings in most rounds."""
    available = [name for name in _MAIN if name in views]
    solved = [name for name in available if views[name].unsolved <= _MOST_UNSOLVED]
    if len(np.unique(fitted.unit[fitted.labeled])) < FEW_UNITS:
        solved = [name for name in solved if name != "debiased"]
    return (solved or available)[0]


def _view(
    point: _Point,
    drawn: Solution,
    weight: Floats,
    battles: Battles,
    established: Bools,
) -> View:
    unsolved, structure = unsolved_of(drawn.pull, point.structure, established)
    shares = center_shares(structure, weight)
    theta = centered(point.theta, structure, shares)
    rounds = centered(drawn.theta, structure, shares)
    spread = covariance(point.cells.whole, np.nan_to_num(theta), prior_sd=PRIOR_SD)
    deviation = _implied_deviations(spread, structure, shares)
    ranked = structure.rated & established & ~(structure.no_floor & structure.no_ceiling)
    return View(
        name=point.name,
        battles=len(point.games.first),
        questions=len(np.unique(point.games.unit)),
        ratings=_ratings(
            replace(point, structure=structure, theta=theta),
            shares,
            intervals_of(theta, rounds, deviation, structure, ~established),
            rank_sets(theta, rounds, spread, structure, ranked=ranked),
            battles,
            established,
        ),
        unsolved=unsolved,
    )


def _implied_deviations(spread: Floats, structure: Structure, shares: Floats) -> Floats:
    """Shape (models,). Standard deviations that the model implies for ratings less their zero."""
    identity = np.eye(len(spread))
    # Rows are the ratings less their zero, as combinations of the ratings.
    rows = np.nan_to_num(centered(identity, structure, shares).T)
    return np.asarray(np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", rows, spread, rows), 0.0)))


def _ratings(
    point: _Point,
    shares: Floats,
    intervals: tuple[Floats, Floats],
    ranks: tuple[Ints, Ints],
    battles: Battles,
    established: Bools,
) -> tuple[Rating, ...]:
    """Best first; then the provisional models, and those without a rating last."""
    is_rated, theta = point.structure.rated.tolist(), point.theta
    models, failed = battles.models, battles.played(~battles.judged)
    few = ~established & (battles.played(battles.judged) > 0)
    (low, high), (rank_low, rank_high) = intervals, ranks
    order = sorted(
        range(len(models)),
        key=lambda i: (
            not (is_rated[i] or few[i]),
            rank_low[i] == 0,
            -np.nan_to_num(theta[i]),
        ),
    )
    rows = list[Rating]()
    for place, i in enumerate(order, start=1):
        ranked = bool(rank_low[i])
        rows.append(
            Rating(
                model=models[i],
                battles=int(point.played[i]),
                failed=int(failed[i]),
                score=_score(theta[i]),
                low=_score(low[i]),
                high=_score(high[i]),
                rank=place if ranked else None,
                rank_low=int(rank_low[i]) if ranked else None,
                rank_high=int(rank_high[i]) if ranked else None,
                unbounded=_unbounded(point.structure, i) if is_rated[i] else None,
                provisional=bool(few[i]) or (is_rated[i] and not ranked),
                center_share=float(shares[i]) if is_rated[i] else None,
            )
        )
    return tuple(rows)


def _unbounded(structure: Structure, model: int) -> Unbounded | None:
    above, below = bool(structure.no_ceiling[model]), bool(structure.no_floor[model])
    if above and below:
        return "both"
    return "above" if above else "below" if below else None


def _score(theta: float) -> float | None:
    """A rating on the Elo scale; None for one that is not finite."""
    score = CENTER + POINTS * float(theta)
    return score if np.isfinite(score) else None
