"""Judge and people on the battles with a person's label."""

import numpy as np
from scipy.special import ndtri

from app.core.shares import Share, variance_of_mean, weighted_share
from app.ratings.battles import Battles
from app.ratings.bradley_terry import Bools, Floats
from app.ratings.outcomes import preferred
from app.ratings.results import Agreement, Favour


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


def _share(battles: Battles, counted: Bools, answer: Floats, level: float) -> Share | None:
    """Share of wrong answers, where people's labels are wrong as often as their noise says."""
    if not counted.any() or np.isnan(answer[counted]).any():
        return None
    weight = 1.0 / battles.human_probability[counted]
    wrong = np.abs(answer[counted] - battles.human[counted])
    share = weighted_share(wrong, weight, battles.unit[counted], level=level)
    noise = battles.label_noise
    return Share(*(min(max((each - noise) / (1.0 - 2.0 * noise), 0.0), 1.0) for each in share))


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
        reach = z * float(np.sqrt(variance_of_mean(favour - mean, weight, battles.unit[own])))
        low, high = max(mean - reach, -1.0), min(mean + reach, 1.0)
        favours.append(
            Favour(model=model, labelled=int(own.sum()), favour=mean, low=low, high=high)
        )
    return tuple(sorted(favours, key=lambda model: -model.favour))
