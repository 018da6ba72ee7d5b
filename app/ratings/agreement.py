"""Judge and people on the battles with a person's label."""

import numpy as np

from app.core.shares import Share, weighted_share
from app.ratings.battles import Battles
from app.ratings.bradley_terry import Bools, Floats, sums
from app.ratings.outcomes import preferred
from app.ratings.results import Agreement, Favour

# Models with fewer labels are not tested for a favour; a line needs three models.
_FEWEST_LABELS = 10
_FEWEST_MODELS = 3
_NOISE_ROUNDS = 2000


def agreement_of(battles: Battles, *, level: float) -> Agreement | None:
    """The judge's errors by the people's labels, and the models that it favors.

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
    """The models that the judge favors beyond shrunken gaps, the most favored first.

    A judge that is unsure gives the better of two models too little and the worse one too much, in
    proportion to how well they do by itself. The line of that proportion is fitted over the models;
    a favour is the distance from it. The intervals hold together: their half-width is a quantile of
    the largest studentised distance. A model that they show to be favored bends the line and
    burdens its opponents, so the others are tested again without its battles.
    """
    if np.isnan(battles.p_bar[battles.judged]).any():
        return ()
    left, found = battles, list[Favour]()
    while tested := _tested(left, level):
        worst = max(tested, key=lambda each: max(each.low, -each.high))
        if max(worst.low, -worst.high) <= 0.0:
            found += tested
            break
        found.append(worst)
        number = battles.models.index(worst.model)
        left = left.where((left.first != number) & (left.second != number))
    return tuple(sorted(found, key=lambda each: -each.favour))


def _tested(battles: Battles, level: float) -> list[Favour]:
    """The favours of all models with enough labels, with joint intervals; empty without a line."""
    labels = _sums(battles, battles.labelled.astype(np.float64))
    tested = np.flatnonzero(labels >= _FEWEST_LABELS)
    if len(tested) < _FEWEST_MODELS:
        return []
    weight = np.where(battles.labelled, 1.0 / battles.human_probability, 0.0)
    error = np.where(battles.labelled, battles.p_bar - battles.people, 0.0)
    total = _sums(battles, weight)[tested]
    raw = _sums(battles, weight * error, sign=-1.0)[tested] / total
    judged = battles.judged.astype(np.float64)
    share = _sums(battles, np.where(battles.judged, battles.p_bar - 0.5, 0.0), sign=-1.0)[tested]
    share /= _sums(battles, judged)[tested]
    across = share * labels[tested]
    distance = np.eye(len(tested)) - np.outer(share, across) / max(float(share @ across), 1e-12)
    errors = _by_unit(battles, weight * error, -1.0)[:, tested] / total
    weights = _by_unit(battles, weight, 1.0)[:, tested] / total
    influence = (errors - weights * raw) @ distance.T
    influence *= np.sqrt(labels[tested] / (labels[tested] - 1.0))
    deviation = np.sqrt((influence**2).sum(axis=0))
    favour, reach = distance @ raw, deviation * _joint_width(influence, labels[tested], level)
    return [
        Favour(
            model=battles.models[model],
            labelled=int(labels[model]),
            favour=float(favour[place]),
            low=max(float(favour[place] - reach[place]), -1.0),
            high=min(float(favour[place] + reach[place]), 1.0),
            raw=float(raw[place]),
        )
        for place, model in enumerate(tested)
    ]


def _joint_width(influence: Floats, labels: Floats, level: float) -> float:
    """The quantile of the largest studentised sum of the influences, with Student's tails."""
    rng = np.random.default_rng(0)
    deviation = np.sqrt((influence**2).sum(axis=0))
    noise = rng.standard_normal((_NOISE_ROUNDS, len(influence))) @ influence
    freedom = float(np.median(labels)) - 1.0
    tails = np.sqrt(rng.chisquare(freedom, (_NOISE_ROUNDS, 1)) / freedom)
    largest = np.abs(noise / np.where(deviation > 0, deviation, np.inf) / tails).max(axis=1)
    return float(np.quantile(largest, level))


def _sums(battles: Battles, values: Floats, *, sign: float = 1.0) -> Floats:
    """Shape (models,). Sum of the values of each model's battles, times sign for the second."""
    models = len(battles.models)
    return sums(battles.first, values, models) + sign * sums(battles.second, values, models)


def _by_unit(battles: Battles, values: Floats, sign: float) -> Floats:
    """Shape (units with a label, models). The same sums of the labelled battles of each unit."""
    kept = battles.labelled
    units, unit = np.unique(battles.unit[kept], return_inverse=True)
    table = np.zeros((len(units), len(battles.models)))
    np.add.at(table, (unit, battles.first[kept]), values[kept])
    np.add.at(table, (unit, battles.second[kept]), sign * values[kept])
    return table
