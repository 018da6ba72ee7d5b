"""Labels that a plan drew leave the ratings unbiased, and tell more than as many drawn evenly."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from app.ratings.battles import Battles
from app.ratings.label_plan import label_plan
from tests.statistics.worlds.arenas import World, labelled_arena
from tests.statistics.worlds.rated import Runs, runs
from tests.unit.ratings.arena import Arena

# 5% of 6,000 battles have a label, and as many again are to be labelled.
WORLD = World(labelled=lambda p_bar: np.full(len(p_bar), 0.05))
LABELS = 300
# Arenas, how far chance alone takes the coverage of so many from 0.95, and further draws.
MANY = (200, 0.025)
CASES = [(8, 0.11, 2), *(pytest.param(*MANY, draws, marks=pytest.mark.long) for draws in (1, 2))]


def arenas(
    count: int, drawn: Literal["planned", "evenly"], draws: int
) -> Iterator[tuple[Arena, Battles]]:
    """Arenas with the labels of a first draw, and of further ones.

    Args:
        count: Number of arenas.
        drawn: How the further battles are drawn.
        draws: Number of further draws; the first of two has no labels before it.
    """
    for seed in range(count):
        arena, battles = labelled_arena(WORLD, seed)
        if draws == 2:
            nothing = np.full(battles.n, np.nan)
            battles = replace(battles, human=nothing, human_probability=nothing)
        for draw in range(draws):
            battles = further(arena, battles, drawn, seed=1000 * draw + seed)
        yield arena, battles


def further(
    arena: Arena, battles: Battles, drawn: Literal["planned", "evenly"], *, seed: int
) -> Battles:
    """The battles with the labels of one more draw."""
    if drawn == "planned":
        plan = label_plan(battles, LABELS, seed=seed)
        chosen, probability = plan.drawn, plan.probability
    else:
        earlier = battles.human_probability if battles.labelled.any() else np.zeros(battles.n)
        share = LABELS / (~battles.labelled).sum()
        chance = np.random.default_rng([seed, 7]).random(battles.n)
        chosen, probability = chance < share, earlier + (1.0 - earlier) * share
    human = np.where(chosen & ~battles.labelled, arena.truth, battles.human)
    return replace(battles, human=human, human_probability=probability)


def bias(found: Runs) -> float:
    """The largest mean error of a model, in standard errors."""
    error = found.error.mean(axis=0)
    return float(np.abs(error / (found.error.std(axis=0) / np.sqrt(len(found.error)))).max())


@pytest.mark.parametrize(("count", "slack", "draws"), CASES)
def test_planned_labels_are_unbiased_and_narrow_more(count: int, slack: float, draws: int) -> None:
    planned, evenly = (runs(arenas(count, drawn, draws)) for drawn in ("planned", "evenly"))
    print(f"{draws} draws: planned {planned.figures}, bias {bias(planned):.1f} standard errors")
    print(f"{draws} draws: evenly {evenly.figures}")
    assert bias(planned) < (4.0 if count >= 100 else 7.0)
    assert planned.coverage > 0.95 - slack
    assert planned.typical_width < 0.97 * evenly.typical_width
