"""The views: which battles count, and which outcome each has.

The debiased outcome is that of augmented inverse probability weighting, and of prediction-powered
inference: `p_bar + (labelled / pi) (y - p_bar)`. Its mean over the random draw of labels is y,
whatever the judge prefers.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from app.ratings.battles import Battles
from app.ratings.bootstrap import Games
from app.ratings.bradley_terry import Bools, Floats
from app.ratings.results import VIEWS, ViewName


class Outcomes(NamedTuple):
    """Shape (n,) each: whether a battle counts, its weight, and the outcome of its first model."""

    counted: Bools
    weight: Floats
    outcome: Floats


def views_of(battles: Battles) -> dict[ViewName, Outcomes]:
    """The views that count any battle, in the order in which they are shown.

    The judge has the weight 1 in "debiased".
    """
    available: dict[ViewName, bool] = {
        "accepted": battles.has_verdicts,
        "abstain_as_tie": battles.has_verdicts,
        "soft": _has_preferences(battles),
        "always": _has_preferences(battles),
        "debiased": _has_preferences(battles) and bool(battles.labelled.any()),
        "people": bool(battles.labelled.any()),
    }
    views = {name: _OUTCOMES[name](battles) for name in VIEWS if available[name]}
    return {name: outcomes for name, outcomes in views.items() if outcomes.counted.any()}


def games_of(battles: Battles, outcomes: Outcomes) -> Games:
    """The counted battles of a view."""
    counted = outcomes.counted
    return Games(
        models=len(battles.models),
        first=battles.first[counted],
        second=battles.second[counted],
        unit=battles.unit[counted],
        keys=battles.keys,
        weight=outcomes.weight[counted],
        outcome=outcomes.outcome[counted],
    )


def _has_preferences(battles: Battles) -> bool:
    return bool(battles.judged.any()) and not np.isnan(battles.p_bar[battles.judged]).any()


def _accepted(battles: Battles) -> Outcomes:
    return _unweighted(battles.judged & ~np.isnan(battles.verdict), battles.verdict)


def _soft(battles: Battles) -> Outcomes:
    return _unweighted(battles.judged, battles.p_bar)


def _abstain_as_tie(battles: Battles) -> Outcomes:
    return _unweighted(battles.judged, np.where(battles.abstained, 0.5, battles.verdict))


def _always(battles: Battles) -> Outcomes:
    return _unweighted(battles.judged, preferred(battles.p_bar))


def debiased(battles: Battles, judge_weight: Floats) -> Outcomes:
    """The outcomes by people, narrowed by the judge.

    Args:
        battles: The battles, with p_bar.
        judge_weight: Shape (n,), in [0, 1]. 0 is people alone.
    """
    stands_for = np.where(battles.labelled, 1.0 / battles.human_probability, 0.0)
    weight = judge_weight + (1.0 - judge_weight) * stands_for
    correction = stands_for * np.where(
        battles.labelled, battles.people - judge_weight * battles.p_bar, 0.0
    )
    counted = battles.judged & (weight > 0.0)
    points = judge_weight * battles.p_bar + correction
    return Outcomes(counted, weight, points / np.where(counted, weight, 1.0))


def _debiased(battles: Battles) -> Outcomes:
    return debiased(battles, np.ones(battles.n))


def _people(battles: Battles) -> Outcomes:
    return Outcomes(battles.labelled, 1.0 / battles.human_probability, battles.people)


def preferred(p_bar: Floats) -> Floats:
    """1 where the first model is preferred, 0 where the second is, 0.5 where neither."""
    return np.where(np.isnan(p_bar), np.nan, (np.sign(p_bar - 0.5) + 1.0) / 2.0)


def _unweighted(counted: Bools, outcome: Floats) -> Outcomes:
    return Outcomes(counted, np.ones(len(outcome)), outcome)


_OUTCOMES: Mapping[ViewName, Callable[[Battles], Outcomes]] = {
    "accepted": _accepted,
    "soft": _soft,
    "abstain_as_tie": _abstain_as_tie,
    "debiased": _debiased,
    "always": _always,
    "people": _people,
}
