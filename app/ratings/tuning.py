"""How much the judge counts in the debiased ratings: power tuning of prediction-powered inference.

With weights s = labelled / human_probability, the judge's p, people's y, and a weight lambda of the
judge, the score equation

    sum over the battles of a model of s (y - sigma) + lambda (1 - s) (p - sigma) = 0

has the people's ratings as its solution on average for every lambda: the mean of 1 - s over the
draw of the labels is 0. With lambda 0 it is that of the labels alone, with 1 that of augmented
inverse probability weighting. The variance is a parabola in lambda, whose lowest point this module
estimates (PPI++: Angelopoulos, Duchi and Zrnic, 2023).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit

from app.ratings.battles import Battles
from app.ratings.bootstrap import Games, cells_of
from app.ratings.bradley_terry import Bools, Floats, Ints, information, solve
from app.ratings.outcomes import debiased, games_of

# A weight must not depend on the labels that it weighs, or the ratings would be biased.
_FOLDS = 10
# In logits. With 60 labels a wider prior leaves ratings so wild that the weight is wrong as well.
_PRIOR_SD = 1.0


class Fold(NamedTuple):
    """Estimates for the battles of a fold, from the units outside it.

    Args:
        inside: Shape (n,). Whether a battle is in the fold.
        theta: Shape (models,). Ratings in logits.
        covariance: Shape (models, models). Inverse information of the ratings.
        judge_weight: The judge's weight in the fold, in [0, 1].
    """

    inside: Bools
    theta: Floats
    covariance: Floats
    judge_weight: float


def judge_weights(battles: Battles) -> Floats:
    """Estimates the judge's weight for each battle from the units outside the battle's fold.

    Args:
        battles: The battles; some have a label, and all judged ones p_bar.

    Returns:
        Shape (n,), in [0, 1].
    """
    weights = np.empty(battles.n)
    for fold in folds_of(battles):
        weights[fold.inside] = fold.judge_weight
    return weights


def folds_of(battles: Battles) -> Iterator[Fold]:
    """Yields the folds of the units. Each battle is in one of them."""
    people, corrected = (
        games_of(battles, debiased(battles, np.full(battles.n, weight))) for weight in (0.0, 1.0)
    )
    fold = _folds(battles.units)
    others = np.stack([fold != number for number in range(_FOLDS)]).astype(np.float64)
    tally = cells_of(corrected).resampled(others)
    thetas = solve(tally, prior_sd=_PRIOR_SD)
    for number, (theta, kept) in enumerate(zip(thetas, others, strict=True)):
        expected = expit(theta[tally.first] - theta[tally.second])
        curvature = tally.weight[number] * expected * (1.0 - expected)
        inverse = np.linalg.inv(information(tally, curvature[None], _PRIOR_SD**-2)[0])
        alone, whole = (_scores(games, theta) for games in (people, corrected))
        yield Fold(
            inside=(fold == number)[battles.unit],
            theta=theta,
            covariance=inverse,
            judge_weight=_lowest(alone, whole - alone, kept, inverse @ inverse),
        )


def _folds(units: int) -> Ints:
    """Shape (units,). The fold of each unit; the same for the same number of units."""
    return np.random.default_rng(0).permutation(units) % _FOLDS


def _scores(games: Games, theta: Floats) -> csr_array:
    """Sparse, shape (units, models). The part of each unit in the score equations of the models."""
    expected = expit(theta[games.first] - theta[games.second])
    residual = games.weight * (games.outcome - expected)
    places = (np.tile(games.unit, 2), np.concatenate([games.first, games.second]))
    shape = (games.units, games.models)
    return csr_array((np.concatenate([residual, -residual]), places), shape=shape)


def _lowest(alone: csr_array, change: csr_array, kept: Floats, metric: Floats) -> float:
    """The weight with the least variance, summed over the models' ratings.

    Args:
        alone: Sparse, shape (units, models). Scores with the judge's weight 0.
        change: Sparse, shape (units, models). The difference that the weight 1 makes to them.
        kept: Shape (units,). 1 for the units that count, else 0.
        metric: Shape (models, models). Square of the inverse information.
    """
    counted = change * kept[:, None]
    cross = float(((alone.T @ counted) * metric).sum())
    square = float(((change.T @ counted) * metric).sum())
    return min(max(-cross / square, 0.0), 1.0) if square > 0 else 1.0
