"""Counts of the battles of each pair of models, and the agreement of judge and people."""

import numpy as np

from app.core.verdict_errors import Share, weighted_share
from app.ratings.battles import Battles
from app.ratings.bradley_terry import Bools, Floats, sums
from app.ratings.outcomes import preferred
from app.ratings.results import LEVEL, Agreement, ModelPair


def pairs_of(battles: Battles) -> tuple[ModelPair, ...]:
    """Counts of each pair of models that met, in alphabetical order."""
    m = len(battles.models)
    low = np.minimum(battles.first, battles.second)
    high = np.maximum(battles.first, battles.second)
    keys, pair = np.unique(low * m + high, return_inverse=True)
    columns = (np.ones(battles.n), battles.judged, battles.accepted, battles.labeled)
    counts = (sums(pair, np.asarray(values, dtype=np.float64), len(keys)) for values in columns)
    return tuple(
        ModelPair(
            model_a=battles.models[key // m],
            model_b=battles.models[key % m],
            battles=int(played),
            errors=int(played - judged),
            accepted=int(accepted),
            coverage=accepted / judged if judged else None,
            labelled=int(labeled),
        )
        for key, played, judged, accepted, labeled in zip(
            keys.tolist(), *(each.tolist() for each in counts), strict=True
        )
    )


def agreement_of(battles: Battles) -> Agreement | None:
    """The judge's errors by the people's labels; None without labels."""
    labeled = battles.labeled
    if not labeled.any():
        return None
    tie = labeled & (battles.human == 0.5)
    accepted = labeled & battles.accepted
    ties = _share(battles, accepted, tie.astype(np.float64))
    error = _error(battles, accepted & ~tie, battles.verdict)
    always = _error(battles, battles.preferred & labeled & ~tie, preferred(battles.p_bar))
    return Agreement(
        labelled=int(labeled.sum()),
        ties=int(tie.sum()),
        accepted=int(accepted.sum()),
        accepted_ties=int((accepted & tie).sum()),
        tie_share=ties.value if ties else None,
        tie_low=ties.low if ties else None,
        tie_high=ties.high if ties else None,
        error=error.value if error else None,
        error_low=error.low if error else None,
        error_high=error.high if error else None,
        error_always=always.value if always else None,
    )


def _share(battles: Battles, counted: Bools, values: Floats) -> Share | None:
    if not counted.any():
        return None
    weight = 1.0 / battles.human_probability[counted]
    return weighted_share(values[counted], weight, battles.unit[counted], level=LEVEL)


def _error(battles: Battles, counted: Bools, answer: Floats) -> Share | None:
    """Share of wrong answers, where people's labels are wrong as often as their noise says."""
    share = _share(battles, counted, np.abs(answer - battles.human))
    if share is None or np.isnan(answer[counted]).any():
        return None
    noise = battles.label_noise
    return Share(*(min(max((each - noise) / (1.0 - 2.0 * noise), 0.0), 1.0) for each in share))
