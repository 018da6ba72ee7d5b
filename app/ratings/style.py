"""Ratings with surface features of the responses held equal, as arena boards compute them.

The log-odds of a battle are theta_a - theta_b + beta . f, where f has the difference of each
feature by its sum, (a - b) / (a + b), divided by its standard deviation over the battles. The
features are not centred: a response does not profit from its place in the row.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit

from app.ratings.bootstrap import Cells, Games, draws
from app.ratings.bradley_terry import Floats, Tally, cut, information, within_prior
from app.ratings.columns import FEATURES

_MOST_STEPS = 100
_TOLERANCE = 1e-9
_LONGEST_STEP = 2.0


class Features(NamedTuple):
    """The features that differ between battles.

    Args:
        names: Some of `app.ratings.columns.FEATURES`.
        values: Shape (n, f). In standard deviations.
    """

    names: tuple[str, ...]
    values: Floats


class _Moments(NamedTuple):
    """Sums of one problem or, as leading dimension, of several, at fixed ratings.

    Args:
        residual: Shape (..., k). Weight times outcome less its expectation, of a pair's first.
        curvature: Shape (..., k). Weight times variance.
        cross: Shape (..., k, f). Curvature times features, of a pair's first model.
        slope: Shape (..., f). Residual times features.
        square: Shape (..., f, f). Curvature times products of features.
    """

    residual: Floats
    curvature: Floats
    cross: Floats
    slope: Floats
    square: Floats


def features_of(style: Floats) -> Features:
    """The features in standard deviations, without those that never differ.

    Args:
        style: Shape (n, 4). As in `Battles.style`, of the counted battles.
    """
    spread = np.sqrt((style**2).mean(axis=0))
    varies = spread > 0
    names = tuple(name for name, keep in zip(FEATURES, varies, strict=True) if keep)
    return Features(names, style[:, varies] / spread[varies])


def within_battles(games: Games, cells: Cells) -> Games:
    """The games with outcomes of which no model has more points than battles, or less than none."""
    whole = cells.whole
    points = cut(whole.weight[None], whole.points[None], whole.incidence())[0]
    shift = ((points - whole.points) / whole.weight)[cells.pair]
    return replace(games, outcome=games.outcome + np.where(cells.ahead, shift, -shift))


def controlled(games: Games, cells: Cells, features: Floats, *, prior_sd: float) -> Floats:
    """Solves for the ratings and the effects of the features together, by Newton's method.

    Args:
        games: The battles of a view.
        cells: The same, summed.
        features: Shape (n, f).
        prior_sd: Standard deviation of the prior of each rating and effect, in logits.

    Returns:
        Shape (models + f,). Ratings, then effects, in logits.
    """
    solution = np.zeros(games.models + features.shape[1])
    once = np.ones((1, games.units))
    for _ in range(_MOST_STEPS):
        moments = _PairSums(games, cells, features, solution).resampled(once)
        step = _step(cells.whole, moments, solution, prior_sd)[0]
        longest = float(np.abs(step).max(initial=0.0))
        solution += step * (_LONGEST_STEP / max(longest, _LONGEST_STEP))
        if longest < _TOLERANCE:
            break
    return (
        solution
        if cells.whole.is_whole
        else _within_prior(solution[None], games.models, prior_sd)[0]
    )


def controlled_replicates(
    games: Games,
    cells: Cells,
    features: Floats,
    solution: Floats,
    *,
    rounds: int,
    seed: int,
    prior_sd: float,
) -> Floats:
    """The solutions of resampled units, each by one Newton step from the solution of all.

    Deviation: the other views solve each round to the end. Here the expectations differ within a
    pair, so that a second step would go through all battles of each round. A test compares the
    spread with full solutions.

    Returns:
        Shape (rounds, models + f).
    """
    at_solution = _PairSums(games, cells, features, solution)
    blocks = [
        solution + _step(cells.whole, at_solution.resampled(counts), solution, prior_sd)
        for counts in draws(games.keys, rounds=rounds, seed=seed)
    ]
    drawn = np.concatenate(blocks)
    return drawn if cells.whole.is_whole else _within_prior(drawn, games.models, prior_sd)


def _within_prior(solutions: Floats, models: int, prior_sd: float) -> Floats:
    """Cuts the ratings as `solve` does, and leaves the effects."""
    theta = within_prior(solutions[:, :models], prior_sd)
    return np.concatenate([theta, solutions[:, models:]], axis=1)


class _PairSums:
    """Sums by unit at fixed ratings and effects, ready to be resampled."""

    def __init__(self, games: Games, cells: Cells, features: Floats, at: Floats) -> None:
        n, f = features.shape
        eta = at[games.first] - at[games.second] + features @ at[games.models :]
        expected = expit(eta)
        residual = games.weight * (games.outcome - expected)
        curvature = games.weight * expected * (1.0 - expected)
        sign = np.where(cells.ahead, 1.0, -1.0)
        crosses = (sign * curvature)[:, None] * features
        squares = curvature[:, None, None] * features[:, :, None] * features[:, None, :]
        by_pair = [sign * residual, curvature, *crosses.T]
        shape = (games.units, len(cells.whole.first))
        self._f = f
        self._by_pair = [csr_array((each, (games.unit, cells.pair)), shape) for each in by_pair]
        by_unit = np.concatenate([residual[:, None] * features, squares.reshape(n, f * f)], axis=1)
        unit = csr_array((np.ones(n), (games.unit, np.arange(n))), (games.units, n))
        self._by_unit: Floats = unit @ by_unit

    def resampled(self, counts: Floats) -> _Moments:
        """The sums of each round; counts have shape (rounds, units)."""
        residual, curvature, *cross = ((each.T @ counts.T).T for each in self._by_pair)
        by_unit = counts @ self._by_unit
        f, k = self._f, curvature.shape[1]
        crosses = np.stack(cross, axis=-1) if f else np.zeros((len(counts), k, 0))
        square = by_unit[:, f:].reshape(len(counts), f, f)
        return _Moments(residual, curvature, crosses, by_unit[:, :f], square)


def _step(tally: Tally, moments: _Moments, at: Floats, prior_sd: float) -> Floats:
    """The Newton step of each round."""
    m, size, precision = tally.models, len(at), prior_sd**-2
    incidence = tally.incidence()
    matrix = np.zeros((len(moments.residual), size, size))
    matrix[:, :m, :m] = information(tally, moments.curvature, precision)
    for place in range(size - m):
        column = moments.cross[..., place] @ incidence
        matrix[:, :m, m + place] = column
        matrix[:, m + place, :m] = column
    matrix[:, m:, m:] = moments.square + precision * np.eye(size - m)
    slope = np.concatenate([moments.residual @ incidence, moments.slope], axis=1) - precision * at
    step: Floats = np.linalg.solve(matrix, slope[..., None])[..., 0]
    return step
