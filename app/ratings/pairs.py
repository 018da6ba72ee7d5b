"""Pairs of models: coverage, reasons, flips; and the win rates that alpha implies."""

from collections.abc import Iterator

import numpy as np

from app.ratings.battles import Battles
from app.ratings.bradley_terry import Floats, Ints, sums
from app.ratings.results import ModelPair, WinRate


def pairs_of(battles: Battles) -> tuple[ModelPair, ...]:
    """Counts of each pair of models that met, in alphabetical order."""
    m = len(battles.models)
    low = np.minimum(battles.first, battles.second)
    high = np.maximum(battles.first, battles.second)
    keys, pair = np.unique(low * m + high, return_inverse=True)
    counts = dict(_counts(battles, pair, len(keys)))
    reasons = _reasons(battles, pair, len(keys))
    has_orders = counts["ordered"] == counts["judged"]
    return tuple(
        ModelPair(
            model_a=battles.models[key // m],
            model_b=battles.models[key % m],
            battles=int(counts["battles"][place]),
            errors=int(counts["battles"][place] - counts["judged"][place]),
            accepted=int(counts["accepted"][place]),
            coverage=_ratio(counts["accepted"][place], counts["judged"][place]),
            reasons=reasons[place],
            flips=int(counts["flips"][place]) if has_orders[place] else None,
            first_bias=_ratio(counts["bias"][place], counts["judged"][place])
            if has_orders[place]
            else None,
            labelled=int(counts["labelled"][place]),
        )
        for place, key in enumerate(keys.tolist())
    )


def _counts(battles: Battles, pair: Ints, k: int) -> Iterator[tuple[str, Floats]]:
    judged, fwd, rev = battles.judged, battles.p_fwd, battles.p_rev
    ordered = judged & ~np.isnan(fwd + rev)
    flips = ordered & ((fwd - 0.5) * (rev - 0.5) < 0)
    bias = np.where(ordered, (fwd - rev) / 2.0, 0.0)
    for name, values in {
        "battles": np.ones(battles.n),
        "judged": judged,
        "accepted": judged & ~np.isnan(battles.verdict),
        "ordered": ordered,
        "flips": flips,
        "bias": bias,
        "labelled": battles.labelled,
    }.items():
        yield name, sums(pair, values.astype(np.float64), k)


def _reasons(battles: Battles, pair: Ints, k: int) -> list[dict[str, int]]:
    abstained, size = battles.reason >= 0, len(battles.reasons)
    place = pair[abstained] * size + battles.reason[abstained]
    table = np.bincount(place, minlength=k * size).reshape(k, size)
    return [
        {reason: int(n) for reason, n in zip(battles.reasons, row, strict=True) if n}
        for row in table
    ]


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None


def win_rates_of(battles: Battles) -> tuple[WinRate, ...]:
    """The interval of each model's share of wins that alpha implies, without labels.

    Empty without alpha: then nothing bounds the errors of the verdicts.
    """
    if battles.alpha is None or not battles.has_verdicts:
        return ()
    return tuple(
        _win_rate(battles, number, battles.alpha)
        for number in range(len(battles.models))
        if (battles.judged & _plays(battles, number)).any()
    )


def _plays(battles: Battles, number: int) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    return np.asarray((battles.first == number) | (battles.second == number))


def _win_rate(battles: Battles, number: int, alpha: float) -> WinRate:
    accepted = battles.judged & ~np.isnan(battles.verdict)
    own = accepted & _plays(battles, number)
    verdict = battles.verdict[own]
    won = float(np.where(battles.first[own] == number, verdict, 1.0 - verdict).sum())
    lost = float(own.sum()) - won
    abstained = int((battles.abstained & _plays(battles, number)).sum())
    judged = int(own.sum()) + abstained
    wrong, even = alpha * float(accepted.sum()), alpha * float(own.sum())
    return WinRate(
        model=battles.models[number],
        judged=judged,
        won=won,
        lost=lost,
        abstained=abstained,
        low=(won - min(won, wrong)) / judged,
        high=(won + min(lost, wrong) + abstained) / judged,
        even_low=(won - min(won, even)) / judged,
        even_high=(won + min(lost, even) + abstained) / judged,
    )
