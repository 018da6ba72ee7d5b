"""The PAC threshold: examples by hand, properties, and comparison with a naive loop."""

import math
import random
import time
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.binomial import most_successes
from app.core.pac import (
    fair_start_rank,
    good_start_rank,
    observed_error,
    pac_threshold,
    points_for_good_start,
    rank_sequence,
    start_rank,
)
from app.core.preference import LN2

# (alpha, delta, label noise) as integers over 100: small start ranks, so that n stays small.
CASES = [(10, 10, 0), (20, 10, 0), (29, 5, 0), (25, 20, 5), (25, 10, 20), (7, 30, 0), (50, 10, 10)]


@cache
def cdf(errors: int, n: int, p: int, whole: int) -> float:
    """P[Bin(n, p / whole) <= errors], summed in integers."""
    terms = (math.comb(n, i) * p**i * (whole - p) ** (n - i) for i in range(errors + 1))
    return float(Fraction(sum(terms), whole**n))


@cache
def naive_rank(alpha: int, delta: int, noise: int, power: float) -> int:
    """The smallest rank that passes with that probability if the true error is 0.6 alpha."""
    bound = 100 * noise * 10 + (100 - 2 * noise) * alpha * 10
    assumed_error = 100 * noise * 10 + (100 - 2 * noise) * alpha * 6
    rank, allowed = 0, -1
    while True:
        rank += 1
        while cdf(allowed + 1, rank, bound, 100_000) <= delta / 100:
            allowed += 1
        if allowed >= 0 and cdf(allowed, rank, assumed_error, 100_000) >= power:
            return rank


def naive_start(alpha: int, delta: int, noise: int, n: int) -> int:
    """The rank with power 0.8 if that is within half of n and 2.5 alpha n, else with power 0.5."""
    good = naive_rank(alpha, delta, noise, 0.8)
    within = good <= n * Fraction(1, 2) and good <= n * Fraction(5 * alpha, 200)
    return good if within else naive_rank(alpha, delta, noise, 0.5)


def naive_ranks(n: int, alpha: int, delta: int, noise: int) -> list[int]:
    """Tests every rank; keeps those where one more error is allowable and the last is 1% away."""
    bound = 100 * noise * 10 + (100 - 2 * noise) * alpha * 10
    start, step = naive_start(alpha, delta, noise, n), max(1, round(0.01 * n))
    ranks: list[int] = []
    allowed = -1
    for rank in range(1, n + 1):
        before = allowed
        while cdf(allowed + 1, rank, bound, 100_000) <= delta / 100:
            allowed += 1
        if rank == start or (ranks and allowed > before and rank >= ranks[-1] + step):
            ranks.append(rank)
    return sorted({*ranks, n}) if ranks else []


def naive(scores: list[float], wrong: list[bool], alpha: int, delta: int, noise: int) -> float:
    """Tests the ranks upwards from the start, and counts errors again at each rank."""
    found = -math.inf
    for rank in naive_ranks(len(scores), alpha, delta, noise):
        score = sorted(scores)[rank - 1]
        accepted = [e for s, e in zip(scores, wrong, strict=True) if s <= score]
        bound = 100 * noise * 10 + (100 - 2 * noise) * alpha * 10
        if cdf(sum(accepted), len(accepted), bound, 100_000) > delta / 100:
            break
        found = score
    return LN2 if found == max(scores) else found


def test_the_start_rank_is_91_at_alpha_and_delta_010_and_210_with_many_points() -> None:
    # P[Bin(91, 0.1) <= 5] = 0.0937 <= 0.1 and P[Bin(91, 0.06) <= 5] = 0.5338 >= 0.5.
    assert [start_rank(0.1, 0.1, 0.0, n) for n in (90, 91, 839)] == [None, 91, 91]
    assert cdf(5, 91, 10, 100) <= 0.1 < cdf(5, 90, 10, 100)
    assert cdf(5, 91, 6, 100) >= 0.5
    # 15 errors are allowed from rank 210 on, where P[Bin(210, 0.06) <= 15] = 0.812.
    assert [start_rank(0.1, 0.1, 0.0, n) for n in (840, 1000, 10**6)] == [210, 210, 210]
    assert cdf(15, 210, 10, 100) <= 0.1 < cdf(15, 209, 10, 100)
    assert cdf(15, 210, 6, 100) >= 0.8 > cdf(14, 209, 6, 100)


