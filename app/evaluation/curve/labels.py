"""Coverage against the number of labels, from random draws of the labeled pairs."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from app.core.calibration import GUARANTEES
from app.core.comparison import Guarantee
from app.core.threshold_rows import threshold_on
from app.core.thresholds import ThresholdCurve
from app.evaluation.curve.labeled_scores import LabeledScores

_FEWEST = 10
_SIZES = 12
_DRAWS = 50
_SEED = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelsRow:
    """Coverage with a number of labels.

    Args:
        guarantee: "marginal" or "pac".
        labels: Number of labels calibrated on.
        coverage: Mean over draws of the share of all pairs that is accepted.
    """

    guarantee: Guarantee
    labels: int
    coverage: float


def coverage_by_labels(scores: LabeledScores, *, alpha: float, delta: float) -> list[LabelsRow]:
    """Calibrates on random subsets of several sizes, the last of which is all labels.

    Args:
        scores: Scores of a judge on labeled pairs.
        alpha: In (0, 1).
        delta: Level of "pac", in (0, 1).
    """
    sizes = np.unique(np.geomspace(min(_FEWEST, scores.n), scores.n, _SIZES).round().astype(int))
    rng = np.random.default_rng(_SEED)
    # A larger subset holds the smaller ones.
    orders = [rng.permutation(scores.n) for _ in range(_DRAWS)]
    everything = ThresholdCurve.fit(scores.uncertainty, scores.error)
    accepted: dict[tuple[Guarantee, int], list[int]] = defaultdict(list)
    for drawn in (order[:size] for order in orders for size in sizes):
        curve = ThresholdCurve.fit(scores.uncertainty[drawn], scores.error[drawn])
        for guarantee in GUARANTEES:
            threshold = threshold_on(curve, alpha, guarantee, delta)
            count, _ = everything.accepted_at(threshold, undecided=scores.undecided)
            accepted[guarantee, len(drawn)].append(count)
    return [
        LabelsRow(guarantee=guarantee, labels=labels, coverage=float(np.mean(counts)) / scores.n)
        for (guarantee, labels), counts in accepted.items()
    ]
