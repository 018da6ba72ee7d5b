"""Battles to judge next: the pairs of models that make the intervals of the ratings narrowest."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtri

from app.core.errors import InvalidRequestError
from app.ratings.battles import Battles
from app.ratings.board import main_view
from app.ratings.bradley_terry import Floats
from app.ratings.results import RatingSettings, View, ViewName

_SETTINGS = RatingSettings()
# In logits. It makes the variance of a model without battles large instead of infinite.
_PRIOR_SD = _SETTINGS.prior_sd / _SETTINGS.points
# Half-width of an interval in points, for a standard error of one logit.
REACH = float(ndtri(0.5 + _SETTINGS.level / 2.0)) * _SETTINGS.points


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
        view: The view for which they are planned.
    """

    pairs: tuple[NextPair, ...]
    error_now: float
    error_then: float
    error_evenly: float
    view: ViewName = "soft"


def schedule_of(battles: Battles, count: int) -> BattleSchedule:
    """Chooses further battles of one judge, by the ratings of the view that the table shows.

    Raises:
        InvalidRequestError: No battle counts.
    """
    view = shown_view(battles)
    score = {rating.model: rating.score for rating in view.ratings}
    scores = np.array([score[model] or _SETTINGS.centre for model in battles.models])
    met = np.zeros((len(scores), len(scores)))
    np.add.at(met, (battles.first[battles.judged], battles.second[battles.judged]), 1.0)
    error = half_widths(view, battles.models) / REACH
    theta = (scores - _SETTINGS.centre) / _SETTINGS.points
    return schedule(battles.models, theta, met + met.T, count, error=error)._replace(view=view.name)


def shown_view(battles: Battles) -> View:
    """The view that the table shows.

    Raises:
        InvalidRequestError: No battle counts.
    """
    view = main_view(battles, _SETTINGS)
    if view is None:
        raise InvalidRequestError("no battle has a verdict or p_bar")
    return view


def half_widths(view: View, models: Sequence[str]) -> Floats:
    """Shape (models,). Half-widths of the intervals, in points.

    They are NaN for provisional models, and for intervals without two ends.
    """
    half = {
        rating.model: (rating.high - rating.low) / 2.0
        for rating in view.ratings
        if not (rating.provisional or rating.low is None or rating.high is None)
    }
    return np.array([half.get(model, np.nan) for model in models])


def schedule(
    models: Sequence[str],
    scores: Floats,
    met: Floats,
    count: int,
    *,
    error: Floats | None = None,
) -> BattleSchedule:
    """Chooses battles one by one, each the one that lowers the sum of the variances most.

    A battle between models i and j has the Fisher information p (1 - p) about the difference of
    their ratings, with p = sigmoid(scores[i] - scores[j]) of the Bradley-Terry model. A pair of
    nearly equal models that met rarely, or joins two groups that never met, has the most to tell.

    Args:
        models: Names, n of them.
        scores: Shape (n,), in logits. Any finite number for a model without battles.
        met: Shape (n, n), symmetric. Number of counted battles of each two models so far.
        count: Number of battles to choose.
        error: Shape (n,). Standard errors of the ratings so far, in logits; NaN where unknown. All
            battles tell as much less than the model says as these are larger than its own.

    Returns:
        The schedule. Expected standard errors are those at the present scores.
    """
    chance = expit(scores[:, None] - scores[None, :])
    information = chance * (1.0 - chance)
    np.fill_diagonal(information, 0.0)
    known = np.zeros(len(models), dtype=bool) if error is None else error > 0.0
    if error is not None and known.any():
        variance = np.diag(_covariance(information * met))[known].mean()
        information *= variance / (error[known] ** 2).mean()
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
        fall = of_difference(square) / (1.0 + information * of_difference(covariance))
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
    precision = laplacian(weights) + np.eye(n) / _PRIOR_SD**2
    # The mean has the precision of the prior alone, and says nothing about the order.
    return np.asarray(np.linalg.inv(precision) - _PRIOR_SD**2 / n, dtype=np.float64)


def laplacian(weights: Floats) -> Floats:
    """The sum of w (e_i - e_j)(e_i - e_j)' over all pairs, of symmetric weights."""
    return np.asarray(np.diag(weights.sum(axis=1)) - weights)


def of_difference(matrix: Floats) -> Floats:
    """The quadratic form v' M v for v = e_i - e_j, of each two models."""
    diagonal = np.diag(matrix)
    return diagonal[:, None] + diagonal[None, :] - 2.0 * matrix


def _mean_error(weights: Floats) -> float:
    return float(np.sqrt(np.diag(_covariance(weights)).clip(min=0.0)).mean())