@pytest.mark.parametrize(("alpha", "delta", "noise"), CASES)
def test_a_start_rank_is_the_smallest_with_its_power(alpha: int, delta: int, noise: int) -> None:
    shares = (alpha / 100, delta / 100, noise / 100)
    fair, good = naive_rank(alpha, delta, noise, 0.5), naive_rank(alpha, delta, noise, 0.8)
    assert fair_start_rank(*shares, at_most=10**4) == fair
    assert good_start_rank(*shares, at_most=10**4) == good
    enough = points_for_good_start(alpha / 100, good)
    for n in (fair, enough - 1, enough, 10 * enough):
        assert start_rank(*shares, n) == naive_start(alpha, delta, noise, n)
    assert start_rank(*shares, enough) == good
    assert start_rank(*shares, fair - 1) is None


@pytest.mark.parametrize(("alpha", "delta", "noise"), CASES)
def test_the_threshold_is_that_of_the_naive_loop(alpha: int, delta: int, noise: int) -> None:
    rng = random.Random(alpha * 100 + noise)
    found = []
    for i in range(60):
        # For alpha 0.1, good power needs 840 points.
        n = 900 if i % 20 == 0 and alpha == 10 else rng.choice([1, 20, 91, 150, 260])
        grid = rng.choice([1, 5, 30, 10**6])
        rate = (noise + (100 - 2 * noise) * alpha / 100) / 100 * rng.choice([0.0, 0.4, 0.7, 1.0])
        scores = [rng.randint(0, grid) / grid * LN2 for _ in range(n)]
        wrong = [rng.random() < rate * (0.5 + s / LN2) for s in scores]
        found.append(
            pac_threshold(
                scores, wrong, alpha=alpha / 100, delta=delta / 100, label_noise=noise / 100
            )
        )
        assert found[-1] == naive(scores, wrong, alpha, delta, noise)
    assert -math.inf in found
    assert LN2 in found


@pytest.mark.parametrize("extreme", [{"alpha": 1e-9}, {"delta": 1e-300}, {"alpha": 1e-300}])
def test_an_extreme_request_is_infeasible_at_once(extreme: dict[str, float]) -> None:
    began = time.thread_time()
    arguments = {"alpha": 0.1, "delta": 0.1} | extreme
    scores = np.linspace(0, 0.6, 2000)
    assert pac_threshold(scores, np.zeros(2000), **arguments) == -math.inf
    assert time.thread_time() - began < 5.0


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_alpha_and_delta_out_of_range_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="alpha and delta"):
        pac_threshold([0.1], [False], alpha=bad, delta=0.1)
    with pytest.raises(ValueError, match="alpha and delta"):
        pac_threshold([0.1], [False], alpha=0.1, delta=bad)


def slow_ranks(start: int, step: int, bound: float, delta: float, n: int) -> list[int]:
    """The same ranks, from the number of allowable errors at every rank."""
    ranks = [start]
    # Less than delta, as numbers of errors with a probability of exactly delta do not count.
    allowable = most_successes(delta * (1.0 - 1e-12), np.arange(1, n + 1), bound)
    for rank in range(start + 1, n):
        if rank >= ranks[-1] + step and allowable[rank - 1] > allowable[rank - 2]:
            ranks.append(rank)
    return ranks


@settings(max_examples=60)
@given(
    st.floats(1e-3, 0.999) | st.integers(1, 99).map(lambda x: x / 100),
    st.floats(1e-4, 0.999) | st.integers(1, 99).map(lambda x: x / 100),
    st.sampled_from([0.0, 0.05, 0.25, 0.45]),
    st.integers(0, 30_000),
)
def test_the_ranks_are_those_of_the_largest_allowable_errors(
    alpha: float, delta: float, noise: float, n: int
) -> None:
    start = start_rank(alpha, delta, noise, n)
    bound, step = observed_error(alpha, noise), max(1, round(0.01 * n))
    expected = [] if start is None else slow_ranks(start, step, bound, delta, n)
    if expected and expected[-1] < n:
        expected.append(n)
    assert list(rank_sequence.__wrapped__(alpha, delta, noise, n)) == expected
