"""Battles to judge next: the pairs of models that make the intervals of the ratings narrowest."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# Standard deviation of the prior of a rating, in logits: 1,000 points of the Elo scale. It makes
# the variance of a model without battles large instead of infinite.
_PRIOR_SD = 1000.0 * np.log(10.0) / 400.0


class NextPair(NamedTuple):
    """Two models and the number of battles between them to judge next."""

    model_a: str
    model_b: str
    battles: int


class Schedule(NamedTuple):
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


def schedule(models: Sequence[str], scores: FloatArray, met: FloatArray, count: int) -> Schedule:
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
    return Schedule(
        tuple(sorted(pairs, key=lambda pair: -pair.battles)),
        *(_mean_error(information * battles) for battles in (met, met + chosen, met + evenly)),
    )


def _chosen(information: FloatArray, met: FloatArray, count: int) -> FloatArray:
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


def _covariance(weights: FloatArray) -> FloatArray:
    """Covariance of the ratings about their mean, by the information of each two models."""
    n = len(weights)
    precision = np.diag(weights.sum(axis=1)) - weights + np.eye(n) / _PRIOR_SD**2
    # The mean has the precision of the prior alone, and says nothing about the order.
    return np.asarray(np.linalg.inv(precision) - _PRIOR_SD**2 / n, dtype=np.float64)


def _of_difference(matrix: FloatArray) -> FloatArray:
    """The quadratic form v' M v for v = e_i - e_j, of each two models."""
    diagonal = np.diag(matrix)
    return diagonal[:, None] + diagonal[None, :] - 2.0 * matrix


def _mean_error(weights: FloatArray) -> float:
    return float(np.sqrt(np.diag(_covariance(weights)).clip(min=0.0)).mean())
