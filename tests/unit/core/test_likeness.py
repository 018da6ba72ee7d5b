"""A run is compared with its set: silence where both are of one kind, a difference where not."""

import numpy as np
import pytest

from app.core.likeness import RUN_DELTA, difference
from app.core.preference import FloatArray

VALUES = ("uncertainty", "position_gap", "label_mass")


def drawn(rng: np.random.Generator, n: int, *, spread: float = 1.0) -> dict[str, FloatArray]:
    """Values of n pairs, skewed as those of a judge that is mostly sure."""
    return {name: rng.exponential(size=n) ** (2.0 * spread) for name in VALUES}


def test_pairs_like_the_set_are_called_unlike_as_rarely_as_promised() -> None:
    rounds = 400
    alarms = 0
    for seed in range(rounds):
        rng = np.random.default_rng(seed)
        alarms += difference(drawn(rng, 300), drawn(rng, 600)) is not None
    # Three standard errors above the promised rate.
    assert alarms / rounds <= RUN_DELTA + 3.0 * (RUN_DELTA / rounds) ** 0.5


@pytest.mark.parametrize("spread", [0.6, 1.6])
def test_pairs_with_another_spread_are_noticed_though_their_median_is_the_same(
    spread: float,
) -> None:
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        judged = drawn(rng, 400, spread=spread)
        # The medians become equal.
        scale = np.log(2.0) ** 2 / np.log(2.0) ** (2.0 * spread)
        found.append(difference({k: v * scale for k, v in judged.items()}, drawn(rng, 600)))
    assert all(found)


def test_the_shares_are_those_at_the_largest_distance() -> None:
    judged = {"uncertainty": np.array([0.6] * 60 + [0.1] * 40)}
    expected = {"uncertainty": np.array([0.6] * 20 + [0.1] * 80)}
    found = difference(judged, expected)
    assert found is not None
    # Above 0.1: 60 of 100 judgments, and 20 of 100 labeled pairs.
    assert (found.value, found.above, found.share, found.expected) == ("uncertainty", 0.1, 0.6, 0.2)


def test_unknown_values_are_left_out() -> None:
    rng = np.random.default_rng(1)
    same = drawn(rng, 200)
    unknown = {**drawn(rng, 200), "label_mass": np.full(200, np.nan)}
    assert difference(unknown, same) is None


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_a_few_pairs_prove_nothing(count: int) -> None:
    few = {"uncertainty": np.full(count, 0.6)}
    many = {"uncertainty": np.full(500, 0.1)}
    assert difference(few, many) is None
    assert difference(many, few) is None
