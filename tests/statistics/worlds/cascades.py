"""Two judges of the normal world on the same pairs, and worlds that are unkind to cascades."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from app.core.cascade import CascadePairs, CascadePlan, Chosen, choose, plan_cascade
from app.core.preference import LN2, FloatArray
from tests.statistics.worlds.normal import NormalJudge

# Pairs without labels that fix a plan, and pairs of which the truth is read.
PLANNED, TRUTH = 1000, 200_000


@dataclass(frozen=True, kw_only=True)
class NormalPair:
    """Two judges whose errors correlate 0.5 and whose confidences 0.3."""

    small: NormalJudge
    large: NormalJudge
    errors: float = 0.5
    confidences: float = 0.3

    def draw(self, n: int, rng: np.random.Generator) -> CascadePairs:
        wrong = ndtr(_correlated(n, self.errors, rng))
        noise = _correlated(n, self.confidences, rng)
        small, large = wrong[0] >= self.small.accuracy, wrong[1] >= self.large.accuracy
        confidence = [
            noise[i] + np.where(is_wrong, 0.0, judge.shift)
            for i, (judge, is_wrong) in enumerate(((self.small, small), (self.large, large)))
        ]
        u1, u2 = (LN2 * ndtr(-each) for each in confidence)
        return CascadePairs(small=u1, large=u2, small_wrong=small, large_wrong=large, drawn=n)


def _correlated(n: int, rho: float, rng: np.random.Generator) -> FloatArray:
    pair = rng.normal(size=(2, n))
    pair[1] = rho * pair[0] + np.sqrt(1 - rho**2) * pair[1]
    return pair


@dataclass(frozen=True, kw_only=True)
class StepWorld:
    """Judges whose errors depend on a few levels of either uncertainty in any way.

    Args:
        errors: Shape (2, k, k). Probability that the small, or the large judge is wrong, at each
            level of the small and of the large one's uncertainty.
        shared: Share of the pairs in which one draw decides both errors, so that the judges are
            wrong together and contradict each other less than they err.
        tied: Whether all uncertainties of a level are equal.
    """

    errors: FloatArray
    shared: float
    tied: bool

    @classmethod
    def random(cls, rng: np.random.Generator) -> "StepWorld":
        """A random world, near alpha = 0.1 where a promise breaks first."""
        k = int(rng.integers(1, 6))
        near = rng.choice([0.04, 0.08, 0.101, 0.11, 0.13, 0.2], size=(2, k, k))
        return cls(errors=near, shared=float(rng.random()), tied=bool(rng.random() < 0.5))

    def draw(self, n: int, rng: np.random.Generator) -> CascadePairs:
        k = self.errors.shape[1]
        level = rng.integers(0, k, size=(2, n))
        lot = rng.random((2, n))
        lot[1] = np.where(rng.random(n) < self.shared, lot[0], lot[1])
        wrong = lot < self.errors[:, level[0], level[1]]
        inside = 0.5 if self.tied else rng.random((2, n))
        u = LN2 * (level + inside) / k
        return CascadePairs(
            small=u[0], large=u[1], small_wrong=wrong[0], large_wrong=wrong[1], drawn=n
        )


class Outcome(NamedTuple):
    """The effect of a chosen pair of thresholds on the truth."""

    coverage: float
    escalated: float
    error: float
    chosen: Chosen


def planned(world: NormalPair | StepWorld, alpha: float, rng: np.random.Generator) -> CascadePlan:
    """A plan from pairs without labels."""
    pairs = world.draw(PLANNED, rng)
    return plan_cascade(
        pairs.small,
        pairs.large,
        pairs.small_wrong != pairs.large_wrong,
        alpha=alpha,
        slack=0.05,
    )


def outcomes(
    world: NormalPair | StepWorld, n: int, runs: int, *, alpha: float, delta: float, seed: int
) -> list[Outcome]:
    """Plans, calibrates and reads the truth, again and again."""
    rng = np.random.default_rng(seed)
    truth = world.draw(TRUTH, rng)
    found = []
    for _ in range(runs):
        chosen = choose(planned(world, alpha, rng), world.draw(n, rng), alpha=alpha, delta=delta)
        accepted, errors, escalated = truth.counts(chosen.first, chosen.threshold)
        error = errors / accepted if accepted else 0.0
        found.append(Outcome(accepted / TRUTH, escalated / TRUTH, error, chosen))
    return found


def _judge(accuracy: float, auroc: float) -> NormalJudge:
    return NormalJudge(accuracy=accuracy, auroc=auroc)


GOOD, FAIR, MIDDLING = _judge(0.894, 0.822), _judge(0.874, 0.809), _judge(0.807, 0.744)
NORMAL = {
    "0.766 -> 0.894": NormalPair(small=_judge(0.766, 0.777), large=GOOD),
    "0.807 -> 0.874": NormalPair(small=MIDDLING, large=FAIR),
    "0.738 -> 0.874": NormalPair(small=_judge(0.738, 0.685), large=FAIR),
    "0.65 -> 0.874": NormalPair(small=_judge(0.65, 0.55), large=FAIR),
}
