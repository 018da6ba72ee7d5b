"""Bradley-Terry ratings of tallied battles, with whole outcomes or real ones.

A rating theta is in logits: model i beats model j with probability sigmoid(theta_i - theta_j). With
weights w and outcomes y of the first model, the score equation of model i is

    sum over its battles of w (y - sigmoid(theta_i - theta_j)) = theta_i / prior_sd^2.

It is linear in y, so an outcome may be any real number, as debiased ones are. With few labels the
debiased points of a model can exceed its battles, or fall below 0; they are cut to that range.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components
from scipy.special import expit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_MOST_STEPS = 100
_TOLERANCE = 1e-9
_MOST_CUTS = 20
# A Newton step beyond this may overshoot where the sigmoid is flat.
_LONGEST_STEP = 2.0
# It moves no rating by as much as 1e-8, and makes the equations of models without battles solvable.
_NO_PRIOR_SD = 1e4
# Precision that makes the equations of models that did not meet solvable.
_HARDLY_ANY_PRIOR = 1e-6


def sums(places: Ints, values: Floats, size: int) -> Floats:
    """Shape (size,). Sum of the values at each place."""
    return np.bincount(places, values, size).astype(np.float64, copy=False)


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Battles summed by pair of models.

    Args:
        models: Number of models.
        first, second: Shape (k,). Indexes of the models of each pair; first < second.
        weight: Shape (..., k). Sum of the weights, at least 0.
        points: Shape (..., k). Sum of weight times outcome of the first model.
    """

    models: int
    first: Ints
    second: Ints
    weight: Floats
    points: Floats

    @property
    def is_whole(self) -> bool:
        """Whether no pair has fewer points than none, or more than battles."""
        return bool((self.points >= 0).all() and (self.points <= self.weight).all())

    def incidence(self) -> csr_array:
        """Shape (k, models): 1 at a pair's first model and -1 at its second."""
        k = len(self.first)
        rows = np.concatenate([np.arange(k), np.arange(k)])
        signs = np.concatenate([np.ones(k), -np.ones(k)])
        columns = np.concatenate([self.first, self.second])
        return coo_array((signs, (rows, columns)), shape=(k, self.models)).tocsr()


@dataclass(frozen=True)
class Structure:
    """The models that have battles, and those whose maximum-likelihood rating is infinite.

    Models that exchanged points, directly or in a circle, have finite distances to each other. The
    ratings of all others are infinite, seen from these.

    Args:
        rated: Shape (models,). Whether a model has battles.
        no_floor: Shape (models,). Whether the data have no bound below the rating: the model took
            no point from those with finite ratings, not even through others.
        no_ceiling: Shape (models,). The same above the rating: the model gave up no point.
    """

    rated: Bools
    no_floor: Bools
    no_ceiling: Bools

    @property
    def unbounded(self) -> Bools:
        """Shape (models,). Whether a rating has no bound on one side, or on both."""
        return self.no_floor | self.no_ceiling


def structure_of(tally: Tally) -> Structure:
    """Finds the models that won or lost everything against the others.

    All are seen from the models that exchanged points and have the most battles.

    Args:
        tally: Battles of models that met, directly or through others; see `largest_group`.
    """
    played = tally.weight > 0
    first, second = tally.first[played], tally.second[played]
    points, weight = tally.points[played], tally.weight[played]
    winners = np.concatenate([first[points > 0], second[points < weight]])
    losers = np.concatenate([second[points > 0], first[points < weight]])
    wins = _graph(winners, losers, tally.models)
    _, group = connected_components(wins, connection="strong")
    # Real outcomes can also push a single model's sum to the end of its range or beyond.
    total = sums(first, points, tally.models) + sums(second, weight - points, tally.models)
    most = sums(first, weight, tally.models) + sums(second, weight, tally.models)
    rated = most > 0
    seen_from = int(np.argmax(sums(group, most, tally.models)[group]))
    above, below = _reached(wins.T, seen_from), _reached(wins, seen_from)
    return Structure(
        rated,
        no_floor=rated & ((total <= 0) | ~above),
        no_ceiling=rated & ((total >= most) | ~below),
    )


def _graph(begins: Ints, ends: Ints, models: int) -> csr_array:
    return coo_array((np.ones(len(begins)), (begins, ends)), shape=(models, models)).tocsr()


def _reached(graph: csr_array, begin: int) -> Bools:
    """Shape (models,). The models that paths from a model reach, itself included."""
    reached = np.zeros(graph.shape[0], dtype=bool)
    reached[breadth_first_order(graph, begin, return_predecessors=False)] = True
    return reached


def largest_group(models: int, first: Ints, second: Ints) -> Bools:
    """Shape (models,). The most models that met, directly or through others, in these battles."""
    _, group = connected_components(_graph(first, second, models), directed=False)
    return np.asarray(group == np.argmax(np.bincount(group)))


class Solution(NamedTuple):
    """Solutions of one problem or several, in logits.

    Args:
        theta: Shape (..., models). Ratings.
        pull: Shape (..., models). The Newton step that the ratings would take without their prior.
            Where no finite ratings solve the problem, those of two models that met differ by more
            than 1 in it: with p the probability of the better one, they differ by 1 / p on
            average. Where none differ by more than 1, finite ratings solve it.
    """

    theta: Floats
    pull: Floats


