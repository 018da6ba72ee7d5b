"""Models with few battles: the others' ratings do not feel them, and their intervals hold."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import expit

from app.ratings.board import board_of
from app.ratings.bradley_terry import Floats
from app.ratings.results import Rating, RatingSettings
from app.ratings.rows import read_battles
from tests.unit.ratings.arena import Arena, simulated, write

SETTINGS = RatingSettings(rounds=200)
# Battles of the models that came last, and their strengths in logits.
ROOKIES = {"rookie-2": (2, 1.5), "rookie-8": (8, -0.5)}
SIGNAL = 1.95


class Boards(NamedTuple):
    """Shape (arenas, models) each.

    Args:
        inside: Whether an interval contains the truth, the established models first.
        width: Width of the intervals of the established models.
        alone: The same on a board without rookies.
        moved: Change of their scores by the rookies, in points.
    """

    inside: Floats
    width: Floats
    alone: Floats
    moved: Floats


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


def ratings_of(arena: Arena, folder: Path) -> list[Rating]:
    """The view of people, who label every battle, in the order of the models' names."""
    path = write(folder / "rows.jsonl", arena.rows(labelled=1.0))
    view = board_of(read_battles([path])[0], SETTINGS).views["people"]
    return sorted(view.ratings, key=lambda rating: rating.model)


def width_of(ratings: list[Rating]) -> list[float]:
    return [(each.high or np.inf) - (each.low or -np.inf) for each in ratings]


def boards(arenas: int, folder: Path) -> Boards:
    found = []
    for seed in range(arenas):
        arena = simulated(battles=600, seed=seed)
        joined, m = with_rookies(arena, seed), len(arena.strength)
        alone, rated = ratings_of(arena, folder), ratings_of(joined, folder)
        assert [each.provisional for each in rated] == [False] * m + [True] * len(ROOKIES)
        assert {each.rank for each in rated[m:]} == {None}
        shares = np.array([each.centre_share for each in rated])
        truth = 1000.0 + SETTINGS.points * (joined.strength - shares @ joined.strength)
        low = np.array([-np.inf if each.low is None else each.low for each in rated])
        high = np.array([np.inf if each.high is None else each.high for each in rated])
        pairs = zip(alone, rated[:m], strict=True)
        moved = np.array([(b.score or 0) - (a.score or 0) for a, b in pairs])
        inside = ((low < truth) & (truth < high)).astype(float)
        found.append((inside, np.array(width_of(rated[:m])), np.array(width_of(alone)), moved))
    return Boards(*(np.array(each) for each in zip(*found, strict=True)))


# The standard error of the coverage of 6 models is 0.028 with 10 arenas, and 0.006 with 200.
@pytest.mark.parametrize(
    ("arenas", "slack"), [(10, 0.09), pytest.param(200, 0.02, marks=pytest.mark.long)]
)
def test_rookies_move_no_established_model_and_their_intervals_hold(
    arenas: int, slack: float, tmp_path: Path
) -> None:
    found = boards(arenas, tmp_path)
    m = found.width.shape[1]
    print(
        f"coverage {found.inside[:, :m].mean():.3f}, of rookies "
        f"{found.inside[:, m:].mean(axis=0)}, width {found.width.mean():.1f} and "
        f"{found.alone.mean():.1f} without, moved by {np.abs(found.moved).mean():.1f} on average"
    )
    assert found.inside[:, :m].mean() > 0.95 - slack
    assert found.inside[:, m:].mean() > 0.95 - 3 * slack
    assert found.width.mean() < 1.02 * found.alone.mean()
    assert np.abs(found.moved).mean() < 4.0, "points; a standard error has 24"
