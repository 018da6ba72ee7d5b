"""Prints the table of docs/design/guarantees.md, section 8, and more.

Usage: python docs/tools/make_looking_table.py      (about two minutes)

The judges are simulated (tests/statistics/worlds/normal.py), so that the true error of a threshold
is known. "Over" is the share of calibrations in which it exceeds the alpha that was used.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core.comparison import STANDARD_ALPHAS, STANDARD_DELTA
from app.core.pac import threshold_on
from app.core.thresholds import ThresholdCurve
from tests.statistics.worlds.normal import NormalJudge

SEED, CALIBRATIONS = 2026, 1000
ALPHA = 0.10
SCANNED = tuple(round(0.02 + 0.01 * i, 2) for i in range(29))
JUDGES: Mapping[str, NormalJudge] = {
    "JudgeBench-like (0.604, 0.597)": NormalJudge(accuracy=0.604, auroc=0.597),
    "MT-Bench, Qwen2.5-7B (0.738, 0.685)": NormalJudge(accuracy=0.738, auroc=0.685),
    "RewardBench, Qwen2.5-7B (0.807, 0.744)": NormalJudge(accuracy=0.807, auroc=0.744),
    "RewardBench, Qwen2.5-32B (0.894, 0.822)": NormalJudge(accuracy=0.894, auroc=0.822),
}
STEP = 10

Labels = tuple[NDArray[np.float64], NDArray[np.bool_]]


class Looks(NamedTuple):
    """Shares of the calibrations of one judge.

    Args:
        fixed: Over at alpha 0.10, fixed in advance.
        scanned: Over at some one of the alphas 0.02, 0.03, ... 0.30.
        smallest: Over at the smallest feasible one of the five standard alphas.
        accepting: Number of calibrations in which one of the five is feasible.
        shared: Over at some one of the five at delta / 5 each.
        alone_coverage: Mean coverage at alpha 0.10 and delta.
        shared_coverage: Mean coverage at alpha 0.10 and delta / 5.
    """

    fixed: float
    scanned: float
    smallest: float
    accepting: int
    shared: float
    alone_coverage: float
    shared_coverage: float


def is_over(judge: NormalJudge, alpha: float, threshold: float) -> bool:
    """Whether the true error of the accepted judgments exceeds alpha."""
    return threshold > -math.inf and float(judge.truth(threshold)[1]) > alpha


def thresholds(
    curve: ThresholdCurve, alphas: Iterable[float], delta: float = STANDARD_DELTA
) -> dict[float, float]:
    """The threshold of "pac" at each alpha."""
    return {alpha: threshold_on(curve, alpha, "pac", delta) for alpha in alphas}


def looks(judge: NormalJudge, n: int, calibrations: int = CALIBRATIONS) -> Looks:
    """Calibrates again and again with n labels, and looks at the thresholds of many alphas."""
    rng = np.random.default_rng([SEED, n])
    rows = []
    for _ in range(calibrations):
        curve = ThresholdCurve.fit(*judge.draw(n, rng))
        alone = thresholds(curve, {*SCANNED, *STANDARD_ALPHAS})
        shared = thresholds(curve, STANDARD_ALPHAS, STANDARD_DELTA / len(STANDARD_ALPHAS))
        feasible = [alpha for alpha in STANDARD_ALPHAS if alone[alpha] > -math.inf]
        rows.append(
            (
                is_over(judge, ALPHA, alone[ALPHA]),
                any(is_over(judge, alpha, alone[alpha]) for alpha in SCANNED),
                bool(feasible) and is_over(judge, feasible[0], alone[feasible[0]]),
                bool(feasible),
                any(is_over(judge, alpha, found) for alpha, found in shared.items()),
                float(judge.truth(alone[ALPHA])[0]),
                float(judge.truth(shared[ALPHA])[0]),
            )
        )
    fixed, scanned, smallest, accepting, *rest = np.array(rows, dtype=np.float64).mean(axis=0)
    return Looks(fixed, scanned, smallest, round(accepting * calibrations), *rest)


def over_when_growing(
    judge: NormalJudge,
    more: Callable[[ThresholdCurve], int | None],
    *,
    first: int,
    most: int,
    calibrations: int = CALIBRATIONS,
) -> float:
    """Share of calibrations over at alpha 0.10, if labels are added until it is feasible.

    Args:
        judge: The judge.
        more: Number of labels to add to those of a curve; None to give up.
        first: Number of labels at the first look.
        most: Number of labels at which nobody labels on.
        calibrations: Number of calibrations.
    """
    rng = np.random.default_rng([SEED, first])
    over = 0
    for _ in range(calibrations):
        score, wrong = judge.draw(most, rng)
        n, threshold = first, -math.inf
        added: int | None = 0
        while threshold == -math.inf and added is not None:
            curve = ThresholdCurve.fit(score[:n], wrong[:n])
            threshold = threshold_on(curve, ALPHA, "pac", STANDARD_DELTA)
            added = more(curve) if n < most else None
            n = min(most, n + (added or 0))
        over += is_over(judge, ALPHA, threshold)
    return over / calibrations


def in_steps(_curve: ThresholdCurve) -> int:
    """Ten labels more each time."""
    return STEP


def main() -> None:
    """Prints both tables as Markdown."""
    headings = (
        "judge (accuracy, AUROC)",
        "labels",
        "over at 0.10, decided first",
        "over at some one of 0.02, 0.03, ... 0.30",
        "over at the smallest feasible of five",
        "the same, among those that accept anything",
        "over at any of five with delta / 5",
        "coverage at 0.10",
        "coverage at 0.10 with delta / 5",
    )
    print(f"| {' | '.join(headings)} |\n{'|---' * len(headings)}|")
    for name, judge in JUDGES.items():
        for n in (200, 1000):
            found = looks(judge, n)
            among = found.smallest * CALIBRATIONS / max(1, found.accepting)
            shares = (found.fixed, found.scanned, found.smallest, among, found.shared)
            coverages = (found.alone_coverage, found.shared_coverage)
            cells = (*(f"{each:.1%}" for each in shares), *(f"{each:.3f}" for each in coverages))
            print(f"| {name} | {n} | {' | '.join(cells)} |")
    print("\n| judge (accuracy, AUROC) | labels added until 0.10 is feasible |")
    print("|---|---|")
    for name, judge in JUDGES.items():
        until = over_when_growing(judge, in_steps, first=100, most=1000)
        print(f"| {name} | {until:.1%} |")


if __name__ == "__main__":
    main()
