"""The battles to judge next are those that narrow the intervals most."""

from dataclasses import replace

import numpy as np
import pytest

from app.ratings.battles import Battles
from app.ratings.board import board_of
from app.ratings.results import RatingSettings
from app.ratings.schedule import BattleSchedule, schedule, schedule_of
from tests.statistics.worlds.arenas import WORLDS, labelled_arena

MODELS = ("a", "b", "c", "d", "e")
SCORES = np.array([1.5, 0.6, 0.5, -0.2, -2.0])


def symmetric(upper: dict[tuple[int, int], float], n: int = 5) -> np.ndarray:
    met = np.zeros((n, n))
    for (i, j), battles in upper.items():
        met[i, j] = met[j, i] = battles
    return met


def trace(scores: np.ndarray, met: np.ndarray) -> float:
    """The sum of the variances about the mean, from the information matrix in double loops."""
    n = len(scores)
    precision = np.eye(n) / (1000.0 * np.log(10.0) / 400.0) ** 2
    for i in range(n):
        for j in range(i + 1, n):
            p = 1.0 / (1.0 + np.exp(scores[j] - scores[i]))
            v = np.zeros(n)
            v[i], v[j] = 1.0, -1.0
            precision += met[i, j] * p * (1.0 - p) * np.outer(v, v)
    centre = np.eye(n) - 1.0 / n
    return float(np.trace(centre @ np.linalg.inv(precision) @ centre))


def counted(found: BattleSchedule) -> np.ndarray:
    places = {(MODELS.index(a), MODELS.index(b)): float(n) for a, b, n in found.pairs}
    return symmetric(places)


@pytest.mark.parametrize("seed", range(5))
def test_each_battle_is_the_best_one_by_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    upper = {(i, j): float(rng.integers(0, 30)) for i in range(5) for j in range(i + 1, 5)}
    met, before = symmetric(upper), np.zeros((5, 5))
    for count in range(1, 8):
        now = counted(schedule(MODELS, SCORES, met, count))
        added = now - before
        assert added.sum() == 2.0, "one more battle, and the earlier ones stay"
        best = min(trace(SCORES, met + before + symmetric({pair: 1.0})) for pair in upper)
        assert trace(SCORES, met + now) == pytest.approx(best, rel=1e-9)
        before = now


def test_two_groups_that_never_met_are_joined_first() -> None:
    met = symmetric({(0, 1): 500, (2, 3): 500, (3, 4): 500})
    ((first, second, battles),) = schedule(MODELS, SCORES, met, 1).pairs
    assert battles == 1
    assert (first in "ab") != (second in "ab")


def test_a_model_without_a_battle_gets_the_most() -> None:
    met = symmetric({(i, j): 200 for i in range(4) for j in range(i + 1, 4)})
    found = schedule(MODELS, SCORES, met, 20)
    assert sum(pair.battles for pair in found.pairs if "e" in pair[:2]) == 20


def test_equal_models_with_equal_battles_are_scheduled_evenly() -> None:
    met = symmetric({(i, j): 10 for i in range(5) for j in range(i + 1, 5)})
    found = schedule(MODELS, np.zeros(5), met, 30)
    assert [pair.battles for pair in found.pairs] == [3] * 10


def test_the_chosen_battles_tell_more_than_an_even_spread() -> None:
    met = symmetric({(0, 1): 50, (1, 2): 3, (2, 3): 50, (3, 4): 20})
    found = schedule(MODELS, SCORES, met, 100)
    assert sum(pair.battles for pair in found.pairs) == 100
    assert found.error_then < 0.97 * found.error_evenly < found.error_now


def test_the_expected_error_is_what_further_battles_bring() -> None:
    # By hand: two equal models, information 1/4 a battle; the rating about the mean is half of the
    # difference, whose variance is 1 / (battles / 4 + 1 / (2 prior)).
    met = symmetric({(0, 1): 40.0}, 2)
    found = schedule(("a", "b"), np.zeros(2), met, 60)
    prior = (1000.0 * np.log(10.0) / 400.0) ** 2
    assert found.error_now == pytest.approx(np.sqrt(1.0 / (40 / 4 + 1 / (2 * prior))) / 2, rel=1e-9)
    assert found.error_then == pytest.approx(np.sqrt(1.0 / (25 + 1 / (2 * prior))) / 2, rel=1e-9)
    assert found.error_evenly == found.error_then


@pytest.mark.parametrize("labelled", [True, False])
def test_the_errors_are_those_of_the_intervals_in_the_table(labelled: bool) -> None:
    battles: Battles = labelled_arena(WORLDS["10% of the battles"], 0)[1]
    if not labelled:
        battles = replace(battles, human=np.full(battles.n, np.nan))
    board = board_of(battles, RatingSettings())
    assert board.main == ("debiased" if labelled else "soft")
    widths = [
        rating.high - rating.low
        for rating in board.views[board.main].ratings
        if rating.high is not None and rating.low is not None
    ]
    found = schedule_of(battles, 50)
    assert found.view == board.main
    points = RatingSettings().points
    assert found.error_now * points == pytest.approx(np.mean(widths) / 2 / 1.96, rel=0.02)
    assert found.error_then < found.error_evenly < found.error_now


def test_battles_that_tell_nothing_of_their_spread_are_scheduled_all_the_same() -> None:
    met = symmetric({(i, j): 10 for i in range(5) for j in range(i + 1, 5)})
    found = schedule(MODELS, np.zeros(5), met, 30, error=np.array([np.nan, 0.0, 0.0, 0.0, 0.0]))
    assert found.error_now == schedule(MODELS, np.zeros(5), met, 30).error_now
