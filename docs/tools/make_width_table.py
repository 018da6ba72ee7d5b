"""Prints how many labels of people a board needs for which width, for docs/guides/leaderboards.md.

Usage: python -m docs.tools.make_width_table      (a few minutes)
"""

import numpy as np

from app.ratings.results import ViewName
from tests.statistics.worlds.arenas import BATTLES, World, labeled_arena
from tests.statistics.worlds.rated import runs

ARENAS = 40
# How much the judge sees: it prefers the right response in 85% and in 66% of the battles.
STRONG, WEAK = 1.95, 0.4
COLUMNS: list[tuple[ViewName, float]] = [
    ("people", STRONG),
    ("debiased", STRONG),
    ("debiased", WEAK),
]


def half_width(labels: int, view: ViewName, signal: float) -> str:
    """Median half width in points, and the share of intervals that contain the truth."""
    world = World(labelled=lambda p_bar: np.full(len(p_bar), labels / BATTLES), signal=signal)
    found = runs((labeled_arena(world, seed) for seed in range(ARENAS)), view)
    return f"{found.typical_width / 2:.0f} ({found.coverage:.0%})"


def main() -> None:
    """Prints a row for each number of labels."""
    print("| labels | people alone | with a strong judge | with a weak judge |")
    print("|---|---|---|---|")
    for labels in (150, 300, 600, 1200, 2400):
        cells = [half_width(labels, view, signal) for view, signal in COLUMNS]
        print(f"| {labels:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
