"""Bias, spread and coverage of the ratings of simulated arenas, by view."""

from dataclasses import dataclass

import numpy as np
import pytest

from app.ratings.bootstrap import Games, cells_of, replicates
from app.ratings.bradley_terry import Floats, Structure, centered, ratings, structure_of
from app.ratings.intervals import intervals_of, rank_sets
from tests.unit.ratings.arena import Arena, simulated

ARENAS = 60
FAVORED = 2
LABELED = 0.10
PRIOR_SD = 5.76


@dataclass(frozen=True)
class Runs:
    """One view in all arenas.

    Args:
        error, low, high: Shape (arenas, models). Errors of ratings, and of the ends of their
            intervals, in logits.
        in_sets: Shape (arenas,). Whether the true ranks of all models are in their rank sets.
    """

    error: Floats
    low: Floats
    high: Floats
    in_sets: Floats

    @property
    def misplaced(self) -> float:
        """Mean error of the favored model."""
        return float(self.error[:, FAVORED].mean())

    @property
    def coverage(self) -> float:
        """Share of the intervals that contain the truth."""
        return float(((self.low < 0) & (self.high > 0)).mean())


def views(arena: Arena, seed: int) -> dict[str, Games]:
    """The views as the formulas of the guide say them, without the code that is tested."""
    n = len(arena.truth)
    drawn = np.random.default_rng(seed).random(n) < LABELED
    p, y = arena.p_bar, arena.truth
    whole = (p > 0.5).astype(float)
    outcomes = {
        "accepted": (arena.accepted, whole),
        "soft": (np.ones(n, dtype=bool), p),
        "abstain_as_tie": (np.ones(n, dtype=bool), np.where(arena.accepted, whole, 0.5)),
        "debiased": (np.ones(n, dtype=bool), p + drawn / LABELED * (y - p)),
        "people": (drawn, y),
    }
    return {
        name: Games(
            models=len(arena.strength),
            first=arena.first[kept],
            second=arena.second[kept],
            unit=np.arange(n)[kept],
            keys=np.arange(n, dtype=np.uint64),
            weight=np.ones(int(kept.sum())),
            outcome=outcome[kept],
        )
        for name, (kept, outcome) in outcomes.items()
    }


def errors_of(
    theta: Floats, rounds: Floats, structure: Structure, arena: Arena
) -> tuple[Floats, Floats, Floats]:
    """Errors of the ratings and of the ends of their intervals."""
    implied = np.zeros(len(theta))
    low, high = intervals_of(theta, rounds, implied, structure, level=0.95)
    return theta - arena.strength, low - arena.strength, high - arena.strength


@pytest.fixture(scope="module")
def runs() -> dict[str, Runs]:
    found: dict[str, list[tuple[Floats, ...]]] = {}
    for seed in range(ARENAS):
        arena = simulated(favor=1.35, favored=FAVORED, seed=seed)
        for name, games in views(arena, 1000 + seed).items():
            cells = cells_of(games)
            structure = structure_of(cells.whole)
            theta = ratings(cells.whole, structure, prior_sd=PRIOR_SD)
            (drawn,) = replicates([cells], [theta], rounds=200, seed=seed, prior_sd=PRIOR_SD)
            rounds = centered(drawn.theta, structure)
            ends = errors_of(theta, rounds, structure, arena)
            best, worst = rank_sets(theta, rounds, np.zeros((6, 6)), structure, level=0.95)
            true_rank = np.arange(6, 0, -1)
            inside = np.array(((best <= true_rank) & (true_rank <= worst)).all(), float)
            found.setdefault(name, []).append((*ends, inside))
    return {
        name: Runs(*(np.array(each) for each in zip(*ends, strict=True)))
        for name, ends in found.items()
    }


def test_the_simulated_judge_keeps_its_alpha() -> None:
    arena = simulated(battles=60_000, favor=1.35)
    wrong = (arena.p_bar > 0.5) != (arena.truth > 0.5)
    assert arena.accepted.mean() == pytest.approx(0.52, abs=0.001)
    assert wrong[arena.accepted].mean() < 0.05


def test_a_favored_model_is_misplaced_however_small_the_accepted_error_is(
    runs: dict[str, Runs],
) -> None:
    assert runs["accepted"].misplaced > 0.9
    assert runs["soft"].misplaced > 0.4
    assert runs["abstain_as_tie"].misplaced > 0.3


def test_labels_put_it_back(runs: dict[str, Runs]) -> None:
    # The standard error of a mean of these runs is 0.015.
    assert abs(runs["debiased"].misplaced) < 0.04
    assert np.abs(runs["debiased"].error.mean(axis=0)).max() < 0.04


def test_debiased_ratings_spread_less_than_those_of_people_alone(runs: dict[str, Runs]) -> None:
    spread = {name: each.error.std(axis=0).mean() for name, each in runs.items()}
    assert spread["debiased"] < 0.95 * spread["people"]


@pytest.mark.parametrize("view", ["debiased", "people"])
def test_intervals_contain_the_truth_as_often_as_they_say(runs: dict[str, Runs], view: str) -> None:
    assert 0.92 < runs[view].coverage < 0.98


@pytest.mark.parametrize("view", ["debiased", "people"])
def test_the_rank_sets_of_all_models_hold_together(runs: dict[str, Runs], view: str) -> None:
    assert runs[view].in_sets.mean() >= 0.93


def test_intervals_of_a_biased_view_do_not(runs: dict[str, Runs]) -> None:
    assert runs["accepted"].coverage < 0.5
