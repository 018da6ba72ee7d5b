"""Counts of the battles of each pair of models, and the agreement of judge and people."""

import numpy as np

from app.core.verdict_errors import Share, weighted_share
from app.ratings.battles import Battles
from app.ratings.bradley_terry import Bools, Floats, Ints, sums
from app.ratings.outcomes import preferred
from app.ratings.results import Agreement, ModelPair


def pairs_of(battles: Battles) -> tuple[ModelPair, ...]:
    """Counts of each pair of models that met, in alphabetical order."""
    m = len(battles.models)
    low = np.minimum(battles.first, battles.second)
    high = np.maximum(battles.first, battles.second)
    keys, pair = np.unique(low * m + high, return_inverse=True)
    judged, fwd, rev = battles.judged, battles.p_fwd, battles.p_rev
    ordered = judged & ~np.isnan(fwd + rev)
    columns = {
        "battles": np.ones(battles.n),
        "judged": judged,
        "accepted": battles.accepted,
        "ordered": ordered,
        "flips": ordered & ((fwd - 0.5) * (rev - 0.5) < 0),
        "bias": np.where(ordered, (fwd - rev) / 2.0, 0.0),
        "labelled": battles.labeled,
    }
    table = {
        name: sums(pair, np.asarray(values, dtype=np.float64), len(keys)).tolist()
        for name, values in columns.items()
    }
    reasons = _reasons(battles, pair, len(keys))
    found = []
    for place, key in enumerate(keys.tolist()):
        row = {name: values[place] for name, values in table.items()}
        found.append(
            ModelPair(
                model_a=battles.models[key // m],
                model_b=battles.models[key % m],
                battles=int(row["battles"]),
                errors=int(row["battles"] - row["judged"]),
                accepted=int(row["accepted"]),
                coverage=row["accepted"] / row["judged"] if row["judged"] else None,
                reasons=reasons[place],
                flips=int(row["flips"]) if row["ordered"] else None,
                first_bias=row["bias"] / row["ordered"] if row["ordered"] else None,
                labelled=int(row["labelled"]),
            )
        )
    return tuple(found)


def _reasons(battles: Battles, pair: Ints, k: int) -> list[dict[str, int]]:
    abstained, size = battles.reason >= 0, len(battles.reasons)
    place = pair[abstained] * size + battles.reason[abstained]
    table = np.bincount(place, minlength=k * size).reshape(k, size)
    return [
        {reason: int(n) for reason, n in zip(battles.reasons, row, strict=True) if n}
        for row in table
    ]


def agreement_of(battles: Battles, *, level: float) -> Agreement | None:
    """The judge's errors by the people's labels; None without labels."""
    labeled = battles.labeled
    if not labeled.any():
        return None
    tie = labeled & (battles.human == 0.5)
    accepted = labeled & battles.accepted
    ties = _share(battles, accepted, tie.astype(np.float64), level)
    error = _error(battles, accepted & ~tie, battles.verdict, level)
    always = _error(battles, battles.preferred & labeled & ~tie, preferred(battles.p_bar), level)
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


def _share(battles: Battles, counted: Bools, values: Floats, level: float) -> Share | None:
    if not counted.any():
        return None
    weight = 1.0 / battles.human_probability[counted]
    return weighted_share(values[counted], weight, battles.unit[counted], level=level)


def _error(battles: Battles, counted: Bools, answer: Floats, level: float) -> Share | None:
    """Share of wrong answers, where people's labels are wrong as often as their noise says."""
    share = _share(battles, counted, np.abs(answer - battles.human), level)
    if share is None or np.isnan(answer[counted]).any():
        return None
    noise = battles.label_noise
    return Share(*(min(max((each - noise) / (1.0 - 2.0 * noise), 0.0), 1.0) for each in share))
