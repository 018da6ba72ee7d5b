"""The noise of a judge and of people.

A judge's scores depend on what the model computes at the same time; people disagree about a pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.core.preference import FloatArray, Preferences, Score, preference_from_gaps

# More pairs than this share that change are worth a warning.
MOST_FLIPS = 0.01
# A judge with fewer distinct gaps cannot tell many comparisons apart. In float32, two of 100 gaps
# are equal by chance once in 2,000 times.
LEAST_DISTINCT = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """The differences between the scores of the same comparisons in several runs.

    Args:
        pairs: Number of comparisons.
        largest: Largest difference of a gap from its value in the first run.
        p95: 95th percentile of these differences, over runs, comparisons and orders.
        flips: Number of comparisons that are not accepted in every run with the same verdict, nor
            left undecided in every run.
        threshold: The threshold of acceptance, in nats.
    """

    pairs: int
    largest: float
    p95: float
    flips: int
    threshold: float

    @classmethod
    def of(cls, runs: Sequence[Sequence[Score]], *, threshold: float | None) -> "Noise":
        """Compares runs.

        Args:
            runs: The scores of each run, in the same order; at least two runs and one comparison.
            threshold: Uncertainty up to which a verdict is accepted, in nats; None for one that
                accepts half of the first run.
        """
        gaps = np.array([[score.gaps for score in run] for run in runs])
        differences = np.abs(gaps[1:] - gaps[0])
        preferences = [preference_from_gaps(run[:, 0], run[:, 1]) for run in gaps]
        if threshold is None:
            threshold = float(np.median(preferences[0].entropy))
        verdicts = np.array([_verdicts(judged, threshold) for judged in preferences])
        return cls(
            pairs=gaps.shape[1],
            largest=float(differences.max()),
            p95=float(np.percentile(differences, 95)),
            flips=int((verdicts != verdicts[0]).any(axis=0).sum()),
            threshold=threshold,
        )

    @property
    def flip_share(self) -> float:
        """Share of the comparisons that change."""
        return self.flips / self.pairs

    @property
    def warning(self) -> str | None:
        """Says that more than 1% of the comparisons change, and what to do; None if not."""
        if self.flip_share <= MOST_FLIPS:
            return None
        return (
            f"{self.flips} of {self.pairs} test pairs get a different verdict with other pairs in "
            f"the batch: gaps differ by up to {self.largest:.2g}. Calibrate under the load under "
            "which you judge, or set VLLM_BATCH_INVARIANT=1 on a GPU (docs/design/gpu.md)"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolution:
    """How many of a judge's gaps are distinct; equal gaps are a head in 16 bits, or a defect.

    Args:
        prompts: Number of different prompts.
        distinct: Number of different gaps.
    """

    prompts: int
    distinct: int

    @classmethod
    def of(cls, scores: Sequence[Score]) -> "Resolution":
        """Counts the gaps of different comparisons, in both orders."""
        both = (score.gaps for score in scores)
        gaps = {gap for gap_fwd, gap_rev in both for gap in (gap_fwd, 0.0 - gap_rev)}
        return cls(prompts=2 * len(scores), distinct=len(gaps))

    @property
    def share(self) -> float:
        """Share of the gaps that are distinct."""
        return self.distinct / self.prompts

    @property
    def warning(self) -> str | None:
        """Says that gaps tie, and what to do; None if almost all are distinct."""
        if self.share >= LEAST_DISTINCT:
            return None
        return (
            f"{self.prompts} different prompts have only {self.distinct} different scores: "
            "comparisons tie, and a threshold accepts or rejects many of them at once. The judge "
            "probably computes its logits in 16 bits (`head_dtype` in /info): start a vLLM server "
            'with --hf-overrides \'{"head_dtype": "float32"}\''
        )


def _verdicts(judged: Preferences, threshold: float) -> FloatArray:
    """Shape (n,). 1 for an accepted A, -1 for an accepted B, 0 for an abstention."""
    return np.where(judged.accepted(threshold), np.sign(judged.p_bar - 0.5), 0.0)
