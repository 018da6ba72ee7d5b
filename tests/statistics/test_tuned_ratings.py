"""Coverage and width of the corrected ratings, by how people label and how good the judge is."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from app.ratings.battles import Battles
from app.ratings.bootstrap import cells_of, replicates
from app.ratings.bradley_terry import Bools, Floats, centred, ratings, structure_of
from app.ratings.intervals import intervals_of
from app.ratings.outcomes import Outcomes, debiased, games_of, views_of
from app.ratings.results import RatingSettings
from app.ratings.tuning import judge_weights
from tests.statistics.worlds.arenas import WORLDS, World, labelled_arena

POINTS = RatingSettings().points
PRIOR_SD = RatingSettings().prior_sd / POINTS
VIEWS: dict[str, Callable[[Battles], Outcomes]] = {
    "people": lambda battles: views_of(battles)["people"],
    "full": lambda battles: debiased(battles, np.ones(battles.n)),
    "tuned": lambda battles: debiased(battles, judge_weights(battles)),
}


@dataclass(frozen=True, kw_only=True)
class Runs:
    """One view in all arenas of a world; arrays have shape (arenas, models).

    Args:
        error: Errors of the ratings, in points.
        width: Widths of the intervals, in points; infinite where they have no two ends.
        covered: Whether the truth is inside.
    """

    error: Floats
    width: Floats
    covered: Bools

    @property
    def coverage(self) -> float:
        """Share of the intervals that contain the truth."""
        return float(self.covered.mean())

    @property
    def typical_width(self) -> float:
        """Median width of an interval."""
        return float(np.median(self.width))

    @property
    def figures(self) -> str:
        """The figures for the pages, with standard errors over arenas."""
        root = np.sqrt(len(self.error))
        coverage = self.covered.mean(axis=1).std() / root
        width = np.median(self.width, axis=1)
        spread = np.sqrt((self.error**2).mean())
        return (
            f"coverage {self.coverage:.3f} ({coverage:.3f}), width {self.typical_width:.0f} "
            f"({width.std() / root:.1f}), root mean square error {spread:.0f}"
        )


def runs(world: World, view: str, *, arenas: int, label_noise: float = 0.0) -> Runs:
    """Rates the arenas of a world with 95% intervals."""
    errors, widths, inside = [], [], []
    for seed in range(arenas):
        arena, battles = labelled_arena(world, seed)
        battles = replace(battles, label_noise=label_noise)
        cells = cells_of(games_of(battles, VIEWS[view](battles)))
        structure = structure_of(cells.whole)
        theta = ratings(cells.whole, structure, prior_sd=PRIOR_SD)
        (drawn,) = replicates([cells], [theta], rounds=200, seed=seed, prior_sd=PRIOR_SD)
        rounds = centred(drawn.theta, structure)
        low, high = intervals_of(theta, rounds, np.zeros(len(theta)), structure, level=0.95)
        covered = (low < arena.strength) & (arena.strength < high)
        errors.append((theta - arena.strength) * POINTS)
        widths.append((high - low) * POINTS)
        inside.append(covered)
    return Runs(error=np.array(errors), width=np.array(widths), covered=np.array(inside))


# Arenas, and how far chance alone takes the coverage of so many from 0.95.
FEW, MANY = (10, 0.09), (200, 0.025)
SIZES = [FEW, pytest.param(*MANY, marks=pytest.mark.long)]
HONEST = [name for name, world in WORLDS.items() if not world.noise]
FAST = ("whole questions", "60 labels, a weak judge")
CASES = [pytest.param(name, *FEW) for name in FAST]
CASES += [pytest.param(name, *MANY, marks=pytest.mark.long) for name in HONEST]


@pytest.mark.parametrize(("name", "arenas", "slack"), CASES)
def test_the_weight_never_costs_coverage_or_width(name: str, arenas: int, slack: float) -> None:
    found = {view: runs(WORLDS[name], view, arenas=arenas) for view in VIEWS}
    assert found["tuned"].coverage > 0.95 - slack
    narrowest = min(found["people"].typical_width, found["full"].typical_width)
    assert found["tuned"].typical_width < 1.03 * narrowest


@pytest.mark.parametrize(("arenas", "slack"), SIZES)
def test_a_weak_judge_does_not_widen_what_people_say(arenas: int, slack: float) -> None:
    world = WORLDS["10%, a weak judge"]
    people, full, tuned = (runs(world, view, arenas=arenas) for view in VIEWS)
    assert full.typical_width > 1.02 * people.typical_width
    assert tuned.typical_width < people.typical_width
    assert tuned.coverage > 0.95 - slack


@pytest.mark.parametrize(("arenas", "slack"), SIZES)
def test_known_label_noise_does_not_bend_the_ratings(arenas: int, slack: float) -> None:
    world = WORLDS["10%, 15% of them wrong"]
    ignored = runs(world, "tuned", arenas=arenas)
    known = runs(world, "tuned", arenas=arenas, label_noise=0.15)
    assert ignored.coverage < 0.85
    assert known.coverage > 0.95 - slack
