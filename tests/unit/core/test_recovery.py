"""Tests of the number of labels that a new calibration needs after an alarm."""

from fractions import Fraction

import pytest
from scipy.stats import binom

from app.core.comparison import Criterion, Guarantee
from app.core.pac import good_marginal_rank, labels_for_verdicts, start_rank


def criterion(alpha: float, guarantee: Guarantee = "pac", delta: float | None = 0.1) -> Criterion:
    return Criterion(
        alpha=alpha,
        guarantee=guarantee,
        delta=delta if guarantee == "pac" else None,
        calibration="default",
    )


def test_pac_needs_so_many_labels_that_its_tests_start_at_the_rank_with_power() -> None:
    # Rank 210 has power 0.8, and is within a quarter of the points from 840 on.
    assert labels_for_verdicts(criterion(0.1)) == 840
    assert (start_rank(0.1, 0.1, 0.0, 840), start_rank(0.1, 0.1, 0.0, 839)) == (210, 91)


@pytest.mark.parametrize("alpha", [0.03, 0.05, 0.1, 0.2, 0.25, 0.4])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_marginal_needs_the_rank_with_power_by_counting(alpha: float, noise: float) -> None:
    def power(rank: int) -> float:
        exact = Fraction(str(noise))
        bound = exact + (1 - 2 * exact) * Fraction(str(alpha))
        errors = int(bound * rank) - 1
        error = float(exact + (1 - 2 * exact) * Fraction(str(alpha)) * Fraction("0.6"))
        return float(binom.cdf(errors, rank, error)) if errors >= 0 else 0.0

    expected = next(rank for rank in range(1, 10_000) if power(rank) >= 0.8)
    assert good_marginal_rank(alpha, noise, at_most=10_000) == expected
    assert good_marginal_rank(alpha, noise, at_most=expected - 1) is None


def test_marginal_at_a_tenth_by_hand() -> None:
    # P[Bin(50, 0.06) <= 4] = 0.82, P[Bin(40, 0.06) <= 3] = 0.78; 50 is a quarter of 200.
    assert labels_for_verdicts(criterion(0.1, "marginal")) == 200


@pytest.mark.parametrize(("guarantee", "alpha"), [("marginal", 0.006), ("pac", 0.01)])
def test_an_alpha_that_needs_more_than_a_set_has_room_for_has_no_number(
    guarantee: Guarantee, alpha: float
) -> None:
    assert labels_for_verdicts(criterion(alpha, guarantee)) is None
    assert labels_for_verdicts(criterion(1e-9, guarantee)) is None