def solved(tally: Tally, *, prior_sd: float, start: Floats | None = None) -> Solution:
    """Solves the score equation by Newton's method, with a normal prior of each rating about 0.

    Real outcomes of a group of models can exceed their range where those of each model do not.
    Their ratings are therefore cut to `prior_sd` from the median.

    Args:
        tally: Weights and points of one problem, or of several as leading dimension.
        prior_sd: In logits. It makes the solution unique with every outcome and finite.
        start: Shape (models,). First guess.
    """
    incidence = tally.incidence()
    weight, points = np.atleast_2d(tally.weight), np.atleast_2d(tally.points)
    if not tally.is_whole:
        points = cut(weight, points, incidence)
    rounds, precision = len(weight), prior_sd**-2
    theta = np.zeros((rounds, tally.models)) if start is None else np.tile(start, (rounds, 1))
    for _ in range(_MOST_STEPS):
        expected = expit(theta[:, tally.first] - theta[:, tally.second])
        slope = ((points - weight * expected) @ incidence) - precision * theta
        curvature = weight * expected * (1.0 - expected)
        step = np.linalg.solve(information(tally, curvature, precision), slope[..., None])[..., 0]
        longest = np.abs(step).max(axis=1, keepdims=True, initial=0.0)
        theta += step * (_LONGEST_STEP / np.maximum(longest, _LONGEST_STEP))
        if longest.max(initial=0.0) < _TOLERANCE:
            break
    expected = expit(theta[:, tally.first] - theta[:, tally.second])
    curvature = weight * expected * (1.0 - expected)
    pulled = information(tally, curvature, _HARDLY_ANY_PRIOR)
    pull = np.linalg.solve(pulled, (precision * theta)[..., None])[..., 0]
    if not tally.is_whole:
        middle = np.median(theta, axis=1, keepdims=True)
        theta = np.clip(theta, middle - prior_sd, middle + prior_sd)
    shape = (*tally.weight.shape[:-1], tally.models)
    return Solution(theta.reshape(shape), pull.reshape(shape))


def cut(weight: Floats, points: Floats, incidence: csr_array) -> Floats:
    """Points of which no model has more than its battles, or less than none.

    An excess is taken from all battles of the model in equal parts, and its opponents get it.

    Args:
        weight, points: Shape (rounds, k).
        incidence: Shape (k, models).
    """
    half = weight @ abs(incidence) / 2.0
    for number in range(_MOST_CUTS):
        surplus = (points - weight / 2.0) @ incidence
        excess = np.sign(surplus) * np.maximum(np.abs(surplus) - half, 0.0)
        if not (np.abs(excess) > _TOLERANCE).any():
            break
        # Too many and too few points in turn: often they are those of the same battle.
        excess = np.maximum(excess, 0.0) if number % 2 == 0 else np.minimum(excess, 0.0)
        rate = np.divide(excess, 2.0 * half, out=np.zeros_like(excess), where=half > 0)
        points = points - weight * (rate @ incidence.T)
    return points


def information(tally: Tally, curvature: Floats, precision: float) -> Floats:
    """Shape (rounds, models, models). Minus the Hessian of the log-posterior.

    Args:
        curvature: Shape (rounds, k). Weight times variance of the outcome.
        precision: Inverse variance of the prior.
    """
    matrix = np.zeros((len(curvature), tally.models, tally.models))
    matrix[:, tally.first, tally.second] = -curvature
    matrix[:, tally.second, tally.first] = -curvature
    diagonal = np.arange(tally.models)
    matrix[:, diagonal, diagonal] = precision - matrix.sum(axis=2)
    return matrix


def covariance(tally: Tally, theta: Floats, *, prior_sd: float) -> Floats:
    """Shape (models, models). Covariance of ratings that the model and the prior alone imply."""
    curvature = _curvature(tally, theta)
    inverse = np.linalg.inv(information(tally, curvature[None], prior_sd**-2)[0])
    return np.asarray(inverse, dtype=np.float64)


def information_of(tally: Tally, theta: Floats) -> Floats:
    """Shape (models,). Fisher information of the battles of each model about its rating."""
    curvature = _curvature(tally, theta)
    return sums(tally.first, curvature, tally.models) + sums(tally.second, curvature, tally.models)


def _curvature(tally: Tally, theta: Floats) -> Floats:
    """Shape (k,). Weight of each pair times the variance of an outcome."""
    expected = expit(theta[tally.first] - theta[tally.second])
    return np.asarray(tally.weight * expected * (1.0 - expected))


def ratings(tally: Tally, structure: Structure, *, prior_sd: float) -> Floats:
    """Shape (models,). Ratings in logits less their mean; NaN for a model without battles.

    The prior counts only where some are infinite without it.
    """
    is_finite = tally.is_whole and not structure.unbounded.any()
    theta = solved(tally, prior_sd=_NO_PRIOR_SD if is_finite else prior_sd).theta
    return centered(theta, structure)


def centered(theta: Floats, structure: Structure, shares: Floats | None = None) -> Floats:
    """Shape (..., models). Ratings less their mean; NaN for a model without battles.

    Args:
        shares: Shape (models,). Weights of the models, as `center_shares` has them; None for equal
            weights.
    """
    result = np.full(theta.shape, np.nan)
    rated = structure.rated
    shares = center_shares(structure, np.ones(len(rated))) if shares is None else shares
    zero = theta[..., rated] @ shares[rated]
    result[..., rated] = theta[..., rated] - zero[..., None]
    return result


def center_shares(structure: Structure, weight: Floats) -> Floats:
    """Shape (models,). How much each model counts in the rating that is the zero; the sum is 1.

    A model without a finite rating does not count, unless there are no others. If no weight counts,
    all are equal.
    """
    bounded = structure.rated & ~structure.unbounded
    counted = np.where(bounded, weight, 0.0)
    if not counted.any():
        counted = (bounded if bounded.any() else structure.rated).astype(np.float64)
    return counted / counted.sum() if counted.any() else counted
