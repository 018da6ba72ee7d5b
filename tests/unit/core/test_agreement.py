"""Cohen's kappa with its interval, and the label noise that follows from disagreements."""

import random
from typing import get_args

import pytest

from app.core.agreement import Agreement
from app.core.comparison import Label

Pairs = list[tuple[Label, Label]]


def labelled(counts: dict[tuple[Label, Label], int]) -> Pairs:
    return [pair for pair, count in counts.items() for _ in range(count)]


def test_kappa_is_the_agreement_beyond_chance() -> None:
    # By hand: 50 pairs, 15 of them differ, so d = 0.3. The first person says A in 25 of 50, the
    # second in 30 of 50: by chance they agree in 0.5 * 0.6 + 0.5 * 0.4 = 0.5, and 1 - 0.3 / 0.5.
    pairs = labelled({("A", "A"): 20, ("A", "B"): 5, ("B", "A"): 10, ("B", "B"): 15})
    found = Agreement.of(pairs)
    assert (found.pairs, found.disagreements) == (50, 15)
    assert found.kappa == pytest.approx(0.4)
    # Clopper-Pearson for 15 of 50, from its tables: 0.1786 to 0.4461.
    assert found.kappa_interval == pytest.approx((1 - 0.4461 / 0.5, 1 - 0.1786 / 0.5), abs=2e-4)


def test_an_interval_has_a_width_where_nobody_disagrees() -> None:
    found = Agreement.of(labelled({("A", "A"): 10, ("B", "B"): 10}))
    assert found.kappa == 1.0
    # The upper end for 0 of 20 is 1 - 0.025 ** (1 / 20) = 0.1684, and chance disagrees in half.
    assert found.kappa_interval == pytest.approx((1 - 0.1684 / 0.5, 1.0), abs=2e-4)


@pytest.mark.parametrize("pairs", [[], [("A", "A")] * 9])
def test_without_a_chance_to_disagree_there_is_no_kappa(pairs: Pairs) -> None:
    found = Agreement.of(pairs)
    assert (found.kappa, found.kappa_interval) == (None, None)
    assert (found.label_noise is None) == (not pairs)


def test_ties_count_for_kappa_and_not_for_the_noise_of_sides() -> None:
    found = Agreement.of([("tie", "tie"), ("tie", "A"), ("B", "tie")])
    assert (found.pairs, found.disagreements, found.label_noise) == (3, 2, None)
    noise = Agreement.of([("tie", "A"), ("A", "B"), ("A", "A")]).label_noise
    assert noise == Agreement.of([("A", "B"), ("A", "A")]).label_noise


def test_the_interval_holds_as_often_as_it_says() -> None:
    rng, holds, sets = random.Random(29), 0, 400
    for _ in range(sets):
        # The labels of both people are that of a coin with probability 0.8, or else chance.
        truth = [rng.choice(get_args(Label)) for _ in range(60)]
        drawn = [
            [t if rng.random() < 0.8 else rng.choice(get_args(Label)) for t in truth]
            for _ in range(2)
        ]
        interval = Agreement.of(list(zip(*drawn, strict=True))).kappa_interval
        assert interval is not None
        # Both are not by chance with 0.8 * 0.8, and shares are equal: kappa = 0.64.
        holds += interval[0] <= 0.64 <= interval[1]
    # 0.95 of 400 less three standard deviations.
    assert holds >= 367
