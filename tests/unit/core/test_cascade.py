"""The rule of a cascade on small tables, where each number can be counted by hand."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.cascade import CascadePairs, CascadePlan, choose, plan_cascade
from app.core.pac import pac_threshold
from app.core.preference import LN2, FloatArray

INF = math.inf
ALPHA = DELTA = 0.1
# F1 and F2 are u / ln 2.
EVEN = ((0.0, 0.0), (LN2, 1.0))


def _plan(share: float, slack: float = 0.05) -> CascadePlan:
    return CascadePlan(small=EVEN, large=EVEN, share=share, slack=slack)


@pytest.mark.parametrize(
    ("contradicted", "share"),
    [
        pytest.param([], 0.8, id="no contradiction: at most 0.8"),
        pytest.param(range(100), 0.0, id="always contradicted"),
        pytest.param(range(50, 100), 0.55, id="5 of 55 are at most a tenth, and 6 of 56 are not"),
        pytest.param(range(5), 0.8, id="a bad start is outweighed"),
        pytest.param(range(0, 100, 8), 0.0, id="an eighth of any share"),
        pytest.param(range(35, 100), 0.0, id="fewer than 40 pairs"),
    ],
)
def test_r_is_the_largest_share_with_few_contradictions(
    contradicted: "list[int] | range", share: float
) -> None:
    u = np.linspace(0.001, 0.69, 100)
    contradicts = np.isin(np.arange(100), list(contradicted))
    assert plan_cascade(u, u, contradicts, alpha=ALPHA, slack=0.05).share == pytest.approx(share)


def test_ties_are_inside_or_outside_of_r_together() -> None:
    u = np.repeat([0.1, 0.5], [50, 50])
    contradicts = np.arange(100) >= 53
    assert plan_cascade(u, u, contradicts, alpha=ALPHA, slack=0.05).share == 0.5


@pytest.mark.parametrize(
    ("share", "small", "large", "position"),
    [
        pytest.param(0.5, 0.2, 0.9, 0.4, id="the small judge is sure"),
        pytest.param(0.5, 0.2, 0.3, 0.3, id="the large judge is surer"),
        pytest.param(0.5, 0.6, 0.9, 0.9, id="beyond r"),
        pytest.param(0.0, 0.0, 0.9, 0.9, id="r = 0"),
        pytest.param(0.5, INF, 0.9, 0.9, id="the small judge cannot answer"),
        pytest.param(0.5, 0.2, INF, 0.4, id="the large judge cannot answer"),
        pytest.param(0.5, INF, INF, INF, id="neither can"),
    ],
)
def test_a_position_is_the_smallest_q_that_accepts(
    share: float, small: float, large: float, position: float
) -> None:
    plan, u = _plan(share), (small * LN2, large * LN2)
    (found,) = plan.positions(np.array(u[:1]), np.array(u[1:]))
    assert found == pytest.approx(position)
    for q in (0.1, 0.35, 0.45, 0.95, 1.0):
        first, threshold = plan.thresholds(q)
        assert (u[0] <= first or u[1] <= threshold) == (position <= q)


def test_a_distribution_function_counts_ties_and_pairs_without_an_answer() -> None:
    u = np.array([0.0] * 50 + [INF] * 50)
    plan = plan_cascade(u, u, np.zeros(100, dtype=bool), alpha=ALPHA, slack=0.05, share=0.5)
    # Half of the pairs are tied at 0, so less than about half is nothing.
    assert plan.thresholds(0.3) == (-INF, -INF)
    assert plan.thresholds(0.5)[1] == pytest.approx(0.0, abs=0.02)
    assert plan.thresholds(1.0)[1] == LN2


def _pairs(n: int, *, small_wrong: float, large_wrong: float, split: bool = False) -> CascadePairs:
    """Uncertainties that do not depend on each other; errors spread evenly over either order.

    Args:
        n: Number of pairs.
        small_wrong: Share of errors of the small judge.
        large_wrong: Share of errors of the large judge.
        split: Whether the small judge is right only where it is among its surest half.
    """
    u1 = LN2 * (np.arange(n) + 0.5) / n
    u2 = LN2 * (np.arange(n) * 7 % n + 0.5) / n

    def errors(share: float, u: FloatArray) -> NDArray[np.bool_]:
        ranks = np.argsort(np.argsort(u))
        found: NDArray[np.bool_] = np.floor(share * (ranks + 1) + 1e-9) > np.floor(
            share * ranks + 1e-9
        )
        return found

    wrong, large = errors(small_wrong, u1) | (split & (u1 > LN2 / 2)), errors(large_wrong, u2)
    return CascadePairs(small=u1, large=u2, small_wrong=wrong, large_wrong=large, drawn=n)


@pytest.mark.parametrize(
    ("share", "pairs", "is_cascade", "asks_large"),
    [
        pytest.param(0.5, (0.02, 0.02, True), True, 0.5, id="a good half"),
        pytest.param(
            0.5, (0.3, 0.02, True), False, 1.0, id="the small judge errs where it is sure"
        ),
        pytest.param(0.0, (0.0, 0.02, False), False, 1.0, id="r = 0"),
        pytest.param(0.8, (0.01, 0.14, False), True, 0.2, id="the large judge alone is infeasible"),
        pytest.param(0.5, (0.5, 0.5, False), False, 1.0, id="both are infeasible"),
    ],
)
def test_the_cascade_serves_unless_it_loses_coverage(
    share: float, pairs: tuple[float, float, bool], is_cascade: bool, asks_large: float
) -> None:
    small_wrong, large_wrong, split = pairs
    found = choose(
        _plan(share),
        _pairs(1000, small_wrong=small_wrong, large_wrong=large_wrong, split=split),
        alpha=ALPHA,
        delta=DELTA,
    )
    assert found.is_cascade == is_cascade
    assert found.escalated == pytest.approx(asks_large, abs=0.25)
    assert found.errors <= ALPHA * found.coverage * 1000


@pytest.mark.parametrize(("share", "delta"), [(0.0, DELTA), (0.5, DELTA / 2)])
def test_the_large_judge_alone_accepts_what_pac_accepts(share: float, delta: float) -> None:
    """Without a share it has all of delta, and beside a cascade that loses coverage half of it."""
    rng = np.random.default_rng(1)
    small, large = rng.random((2, 800))
    pairs = CascadePairs(
        small=small * LN2,
        large=large * LN2,
        small_wrong=rng.random(800) < 0.1,
        large_wrong=rng.random(800) < 0.15 * large,
        drawn=800,
    )
    first, threshold = choose(_plan(share, slack=-1.0), pairs, alpha=ALPHA, delta=DELTA)[:2]
    alone = pac_threshold(pairs.large, pairs.large_wrong, alpha=ALPHA, delta=delta)
    assert first == -INF
    assert (pairs.large <= threshold).sum() == (pairs.large <= alone).sum() > 0
