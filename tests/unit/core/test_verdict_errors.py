"""Labels contradict an alpha only where its verdicts are wrong too often to be chance."""

from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from app.core.shares import weighted_share
from app.core.verdict_errors import LabeledVerdict, accepted_and_wrong, contradicted_verdicts


def verdicts(
    wrong: int, right: int, *, alpha: float = 0.05, of_one: int = 1, probability: float = 1.0
) -> Iterator[LabeledVerdict]:
    for i in range(wrong + right):
        yield LabeledVerdict(
            verdict="A",
            label="B" if i < wrong else "A",
            alpha=alpha,
            unit=i // of_one,
            probability=probability,
        )


def exceeded_alphas(verdicts: Iterable[LabeledVerdict]) -> list[float]:
    return [each.alpha for each in contradicted_verdicts(verdicts) if each.exceeds_alpha]


def test_an_alpha_below_the_interval_is_exceeded() -> None:
    (exceeded,) = contradicted_verdicts(verdicts(23, 77))
    assert (exceeded.alpha, exceeded.verdicts) == (0.05, 100)
    # Wilson's interval of 23 of 100: z = 1.96, so the center is (0.23 + 0.0192) / 1.0384 = 0.2400
    # and the reach 1.96 sqrt(0.23 x 0.77 / 99.0 + 0.000096) / 1.0384, about 0.082.
    assert exceeded.contradicted == pytest.approx((0.23, 0.158, 0.322), abs=2e-3)


@pytest.mark.parametrize("wrong", [0, 5, 9])
def test_an_alpha_within_the_interval_is_not_exceeded(wrong: int) -> None:
    assert exceeded_alphas(verdicts(wrong, 100 - wrong)) == []


def test_every_alpha_is_compared_with_its_own_verdicts() -> None:
    both = [*verdicts(23, 77), *verdicts(23, 77, alpha=0.2)]
    assert exceeded_alphas(both) == [0.05]
    assert exceeded_alphas([]) == []


def test_verdicts_on_one_question_prove_nothing() -> None:
    assert exceeded_alphas(verdicts(23, 77, of_one=100)) == []
    # Ten wrong verdicts of one question are one wrong question among ten.
    assert exceeded_alphas(verdicts(10, 90, of_one=10)) == []
    assert exceeded_alphas(verdicts(10, 90, alpha=0.02))


def test_a_true_error_of_alpha_is_called_exceeded_in_few_seeds() -> None:
    rounds, exceeded = 400, 0
    for seed in range(rounds):
        wrong = int(np.random.default_rng(seed).binomial(400, 0.1))
        exceeded += bool(exceeded_alphas(verdicts(wrong, 400 - wrong, alpha=0.1)))
    # The lower end fails with 2.5%; three standard errors above it.
    assert exceeded / rounds <= 0.025 + 3.0 * (0.025 / rounds) ** 0.5


def test_a_row_drawn_with_a_small_probability_stands_for_many() -> None:
    cases, weight = np.array([1.0, 0.0, 0.0]), np.array([2.0, 1.0, 1.0])
    share = weighted_share(cases, weight, np.arange(3), level=0.95)
    assert share.value == 0.5
    assert 0.0 < share.low < 0.5 < share.high < 1.0


def test_a_pair_without_a_preference_is_never_accepted() -> None:
    gaps = [(0.0, 0.0), (3.0, -3.0), (4.0, 4.0), (4.0, None)]
    labels = [False, True, True, False]
    thresholds = -np.inf, 0.1, np.log(2.0)
    assert accepted_and_wrong(gaps, labels, thresholds) == [(0, 0), (2, 1), (2, 1)]
