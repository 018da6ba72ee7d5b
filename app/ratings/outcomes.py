"""The views: which battles count, and which outcome each has.

The debiased outcome is that of augmented inverse probability weighting, and of prediction-powered
inference: `p_bar + (labeled / pi) (y - p_bar)`. Its mean over the random draw of labels is y,
whatever the judge prefers. A battle without a preference of the judge has no p_bar to correct: it
counts as `1 / pi` battles with the outcome y where it has a label, and for nothing elsewhere, which
is right on average as well. So failures that hit one model more than others bend only the views
without labels.
"""

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
    ones = np.ones(battles.n)
    views: dict[ViewName, Outcomes] = {}
    # Ties alone would rank nobody.
    if battles.accepted.any():
        halved = np.where(battles.accepted, battles.verdict, 0.5)
        views["accepted"] = Outcomes(battles.accepted, ones, battles.verdict)
        views["abstain_as_tie"] = Outcomes(battles.judged, ones, halved)
    if battles.preferred.any():
        views["soft"] = Outcomes(battles.preferred, ones, battles.p_bar)
        views["debiased"] = _debiased(battles)
    views["people"] = Outcomes(battles.labeled, 1.0 / battles.human_probability, battles.people)
    if not battles.labeled.any():
        views.pop("debiased", None)
    return {name: views[name] for name in VIEWS if name in views and views[name].counted.any()}


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


def preferred(p_bar: Floats) -> Floats:
    """1 where the first model is preferred, 0 where the second is, 0.5 where neither."""
    return np.where(np.isnan(p_bar), np.nan, (np.sign(p_bar - 0.5) + 1.0) / 2.0)
