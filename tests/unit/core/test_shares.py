"""The bounds of Clopper and Pearson on a share."""

import numpy as np
import pytest
from scipy.stats import binomtest

from app.core.shares import clopper_pearson


@pytest.mark.parametrize(("count", "total"), [(0, 10), (3, 10), (10, 10), (7, 60), (1, 1)])
def test_the_bounds_are_those_of_scipy(count: int, total: int) -> None:
    low, high = clopper_pearson(count, total, tail=0.025)
    exact = binomtest(count, total).proportion_ci(0.95, method="exact")
    assert (float(low), float(high)) == pytest.approx((exact.low, exact.high), abs=1e-12)


def test_arrays_have_the_bounds_of_their_elements() -> None:
    counts, totals = np.array([0, 3, 10]), np.array([10, 10, 10])
    low, high = clopper_pearson(counts, totals, tail=0.05)
    for i in range(3):
        one = clopper_pearson(counts[i], totals[i], tail=0.05)
        assert (low[i], high[i]) == (one[0], one[1])


def test_nothing_is_known_without_an_observation() -> None:
    low, high = clopper_pearson(0, 0, tail=0.05)
    assert (float(low), float(high)) == (0.0, 1.0)
