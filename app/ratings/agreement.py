"""Judge and people on the battles with a person's label."""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from app.ratings.battles import Battles
from app.ratings.bradley_terry import Bools, Floats, sums
from app.ratings.outcomes import preferred
from app.ratings.results import Agreement, Favour


class _Share(NamedTuple):
    """A weighted share with its interval."""

    value: float
    low: float
    high: float

    def without(self, noise: float) -> "_Share":
        """The share of wrong answers, where people's labels are wrong that often themselves."""
        return _Share(*(min(max((each - noise) / (1.0 - 2.0 * noise), 0.0), 1.0) for each in self))


def agreement_of(battles: Battles, *, level: float) -> Agreement | None:
    """The judge's errors by the people's labels, and the models that it favours.

    Returns:
        None without labels.
    """
    labelled = battles.labelled
    if not labelled.any():
        return None
    tie = labelled & (battles.human == 0.5)
    decided = labelled & ~tie
    accepted = decided & ~np.isnan(battles.verdict)
    error = _share(battles, accepted, battles.verdict, level)
    always = _share(battles, decided, preferred(battles.p_bar), level)
    return Agreement(
        labelled=int(labelled.sum()),
        ties=int(tie.sum()),
        accepted=int(accepted.sum()),
        error=error.value if error else None,
        error_low=error.low if error else None,
        error_high=error.high if error else None,
        error_always=always.value if always else None,
        favours=_favours(battles, level),
    )


def _share(battles: Battles, counted: Bools, answer: Floats, level: float) -> _Share | None:
    """Share of wrong answers: Wilson's interval with the effective number of labels."""
    if not counted.any() or np.isnan(answer[counted]).any():
        return None
    weight = 1.0 / battles.human_probability[counted]
    wrong = np.abs(answer[counted] - battles.human[counted])
    value = float(weight @ wrong / weight.sum())
    variance = _variance(battles, counted, weight, wrong - value)
    kish = float(weight.sum() ** 2 / (weight @ weight))
    # Where all answers are right, or all wrong, the labels show no variance.
    shows_variance = 0.0 < variance < math.inf
    effective = min(kish, value * (1.0 - value) / variance) if shows_variance else kish
    z = float(ndtri(0.5 + level / 2.0))
    centre = (value + z**2 / (2 * effective)) / (1 + z**2 / effective)
    reach = z * np.sqrt(value * (1 - value) / effective + z**2 / (4 * effective**2))
    reach = float(reach) / (1 + z**2 / effective)
    share = _Share(value, max(centre - reach, 0.0), min(centre + reach, 1.0))
    return share.without(battles.label_noise)


def _favours(battles: Battles, level: float) -> tuple[Favour, ...]:
    """For each model the mean of p_bar less the people's outcome, the most favoured first."""
    if np.isnan(battles.p_bar[battles.labelled]).any():
        return ()
    favours = []
    z = float(ndtri(0.5 + level / 2.0))
    for number, model in enumerate(battles.models):
        own = battles.labelled & ((battles.first == number) | (battles.second == number))
        if not own.any():
            continue
        weight = 1.0 / battles.human_probability[own]
        sign = np.where(battles.first[own] == number, 1.0, -1.0)
        favour = sign * (battles.p_bar[own] - battles.people[own])
        mean = float(weight @ favour / weight.sum())
        reach = z * float(np.sqrt(_variance(battles, own, weight, favour - mean)))
        low, high = max(mean - reach, -1.0), min(mean + reach, 1.0)
        favours.append(
            Favour(model=model, labelled=int(own.sum()), favour=mean, low=low, high=high)
        )
    return tuple(sorted(favours, key=lambda model: -model.favour))


def _variance(battles: Battles, counted: Bools, weight: Floats, residual: Floats) -> float:
    """Variance of a weighted mean over units of dependent battles; infinite with one unit."""
    units = len(np.unique(battles.unit[counted]))
    if units == 1:
        return math.inf
    total = sums(battles.unit[counted], weight * residual, battles.units)
    return float(total @ total / weight.sum() ** 2) * units / (units - 1)
