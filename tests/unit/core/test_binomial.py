"""Tests of the binomial distribution against scipy's, and of the root by bisection."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom

from app.core.binomial import binomial_cdf, most_successes, root

TRIALS = np.array([*range(1, 60), 97, 500, 1000, 12_345, 10**6])
RATES = (1e-4, 0.01, 0.05, 0.2, 0.47, 0.9, 0.999)


@pytest.mark.parametrize("rate", RATES)
def test_the_distribution_is_that_of_scipy(rate: float) -> None:
    for successes in (0 * TRIALS, np.floor(TRIALS * rate), TRIALS - 1, TRIALS):
        expected = binom.cdf(successes, TRIALS, rate)
        np.testing.assert_allclose(
            binomial_cdf(successes, TRIALS, rate), expected, rtol=1e-9, atol=1e-300
        )
    assert np.all(binomial_cdf(-1, TRIALS, rate) < 1e-300)
    assert np.all(binomial_cdf(TRIALS, TRIALS, rate) == 1.0)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("probability", [1e-9, 0.01, 0.1, 0.5, 0.93])
def test_one_success_more_would_be_too_likely(rate: float, probability: float) -> None:
    most = most_successes(probability, TRIALS, rate)
    assert np.all((most >= -1) & (most <= TRIALS))
    assert np.all(binom.cdf(most, TRIALS, rate) <= probability)
    assert np.all(binom.cdf(most + 1, TRIALS, rate) > probability)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("solution", [1e-7, 0.3, 0.999])
def test_the_root_is_that_of_scipy(sign: float, solution: float) -> None:
    def function(x: float) -> float:
        return sign * (x**3 - solution**3)

    assert root(function, 0.0, 1.0) == pytest.approx(solution, abs=1e-12)
    assert function(root(function, 0.0, 1.0)) >= 0.0
    assert root(function, 0.0, 1.0) == pytest.approx(brentq(function, 0.0, 1.0), abs=1e-11)
