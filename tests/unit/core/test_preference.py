"""Preferences: examples by hand, and properties."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from app.core.errors import JudgmentFailedError
from app.core.preference import (
    LN2,
    Preferences,
    binary_entropy,
    preference_from_gaps,
)

patient = settings(max_examples=300)
# Gaps near 0, where rounding decides the side; ordinary gaps; and gaps beyond the underflow of exp.
gaps = st.one_of(
    st.floats(-1e-15, 1e-15),
    st.floats(-40.0, 40.0),
    st.floats(-1e4, 1e4),
    st.floats(-1e300, 1e300),
)


def of_gaps(gap_fwd: ArrayLike, gap_rev: ArrayLike) -> Preferences:
    return preference_from_gaps(
        np.asarray(gap_fwd, dtype=np.float64), np.asarray(gap_rev, dtype=np.float64)
    )


def of_probability(p: float) -> Preferences:
    gap = math.log(p / (1 - p))
    return of_gaps([gap], [gap])


def test_the_paper_example_has_the_entropy_of_095() -> None:
    # p_bar = 0.95: -(0.95 ln 0.95 + 0.05 ln 0.05) = 0.0487278 + 0.1497866 = 0.1985152 nats.
    found = of_probability(0.95)
    assert found.p_bar[0] == pytest.approx(0.95, abs=1e-15)
    assert found.entropy[0] == pytest.approx(0.1985152433458726, abs=1e-15)


def test_both_orders_are_averaged_as_probabilities() -> None:
    # Forward: response_a leads by 1 -> p_fwd = 1 / (1 + e^-1) = 0.7310585786.
    # Reverse: response_a leads by 3 -> p_rev = 1 / (1 + e^-3) = 0.9525741268.
    # p_bar = 0.8418163527; entropy = -(p ln p + q ln q) = 0.4365580.
    found = of_gaps([1.0], [3.0])
    assert found.p_fwd[0] == pytest.approx(0.7310585786300049, abs=1e-15)
    assert found.p_rev[0] == pytest.approx(0.9525741268224334, abs=1e-15)
    assert found.p_bar[0] == pytest.approx(0.8418163527262192, abs=1e-15)
    assert found.confidence[0] == found.p_bar[0]
    p, q = 0.8418163527262192, 0.1581836472737808
    assert found.entropy[0] == pytest.approx(-(p * math.log(p) + q * math.log(q)), abs=1e-15)


def test_a_judge_that_follows_the_position_has_no_preference() -> None:
    # The response shown first leads by 5: p_fwd = sigmoid(5), p_rev = sigmoid(-5), mean 0.5.
    found = of_gaps([5.0, 0.1], [-5.0, -0.1])
    assert found.p_bar.tolist() == [0.5, 0.5]
    assert found.entropy.tolist() == [LN2, LN2]
    assert [preference.side for preference in found.rows()] == [None, None]


def test_near_certain_gaps_keep_distinct_entropies() -> None:
    # For a large gap g in both orders q = e^-g and the entropy is q (1 + g) to first order:
    # 61 e^-60 = 5.34e-25, 701 e^-700 = 6.91e-302; 1 - p_bar would be 0 for both.
    found = of_gaps([60.0, 61.0, 700.0, 701.0], [60.0, 61.0, 700.0, 701.0]).entropy
    expected = [(1 + g) * math.exp(-g) for g in (60.0, 61.0, 700.0, 701.0)]
    assert found == pytest.approx(expected, rel=1e-12, abs=0.0)
    assert (np.diff(found) < 0).all()
    assert (found > 0).all()


def test_entropy_at_its_ends_is_exact() -> None:
    found = binary_entropy(np.array([0.0, 0.5, 1.0]), np.array([1.0, 0.5, 0.0]))
    assert found.tolist() == [0.0, LN2, 0.0]
    assert not np.signbit(found).any()


@patient
@given(gaps, gaps)
def test_swapping_the_responses_mirrors_p_bar(gap_fwd: float, gap_rev: float) -> None:
    # The swapped forward prompt is the reverse prompt: its gap of the new response_a is -gap_rev.
    here, there = of_gaps([gap_fwd], [gap_rev]), of_gaps([-gap_rev], [-gap_fwd])
    p, mirrored = float(here.p_bar[0]), float(there.p_bar[0])
    low, high = min(p, mirrored), max(p, mirrored)
    assert high == 1.0 - low
    sides = {here.rows()[0].side, there.rows()[0].side}
    assert sides in ({"A", "B"}, {None})
    assert here.entropy[0] == there.entropy[0]
    assert here.confidence[0] == there.confidence[0]


@patient
@given(gaps, gaps)
def test_entropy_is_within_0_and_ln_2(gap_fwd: float, gap_rev: float) -> None:
    entropy = of_gaps([gap_fwd], [gap_rev]).entropy[0]
    assert 0.0 <= entropy <= LN2
    assert not np.signbit(entropy)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", range(2))
def test_a_gap_that_is_not_finite_is_refused(bad: float, place: int) -> None:
    both = [[0.0, 1.0] for _ in range(2)]
    both[place][1] = bad
    with pytest.raises(JudgmentFailedError):
        of_gaps(*both)
