"""Labels contradict an alpha only where its verdicts are wrong too often to be chance."""

from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from app.core.verdict_errors import (
    LabeledVerdict,
    accepted_and_wrong,
    contradicted_verdicts,
    weighted_share,
)


def verdicts(
    wrong: int, right: int, *, alpha: float = 0.05, of_one: int = 1, probability: float = 1.0
) -> Iterator[LabeledVerdict]:
    for i in range(wrong + right):
        yield LabeledVerdict(alpha, i < wrong, i // of_one, probability)


def exceeded_alphas(verdicts: Iterable[LabeledVerdict]) -> list[float]:
    return [alpha for alpha, _, share in contradicted_verdicts(verdicts) if share.low > alpha]


def test_an_alpha_below_the_interval_is_exceeded() -> None:
    ((alpha, count, share),) = contradicted_verdicts(verdicts(23, 77))
    assert (alpha, count) == (0.05, 100)
    # Wilson's interval of 23 of 100: z = 1.96, so the center is (0.23 + 0.0192) / 1.0384 = 0.2400
    # and the reach 1.96 sqrt(0.23 x 0.77 / 99.0 + 0.000096) / 1.0384, about 0.082.
    assert share == pytest.approx((0.23, 0.158, 0.322), abs=2e-3)


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
