"""Methods on the pairs that all of them scored, with intervals over questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from app.evaluation.judgments.record import JudgedPair
from app.evaluation.methods import MethodScores
from app.evaluation.metrics import Quality, quality

# A method that scored fewer pairs is not compared: it would leave few common pairs to the others.
_LEAST_SHARE = 0.8
_ROUNDS = 300
_LEVEL = 0.95

Interval = tuple[float, float]
Name = TypeVar("Name", bound=str)


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedMethod:
    """A method on the common pairs of a data set.

    Args:
        n: Number of common pairs.
        quality: Quality of the confidence on these pairs.
        intervals: 95% interval of each figure of the quality; None where it is not defined.
    """

    n: int
    quality: Quality
    intervals: tuple[Interval | None, Interval | None, Interval | None, Interval | None]


def compared(
    pairs: Sequence[JudgedPair], scores: Mapping[Name, MethodScores], *, seed: int
) -> dict[Name, ComparedMethod]:
    """Compares the methods that scored most pairs on the pairs that all of them scored.

    They may also be one method of several judges.

    The intervals are percentiles of a bootstrap that draws questions with replacement.

    Args:
        pairs: Judged pairs of a data set.
        scores: Scores by the name of the method or judge.
        seed: An equal seed gives equal intervals.

    Returns:
        The methods that scored at least 80% of the largest number of pairs; empty without any pair.
    """
    most = max((len(one.pairs) for one in scores.values()), default=0)
    chosen = {
        name: one for name, one in scores.items() if len(one.pairs) >= max(_LEAST_SHARE * most, 1)
    }
    if not chosen:
        return {}
    common = reduce(np.intersect1d, [one.pairs for one in chosen.values()])
    if not len(common):
        return {}
    rounds = _resampled([pairs[place] for place in common], seed)
    return {name: _on(one, common, rounds) for name, one in chosen.items()}


def _on(
    scores: MethodScores, common: NDArray[np.int64], rounds: Sequence[NDArray[np.int64]]
) -> ComparedMethod:
    kept = np.isin(scores.pairs, common)
    confidence, error = scores.confidence[kept], scores.error[kept]
    drawn = [quality(confidence[places], error[places]) for places in rounds]
    accuracy, ece, auroc, auprc = (_interval(values) for values in zip(*drawn, strict=True))
    return ComparedMethod(
        n=len(common),
        quality=quality(confidence, error),
        intervals=(accuracy, ece, auroc, auprc),
    )


def _interval(values: Sequence[float | None]) -> Interval | None:
    defined = [value for value in values if value is not None]
    if len(defined) < len(values):
        return None
    low, high = np.quantile(defined, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return float(low), float(high)


def _resampled(pairs: Sequence[JudgedPair], seed: int) -> list[NDArray[np.int64]]:
    """Places of the pairs of as many questions as there are, drawn with replacement."""
    names = [pair.group if pair.group is not None else (place,) for place, pair in enumerate(pairs)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    question = np.array([numbers[name] for name in names], np.int64)
    order = np.argsort(question, kind="stable")
    starts = np.searchsorted(question[order], np.arange(len(numbers) + 1))
    rng = np.random.default_rng(seed)
    rounds = []
    for _ in range(_ROUNDS):
        drawn = rng.integers(len(numbers), size=len(numbers))
        rounds.append(np.concatenate([order[starts[i] : starts[i + 1]] for i in drawn]))
    return rounds
