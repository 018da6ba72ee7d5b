"""The paper's coverage from accuracy and AUROC alone, in a world whose truth is known.

A judge is wrong with probability 1 - accuracy; its confidence is N(d, 1) where it is right and
N(0, 1) where it is wrong, d = sqrt(2) Phi^-1(AUROC) (docs/design/guarantees.md).
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from app.core.preference import LN2, FloatArray
from app.core.thresholds import ThresholdCurve
from app.evaluation import paper

# Half of the paper's 2,000 pairs.
_CALIBRATION_PAIRS = 1000
# At 200 a coverage still moves by 0.01 with the seed.
_CALIBRATIONS = 1000


class NormalJudge(NamedTuple):
    """A judge whose true error at every threshold is known.

    Args:
        accuracy: In (0, 1).
        auroc: Of its confidence, in (0, 1).
    """

    accuracy: float
    auroc: float

    @property
    def shift(self) -> float:
        """Mean confidence where it is right."""
        return math.sqrt(2.0) * float(ndtri(self.auroc))

    def draw(self, n: int, rng: np.random.Generator) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Uncertainty in nats and error of n pairs, each of shape (n,)."""
        wrong = rng.random(n) >= self.accuracy
        confidence = rng.normal(size=n) + np.where(wrong, 0.0, self.shift)
        return LN2 * ndtr(-confidence), wrong

    def truth(self, threshold: float | FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coverage, and share of errors among the accepted; the latter 0 where nothing is."""
        share = np.maximum(np.asarray(threshold, dtype=np.float64), 0.0) / LN2
        lowest = -ndtri(share)
        wrong = (1 - self.accuracy) * ndtr(-lowest)
        right = self.accuracy * ndtr(self.shift - lowest)
        accepted = wrong + right
        return accepted, np.divide(wrong, accepted, out=np.zeros_like(wrong), where=accepted > 0)


class WorldRow(NamedTuple):
    """A judge on a benchmark of the paper: what SCOPE accepts there, and in this world.

    Args:
        judge: The paper's name.
        dataset: Our name of the benchmark.
        accuracy: The paper's, of BPE.
        auroc: Likewise.
        paper_coverage: The paper's, of SCOPE at alpha 0.10.
        coverage: Ours in the world with this accuracy and AUROC, mean over calibrations.
    """

    judge: str
    dataset: str
    accuracy: float
    auroc: float
    paper_coverage: float
    coverage: float


@cache
def normal_world_rows(*, seed: int = 0, calibrations: int = _CALIBRATIONS) -> tuple[WorldRow, ...]:
    """The paper's twelve: four judges on three benchmarks, calibrated with 1,000 pairs each."""
    rows = []
    for i, cell in enumerate(paper.scope_cells()):
        judge, rng = NormalJudge(cell.accuracy, cell.auroc), np.random.default_rng([seed, i])
        thresholds = [
            ThresholdCurve.fit(*judge.draw(_CALIBRATION_PAIRS, rng)).threshold(paper.ALPHA)
            for _ in range(calibrations)
        ]
        coverage, _ = judge.truth(np.array(thresholds))
        rows.append(
            WorldRow(
                cell.judge,
                cell.dataset,
                cell.accuracy,
                cell.auroc,
                cell.coverage,
                float(coverage.mean()),
            )
        )
    return tuple(rows)
