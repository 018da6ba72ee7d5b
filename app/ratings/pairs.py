"""Pairs of models: coverage, reasons of abstentions, and the two orders."""

import numpy as np

from app.ratings.battles import Battles
from app.ratings.bradley_terry import Ints, sums
from app.ratings.results import ModelPair


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
