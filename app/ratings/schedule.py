"""Battles to judge next: the pairs of models that make the intervals of the ratings narrowest."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from app.ratings.battles import Battles
from app.ratings.bootstrap import cells_of
from app.ratings.bradley_terry import Floats, ratings, structure_of
from app.ratings.outcomes import games_of, views_of
from app.ratings.results import RatingSettings

# In logits. It makes the variance of a model without battles large instead of infinite.
_PRIOR_SD = RatingSettings().prior_sd / RatingSettings().points
# All judged battles count, with whatever the rows can tell of them.
_VIEWS = ("soft", "abstain_as_tie", "people")


class NextPair(NamedTuple):
    """Two models and the number of battles between them to judge next."""

    model_a: str
    model_b: str
    battles: int


class BattleSchedule(NamedTuple):
    """The battles to judge next, and the mean standard error of a rating, in logits.

    Args:
        pairs: The pairs, the one with the most battles first.
        error_now: Mean standard error with the battles so far.
        error_then: Expected one after the scheduled battles.
        error_evenly: Expected one if as many battles were spread evenly over all pairs.
    """

    pairs: tuple[NextPair, ...]
    error_now: float
    error_then: float
    error_evenly: float


def schedule_of(battles: Battles, count: int) -> BattleSchedule:
    """Chooses further battles of one judge, by the ratings so far."""
    views = views_of(battles)
    name = next(name for name in _VIEWS if name in views)
    tally = cells_of(games_of(battles, views[name])).whole
    theta = ratings(tally, structure_of(tally), prior_sd=_PRIOR_SD)
    met = np.zeros((tally.models, tally.models))
    met[tally.first, tally.second] = met[tally.second, tally.first] = tally.weight
    return schedule(battles.models, np.nan_to_num(theta), met, count)


def schedule(models: Sequence[str], scores: Floats, met: Floats, count: int) -> BattleSchedule:
    """Chooses battles one by one, each the one that lowers the sum of the variances most.

    A battle between models i and j has the Fisher information p (1 - p) about the difference of
    their ratings, with p = sigmoid(scores[i] - scores[j]) of the Bradley-Terry model. A pair of
    nearly equal models that met rarely, or joins two groups that never met, has the most to tell.

    Args:
        models: Names, n of them.
        scores: Shape (n,), in logits. Any finite number for a model without battles.
        met: Shape (n, n), symmetric. Number of counted battles of each two models so far.
        count: Number of battles to choose.

    Returns:
        The schedule. Expected standard errors are those of the model, at the present scores.
    """
    chance = 1.0 / (1.0 + np.exp(scores[None, :] - scores[:, None]))
    information = chance * (1.0 - chance)
    np.fill_diagonal(information, 0.0)
    chosen = _chosen(information, met, count)
    every_pair = len(models) * (len(models) - 1) / 2
    evenly = np.full_like(met, count / every_pair)
    first, second = np.nonzero(np.triu(chosen))
    pairs = [
        NextPair(models[i], models[j], int(chosen[i, j]))
        for i, j in zip(first, second, strict=True)
    ]
    return BattleSchedule(
        pairs=tuple(sorted(pairs, key=lambda pair: -pair.battles)),
        error_now=_mean_error(information * met),
        error_then=_mean_error(information * (met + chosen)),
        error_evenly=_mean_error(information * (met + evenly)),
    )


def _chosen(information: Floats, met: Floats, count: int) -> Floats:
    """Number of chosen battles of each two models, symmetric."""
    covariance = _covariance(information * met)
    chosen = np.zeros_like(met)
    for _ in range(count):
        # For v = e_i - e_j: the new covariance is C - a (C v)(C v)' with a = w / (1 + w v' C v), so
        # the sum of the variances falls by a |C v|^2.
        square = covariance @ covariance
        fall = _of_difference(square) / (1.0 + information * _of_difference(covariance))
        i, j = np.unravel_index(np.argmax(information * fall), fall.shape)
        difference = covariance[:, i] - covariance[:, j]
        weight = information[i, j] / (1.0 + information[i, j] * (difference[i] - difference[j]))
        covariance -= weight * np.outer(difference, difference)
        chosen[i, j] += 1.0
        chosen[j, i] += 1.0
    return chosen


def _covariance(weights: Floats) -> Floats:
    """Covariance of the ratings about their mean, by the information of each two models."""
    n = len(weights)
    precision = np.diag(weights.sum(axis=1)) - weights + np.eye(n) / _PRIOR_SD**2
    # The mean has the precision of the prior alone, and says nothing about the order.
    return np.asarray(np.linalg.inv(precision) - _PRIOR_SD**2 / n, dtype=np.float64)


def _of_difference(matrix: Floats) -> Floats:
    """The quadratic form v' M v for v = e_i - e_j, of each two models."""
    diagonal = np.diag(matrix)
    return diagonal[:, None] + diagonal[None, :] - 2.0 * matrix


def _mean_error(weights: Floats) -> float:
    return float(np.sqrt(np.diag(_covariance(weights)).clip(min=0.0)).mean())
