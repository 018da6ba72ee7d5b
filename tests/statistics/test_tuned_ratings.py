"""Coverage and width of the corrected ratings, by how people label and how good the judge is."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from app.ratings.battles import Battles
from app.ratings.outcomes import Outcomes, debiased, views_of
from tests.statistics.worlds.arenas import WORLDS, World, labelled_arena
from tests.statistics.worlds.rated import Runs, runs, tuned

VIEWS: dict[str, Callable[[Battles], Outcomes]] = {
    "people": lambda battles: views_of(battles)["people"],
    "full": lambda battles: debiased(battles, np.ones(battles.n)),
    "tuned": tuned,
}


def in_worlds(world: World, view: str, *, arenas: int, label_noise: float = 0.0) -> Runs:
    """Rates the arenas of a world with 95% intervals."""
    labelled = (labelled_arena(world, seed) for seed in range(arenas))
    noted = ((arena, replace(battles, label_noise=label_noise)) for arena, battles in labelled)
    return runs(noted, VIEWS[view])


# Arenas, and how far chance alone takes the coverage of so many from 0.95.
FEW, MANY = (10, 0.09), (200, 0.025)
SIZES = [FEW, pytest.param(*MANY, marks=pytest.mark.long)]
HONEST = [name for name, world in WORLDS.items() if not world.noise]
FAST = ("whole questions", "60 labels, a weak judge")
CASES = [pytest.param(name, *FEW) for name in FAST]
CASES += [pytest.param(name, *MANY, marks=pytest.mark.long) for name in HONEST]


@pytest.mark.parametrize(("name", "arenas", "slack"), CASES)
def test_the_weight_never_costs_coverage_or_width(name: str, arenas: int, slack: float) -> None:
    found = {view: in_worlds(WORLDS[name], view, arenas=arenas) for view in VIEWS}
    assert found["tuned"].coverage > 0.95 - slack
    narrowest = min(found["people"].typical_width, found["full"].typical_width)
    assert found["tuned"].typical_width < 1.03 * narrowest


@pytest.mark.parametrize(("arenas", "slack"), SIZES)
def test_a_weak_judge_does_not_widen_what_people_say(arenas: int, slack: float) -> None:
    world = WORLDS["10%, a weak judge"]
    people, full, tuned = (in_worlds(world, view, arenas=arenas) for view in VIEWS)
    assert full.typical_width > 1.02 * people.typical_width
    assert tuned.typical_width < people.typical_width
    assert tuned.coverage > 0.95 - slack


@pytest.mark.parametrize(("arenas", "slack"), SIZES)
def test_known_label_noise_does_not_bend_the_ratings(arenas: int, slack: float) -> None:
    world = WORLDS["10%, 15% of them wrong"]
    ignored = in_worlds(world, "tuned", arenas=arenas)
    known = in_worlds(world, "tuned", arenas=arenas, label_noise=0.15)
    assert ignored.coverage < 0.85
    assert known.coverage > 0.95 - slack
