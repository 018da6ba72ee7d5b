"""Battles to label next, drawn so that the debiased intervals shrink most.

A label of battle b takes (1 / pi - 1) times its expected squared error from the variance of the
score equations, where pi is the probability that any draw took the battle. The sum of the
variances of the ratings is then the least for

    pi proportional to sqrt(expected squared error) * |inverse information times (e_i - e_j)|,

cut to [pi of the earlier draws, 1] (optimal allocation: Neyman, 1934; for prediction-powered
inference: Zrnic and Candes, 2024). Each battle without a label is drawn independently with

    q = (pi - earlier) / (1 - earlier),

so that pi = earlier + (1 - earlier) q is the probability of a label for every battle, also for
those that an earlier draw took. It comes from the other folds of the units: no label has a part in
its own probability, which would bias the ratings.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, nnls
from scipy.special import expit

from app.core.errors import InvalidRequestError
from app.ratings.battles import Battles
from app.ratings.bradley_terry import Bools, Floats
from app.ratings.results import ViewName
from app.ratings.schedule import REACH, half_widths, laplacian, of_difference, shown_view
from app.ratings.tuning import Fold, folds_of

# Share of an even draw's probability that every battle keeps, in case the expected errors are
# wrong: then no battle weighs more than 4 times what it would in an even draw.
_FLOOR = 0.25
# Fewer labels say nothing of the judge's errors beyond its own probabilities.
_FEWEST_LABELS = 30
# Squared error that a battle has at least, however sure the judge is.
_LEAST_SQUARE = 0.01


class LabelPlan(NamedTuple):
    """Battles to label next, and what their labels bring.

    Args:
        drawn: Shape (n,). Whether to label a battle.
        probability: Shape (n,). `human_probability` after the draw; NaN without a judgment.
        view: The view that the table shows so far.
        now: Median half-width of its intervals, in points; None if none has two ends.
        then: Expected one in "debiased" with the labels of the drawn battles.
        evenly: Expected one if as many battles were drawn with equal probabilities.
    """

    drawn: Bools
    probability: Floats
    view: ViewName
    now: float | None
    then: float
    evenly: float


def label_plan(battles: Battles, count: int, *, seed: int) -> LabelPlan:
    """Draws about `count` of the battles without a label.

    Args:
        battles: The battles of one judge.
        count: Expected number of drawn battles, at least 1.
        seed: Decides together with the labelled battles which ones are drawn, so that an equal
            seed draws anew after labels have come.

    Raises:
        InvalidRequestError: There are fewer battles, p_bar is missing, an earlier probability is
            missing, or all battles are of one question.
    """
    judged = battles.where(battles.judged)
    earlier = _earlier(judged)
    unlabelled = int((~judged.labelled).sum())
    if count > unlabelled:
        raise InvalidRequestError(
            f"{count} labels are wanted, and {unlabelled} judged battles have none"
        )
    if np.isnan(judged.p_bar).any():
        raise InvalidRequestError("the rows have no p_bar, so no label can correct it")
    if judged.units < 2:
        raise InvalidRequestError(
            "all battles are of one question or group: an interval needs several"
        )
    share = count / unlabelled
    errors = _Errors(judged, earlier)
    planned, evenly = errors.allocated(share), earlier + share * (1.0 - earlier)
    view, now, (then, then_evenly) = _half_widths(battles, errors, planned, evenly)
    chance = np.divide(
        planned - earlier, 1.0 - earlier, out=np.zeros(judged.n), where=earlier < 1.0
    )
    rng = np.random.default_rng([seed, *np.packbits(judged.labelled).tolist()])
    drawn, probability = np.zeros(battles.n, dtype=bool), np.full(battles.n, np.nan)
    drawn[battles.judged] = ~judged.labelled & (rng.random(judged.n) < chance)
    probability[battles.judged] = planned
    return LabelPlan(drawn, probability, view, now, then, then_evenly)


def _earlier(battles: Battles) -> Floats:
    """Shape (n,). Probability with which earlier draws took each battle: 0 without any label."""
    if not battles.labelled.any():
        return np.zeros(battles.n)
    probability = battles.human_probability
    known = battles.labelled | (probability < 1.0)
    if not known.all():
        raise InvalidRequestError(
            f"{battles.names[int(np.argmin(known))]} and {int((~known).sum()) - 1} more battles "
            "have no label, and human_probability is missing or 1: all rows need the probability "
            "of the earlier draw, also those that it left out; give --human-probability if it was "
            "the same for all rows"
        )
    return probability


class _Errors:
    """Expected squared errors of the judge's tuned predictions, and what they do to the ratings.

    Args:
        battles: Judged battles with p_bar.
        earlier: Shape (n,). Probabilities of the labels so far.
    """

    def __init__(self, battles: Battles, earlier: Floats) -> None:
        self._battles = battles
        self.earlier = earlier
        self._folds = list(folds_of(battles))
        self._square = np.empty(battles.n)
        self._variance = np.empty(battles.n)
        for fold in self._folds:
            expected = expit(fold.theta[battles.first] - fold.theta[battles.second])
            self._variance[fold.inside] = (expected * (1.0 - expected))[fold.inside]
            self._square[fold.inside] = self._squares(fold, expected)[fold.inside]

    def _squares(self, fold: Fold, expected: Floats) -> Floats:
        """Shape (n,). Expected squared errors, by the labels outside a fold.

        They are a line in the variance of the prediction: the judge may be wrong more often than
        its probability says, most of all where it is sure.
        """
        battles = self._battles
        weight = fold.judge_weight if battles.labelled.any() else 1.0
        predicted = expected + weight * (battles.p_bar - expected)
        doubt = predicted * (1.0 - predicted)
        seen = battles.labelled & ~fold.inside
        if int(seen.sum()) < _FEWEST_LABELS:
            return np.maximum(doubt, _LEAST_SQUARE)
        root = self.earlier[seen] ** -0.5
        columns = np.stack([root, root * doubt[seen]], axis=1)
        line, _ = nnls(columns, root * (battles.people - predicted)[seen] ** 2)
        return np.asarray(np.maximum(line[0] + line[1] * doubt, _LEAST_SQUARE))

    def allocated(self, share: float) -> Floats:
        """The best probabilities of a label.

        Args:
            share: Expected share of the battles without a label that get one, in (0, 1].
        """
        battles, planned = self._battles, np.empty(self._battles.n)
        for fold in self._folds:
            reach = of_difference(fold.covariance @ fold.covariance)[battles.first, battles.second]
            root = np.sqrt(self._square * reach)[fold.inside]
            planned[fold.inside] = _filled(root, self.earlier[fold.inside], share)
        return planned

    def deviations(self, probability: Floats) -> Floats:
        """Shape (models,). Standard deviations of the debiased ratings, in logits.

        Args:
            probability: Shape (n,). Probability of a label for each battle.
        """
        battles = self._battles
        score = self._variance + (1.0 / probability - 1.0) * self._square
        total = np.zeros(len(battles.models))
        for fold in self._folds:
            spread = np.zeros((len(total), len(total)))
            pairs = (battles.first[fold.inside], battles.second[fold.inside])
            np.add.at(spread, pairs, score[fold.inside])
            total += np.diag(fold.covariance @ laplacian(spread + spread.T) @ fold.covariance)
        return np.sqrt(total)


def _filled(root: Floats, earlier: Floats, share: float) -> Floats:
    """Probabilities proportional to `root` where neither earlier ones, floor nor 1 bound them.

    Args:
        root: Shape (n,). Above 0.
        earlier: Shape (n,). Probabilities of the earlier draws.
        share: Expected share of the battles without a label that get one, in (0, 1].
    """
    even = earlier + share * (1.0 - earlier)
    if share >= 1.0 or not len(root):
        return even
    low = np.maximum(earlier, _FLOOR * share * (1.0 - earlier).mean())

    def excess(factor: float) -> float:
        return float((np.clip(factor * root, low, 1.0) - even).sum())

    factor = float(brentq(excess, 0.0, 1.0 / root.min()))
    return np.asarray(np.clip(factor * root, low, 1.0))


def _half_widths(
    battles: Battles, errors: _Errors, *planned: Floats
) -> tuple[ViewName, float | None, list[float]]:
    """The view of the table, its median half-width in points, and those to expect in "debiased".

    Args:
        battles: The battles.
        errors: Expected errors of the judged ones.
        planned: Shape (judged battles,) each. Probabilities of a label.
    """
    view = shown_view(battles)
    half = half_widths(view, battles.models)
    shown = np.isfinite(half)
    now = float(np.median(half[shown])) if shown.any() else None
    if now is None or view.name != "debiased":
        counted = shown if shown.any() else np.ones(len(half), dtype=bool)
        scale = np.full(len(half), REACH)
    else:
        counted, scale = shown, half / errors.deviations(errors.earlier)
    return (
        view.name,
        now,
        [float(np.median((scale * errors.deviations(each))[counted])) for each in planned],
    )
