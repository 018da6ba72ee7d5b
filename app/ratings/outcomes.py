"""The views: which battles count, and which outcome each has.

The debiased outcome is that of augmented inverse probability weighting, and of prediction-powered
inference: `p_bar + (labeled / pi) (y - p_bar)`. Its mean over the random draw of labels is y,
whatever the judge prefers. A battle without a preference of the judge has no p_bar to correct: it
counts as `1 / pi` battles with the outcome y where it has a label, and for nothing elsewhere, which
is right on average as well. So failures that hit one model more than others bend only the views
without labels.
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
    """The views that count any battle, in the order in which they are shown."""
    labeled = bool(battles.labeled.any())
    has_preferences = bool(battles.preferred.any())
    available: dict[ViewName, bool] = {
        "accepted": battles.has_verdicts,
        "soft": has_preferences,
        "abstain_as_tie": battles.has_verdicts,
        "debiased": has_preferences and labeled,
        "people": labeled,
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


def _accepted(battles: Battles) -> Outcomes:
    return _unweighted(battles.accepted, battles.verdict)


def _soft(battles: Battles) -> Outcomes:
    return _unweighted(battles.preferred, battles.p_bar)


def _abstain_as_tie(battles: Battles) -> Outcomes:
    return _unweighted(battles.judged, np.where(battles.abstained, 0.5, battles.verdict))


def _debiased(battles: Battles) -> Outcomes:
    labeled, judged = battles.labeled, battles.preferred
    stands_for = np.where(labeled, 1.0 / battles.human_probability, 0.0)
    people = np.where(labeled, battles.people, 0.0)
    p_bar = np.where(judged, battles.p_bar, 0.0)
    return Outcomes(
        counted=judged | labeled,
        weight=np.where(judged, 1.0, stands_for),
        outcome=np.where(judged, p_bar + stands_for * (people - p_bar), people),
    )


def _people(battles: Battles) -> Outcomes:
    return Outcomes(battles.labeled, 1.0 / battles.human_probability, battles.people)


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
    "people": _people,
}
