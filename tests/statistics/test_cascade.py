"""The promise of a cascade: whichever of it and the large judge alone is chosen."""

import numpy as np
import pytest

from tests.statistics.worlds.cascades import NORMAL, Outcome, StepWorld, outcomes

ALPHA = DELTA = 0.1
RUNS = 200


def _over(found: list[Outcome], *, above: float = ALPHA) -> float:
    return float(np.mean([each.error > above for each in found]))


# 200 calibrations each, of 1,000 unlabeled and n labeled pairs: coverage, share that asks the large
# judge, and share of calibrations with a cascade.
@pytest.mark.parametrize(
    ("world", "n", "expected"),
    [
        ("0.766 -> 0.894", 500, (0.918, 0.77, 0.85)),
        ("0.766 -> 0.894", 1000, (0.947, 0.71, 0.96)),
        ("0.766 -> 0.894", 2000, (0.963, 0.71, 0.96)),
        ("0.807 -> 0.874", 500, (0.858, 0.85, 0.82)),
        ("0.807 -> 0.874", 1000, (0.902, 0.82, 0.86)),
        ("0.807 -> 0.874", 2000, (0.923, 0.81, 0.86)),
        ("0.738 -> 0.874", 500, (0.841, 0.95, 0.56)),
        ("0.738 -> 0.874", 1000, (0.878, 0.94, 0.65)),
        ("0.738 -> 0.874", 2000, (0.900, 0.94, 0.62)),
        # A useless small judge has r = 0.
        ("0.65 -> 0.874", 1000, (0.888, 1.00, 0.01)),
    ],
)
def test_the_normal_world(world: str, n: int, expected: tuple[float, float, float]) -> None:
    found = outcomes(NORMAL[world], n, RUNS, alpha=ALPHA, delta=DELTA, seed=5)
    assert _over(found) <= DELTA
    shares = [(each.coverage, each.escalated, each.chosen.is_cascade) for each in found]
    assert (np.abs(np.mean(shares, axis=0) - expected) < [0.02, 0.03, 0.08]).all()


def test_adversarial_worlds() -> None:
    """Errors that depend in any way on a few levels of both uncertainties.

    The truth is read from 200,000 pairs, so an error counts as over from 0.1009 on. With 60 runs of
    each of 25 worlds, a share of 0.1 passes 0.22 in one world of 300.
    """
    rng = np.random.default_rng(11)
    shares = [
        _over(outcomes(world, 500, 60, alpha=ALPHA, delta=DELTA, seed=i), above=0.1009)
        for i, world in enumerate(StepWorld.random(rng) for _ in range(25))
    ]
    assert max(shares) <= 0.22
    assert np.mean(shares) <= DELTA
