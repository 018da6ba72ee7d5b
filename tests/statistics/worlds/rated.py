"""Ratings of simulated arenas with their intervals, against the truth."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from app.ratings.battles import Battles
from app.ratings.bootstrap import cells_of, replicates
from app.ratings.bradley_terry import Bools, Floats, centered, ratings, structure_of
from app.ratings.intervals import intervals_of, rank_sets
from app.ratings.outcomes import games_of, views_of
from app.ratings.results import POINTS, PRIOR_SD, ViewName
from tests.unit.ratings.arena import Arena


@dataclass(frozen=True, kw_only=True)
class Runs:
    """One view in all arenas of a world; arrays have shape (arenas, models).

    Args:
        error, width: Of the ratings and intervals, in points; a width without two ends is infinite.
        covered: Whether the truth is inside.
        in_sets: Shape (arenas,). Whether the true ranks of all models are in their rank sets.
    """

    error: Floats
    width: Floats
    covered: Bools
    in_sets: Bools

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


def runs(
    arenas: Iterable[tuple[Arena, Battles]], view: ViewName = "debiased", *, rounds: int = 200
) -> Runs:
    """Rates arenas with 95% intervals."""
    errors, widths, inside, in_sets = [], [], [], []
    for seed, (arena, battles) in enumerate(arenas):
        cells = cells_of(games_of(battles, views_of(battles)[view]))
        structure = structure_of(cells.whole)
        theta = ratings(cells.whole, structure, prior_sd=PRIOR_SD)
        (drawn,) = replicates([cells], [theta], rounds=rounds, seed=seed, prior_sd=PRIOR_SD)
        thetas = centered(drawn.theta, structure)
        low, high = intervals_of(theta, thetas, np.zeros(len(theta)), structure)
        covered = (low < arena.strength) & (arena.strength < high)
        models = len(theta)
        best, worst = rank_sets(theta, thetas, np.zeros((models, models)), structure)
        # The models of an arena are in ascending order of strength.
        true_rank = np.arange(models, 0, -1)
        errors.append((theta - arena.strength) * POINTS)
        widths.append((high - low) * POINTS)
        inside.append(covered)
        in_sets.append(((best <= true_rank) & (true_rank <= worst)).all())
    return Runs(
        error=np.array(errors),
        width=np.array(widths),
        covered=np.array(inside),
        in_sets=np.array(in_sets),
    )
