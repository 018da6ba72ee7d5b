"""Models with few battles: the others' ratings do not feel them, and their intervals hold."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit

from app.ratings.board import board_of
from app.ratings.results import Rating, RatingSettings, ViewName
from app.ratings.rows import read_battles
from tests.unit.ratings.arena import Arena, simulated, write

SETTINGS = RatingSettings(rounds=200)
# Battles of the models that came last, and their strengths in logits.
ROOKIES = {"rookie-2": (2, 1.5), "rookie-8": (8, -0.5)}
SIGNAL = 1.95


def with_rookies(arena: Arena, seed: int) -> Arena:
    """The arena with the battles of the rookies at its end, judged like the others."""
    rng = np.random.default_rng([seed, 7])
    played = [count for count, _ in ROOKIES.values()]
    strength = np.concatenate([arena.strength, [theta for _, theta in ROOKIES.values()]])
    first = np.repeat(len(arena.strength) + np.arange(len(played)), played)
    second = rng.integers(len(arena.strength), size=len(first))
    gap = strength[first] - strength[second]
    truth = (rng.random(len(first)) < expit(gap)).astype(float)
    shown = (2.0 * truth - 1.0) * SIGNAL**2 / 2.0 + rng.normal(0.0, SIGNAL, len(first))
    joined = {
        "first": first,
        "second": second,
        "truth": truth,
        "p_bar": expit(gap + shown),
    }
    return replace(
        arena,
        strength=strength,
        **{name: np.concatenate([getattr(arena, name), new]) for name, new in joined.items()},
    )


def ratings_of(arena: Arena, view: ViewName, folder: Path) -> list[Rating]:
    """A view of an arena with labels, in the order of the models' names."""
    path = write(folder / "rows.jsonl", arena.rows(labelled=0.3, per_question=2))
    ratings = board_of(read_battles([path]), SETTINGS).views[view].ratings
    return sorted(ratings, key=lambda rating: rating.model)


@pytest.mark.parametrize("view", ["soft", "debiased", "people", "accepted"])
def test_rookies_enter_no_sum(view: ViewName, tmp_path: Path) -> None:
    for seed in range(4):
        arena = simulated(battles=600, seed=seed)
        joined, m = with_rookies(arena, seed), len(arena.strength)
        alone, rated = (ratings_of(each, view, tmp_path) for each in (arena, joined))
        for was, each in zip(alone, rated[:m], strict=True):
            ranks = (each.model, each.rank, each.rank_low, each.rank_high)
            assert ranks == (was.model, was.rank, was.rank_low, was.rank_high)
            ends = (each.score, each.low, each.high)
            assert ends == pytest.approx((was.score, was.low, was.high), abs=1e-6)
        for each in rated[m:]:
            assert (each.provisional, each.score, each.rank) == (True, None, None)
