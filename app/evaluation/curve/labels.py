"""Coverage against the number of labels, from random subsets of the labelled pairs."""

from dataclasses import dataclass

import numpy as np

from app.core.calibration import GUARANTEES
from app.core.comparison import Guarantee
from app.core.threshold_rows import threshold_on
from app.core.thresholds import ThresholdCurve
from app.evaluation.curve.labelled_scores import LabelledScores

_FEWEST = 10
_SIZES = 12
_DRAWS = 50
_SEED = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelsRow:
    """Coverage with some of the labels.

    Args:
        guarantee: "marginal" or "pac".
        labels: Number of labels calibrated on.
        coverage: Mean over draws of the share of all pairs that is accepted.
    """

    guarantee: Guarantee
    labels: int
    coverage: float


def coverage_by_labels(
    scores: LabelledScores, *, alpha: float, delta: float, label_noise: float
) -> list[LabelsRow]:
    """Calibrates on random subsets of several sizes, the last of which is all labels.

    Args:
        scores: Scores of a judge on labelled pairs.
        alpha: In (0, 1).
        delta: Level of "pac", in (0, 1).
        label_noise: Probability in [0, 0.5) that a label is flipped.
    """
    sizes = np.unique(np.geomspace(min(_FEWEST, scores.n), scores.n, _SIZES).round().astype(int))
    everything = ThresholdCurve.fit(scores.uncertainty, scores.error, label_noise)
    rng = np.random.default_rng(_SEED)
    accepted = {(guarantee, int(size)): 0 for guarantee in GUARANTEES for size in sizes}
    for _ in range(_DRAWS):
        # A larger subset holds the smaller ones.
        order = rng.permutation(scores.n)
        for size in sizes:
            drawn = order[:size]
            curve = ThresholdCurve.fit(scores.uncertainty[drawn], scores.error[drawn], label_noise)
            for guarantee in GUARANTEES:
                threshold = threshold_on(curve, alpha, guarantee, delta)
                count, _ = everything.accepted_at(threshold, undecided=scores.undecided)
                accepted[guarantee, int(size)] += count
    return [
        LabelsRow(guarantee=guarantee, labels=size, coverage=total / (_DRAWS * scores.n))
        for (guarantee, size), total in accepted.items()
    ]
