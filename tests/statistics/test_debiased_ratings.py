"""Coverage and width of the corrected ratings, by how people label and how good the judge is."""

from dataclasses import replace

import numpy as np
import pytest

from app.ratings.results import ViewName
from tests.statistics.worlds.arenas import WORLDS, World, labeled_arena
from tests.statistics.worlds.rated import Runs, runs


def in_world(world: World, view: ViewName, *, arenas: int, label_noise: float = 0.0) -> Runs:
    """Rates the arenas of a world with 95% intervals."""
    labeled = (labeled_arena(world, seed) for seed in range(arenas))
    noted = ((arena, replace(battles, label_noise=label_noise)) for arena, battles in labeled)
    found = runs(noted, view)
    print(f"{view}: {found.figures}")
    return found


# Arenas, and how far chance alone takes the coverage of so many from 0.95.
FEW, MANY = (10, 0.09), (200, 0.025)
SIZES = [FEW, pytest.param(*MANY, marks=pytest.mark.long)]
HONEST = [name for name, world in WORLDS.items() if not world.noise]
FAST = ("whole questions", "10%, a weak judge")
CASES = [pytest.param(name, *FEW) for name in FAST]
CASES += [pytest.param(name, *MANY, marks=pytest.mark.long) for name in HONEST]


@pytest.mark.parametrize(("name", "arenas", "slack"), CASES)
def test_debiased_intervals_hold_and_are_at_most_4_percent_wider_than_those_of_people(
    name: str, arenas: int, slack: float
) -> None:
    people, debiased = (
        in_world(WORLDS[name], view, arenas=arenas) for view in ("people", "debiased")
    )
    assert debiased.coverage > 0.95 - slack
    weak = WORLDS[name].signal < 1.0
    # The ratio of a weak judge is 1.035 with a standard error of 0.006 over 100 arenas.
    widest = 0.9 if not weak else 1.04 if arenas == MANY[0] else 1.06
    assert debiased.typical_width < widest * people.typical_width


@pytest.mark.parametrize(("arenas", "slack"), SIZES)
def test_known_label_noise_does_not_bend_the_ratings(arenas: int, slack: float) -> None:
    world = WORLDS["10%, 15% of them wrong"]
    ignored = in_world(world, "debiased", arenas=arenas)
    known = in_world(world, "debiased", arenas=arenas, label_noise=0.15)
    assert ignored.coverage < 0.85
    assert known.coverage > 0.95 - slack


@pytest.mark.parametrize(("arenas", "slack"), SIZES)
def test_failures_that_hit_the_losses_of_a_model_do_not_bend_debiased(
    arenas: int, slack: float
) -> None:
    """Three quarters of the battles that the weakest model loses have no judgment."""
    found = {}
    for view in ("soft", "debiased"):
        failing = []
        for seed in range(arenas):
            arena, battles = labeled_arena(WORLDS["10% of the battles"], seed)
            lost = ((arena.first == 0) & (arena.truth == 0)) | (
                (arena.second == 0) & (arena.truth == 1)
            )
            failed = lost & (np.random.default_rng([seed, 3]).random(battles.n) < 0.75)
            p_bar = np.where(failed, np.nan, battles.p_bar)
            failing.append((arena, replace(battles, judged=~failed, p_bar=p_bar)))
        found[view] = runs(failing, view)
    assert found["soft"].error[:, 0].mean() > 60, "points"
    assert abs(found["debiased"].error[:, 0].mean()) < 25
    assert found["debiased"].coverage > 0.95 - slack
