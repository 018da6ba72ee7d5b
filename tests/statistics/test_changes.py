"""Changes of two boards over the same questions: narrower intervals that hold together."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import expit

from app.ratings.board import Leaderboard
from app.ratings.changes import changes_of
from app.ratings.leaderboard import leaderboard_from
from app.ratings.results import Changes, RatingSettings
from app.ratings.rows import read_battles
from tests.unit.ratings.arena import Arena, simulated, write

SETTINGS = RatingSettings(rounds=250)
BATTLES, LABELED, SIGNAL = 750, 0.3, 1.95
# The model that improves, and how many of the answers are the same in both weeks.
BETTER, AGAIN = 2, 0.8


class Weeks(NamedTuple):
    """Shape (arenas,) each.

    Args:
        held: Whether the intervals of all models contain their true changes.
        held_unpaired: The same with the rounds of the first week in another order.
        named: Whether a model that did not improve is said to have improved.
        found: Whether the one that did improve is.
        width, width_unpaired: Mean width of the intervals.
    """

    held: "np.ndarray[tuple[int], np.dtype[np.float64]]"
    held_unpaired: "np.ndarray[tuple[int], np.dtype[np.float64]]"
    named: "np.ndarray[tuple[int], np.dtype[np.float64]]"
    found: "np.ndarray[tuple[int], np.dtype[np.float64]]"
    width: "np.ndarray[tuple[int], np.dtype[np.float64]]"
    width_unpaired: "np.ndarray[tuple[int], np.dtype[np.float64]]"


def two_weeks(seed: int, gain: float) -> tuple[Arena, Arena]:
    """The same questions and pairs of models twice; most answers are the same."""
    rng = np.random.default_rng([seed, 11])
    first = simulated(battles=BATTLES, seed=seed)
    same = rng.random(BATTLES) < AGAIN
    luck, noise = rng.random(BATTLES), rng.normal(size=BATTLES)
    weeks = []
    for week in range(2):
        strength = first.strength + gain * week * (np.arange(len(first.strength)) == BETTER)
        gap = strength[first.first] - strength[first.second]
        truth = (np.where(same, luck, rng.random(BATTLES)) < expit(gap)).astype(float)
        seen = np.where(same, noise, rng.normal(size=BATTLES))
        shown = (2.0 * truth - 1.0) * SIGNAL**2 / 2.0 + SIGNAL * seen
        weeks.append(replace(first, strength=strength, truth=truth, p_bar=expit(gap + shown)))
    return weeks[0], weeks[1]


def board(arena: Arena, seed: int, folder: Path) -> Leaderboard:
    rows = arena.rows(labelled=LABELED, seed=seed, per_question=3)
    for row in rows:
        # Without verdicts there are two views less.
        del row["winner"]
    battles = read_battles([write(folder / "rows.jsonl", rows)])
    return leaderboard_from(battles, SETTINGS, made="2026-11-23")


def compared(before: Leaderboard, now: Leaderboard, *, paired: bool) -> Changes:
    """The changes; unpaired if the questions of the first board are drawn by themselves."""
    if not paired:
        shuffled = {
            view: np.random.default_rng(0).permutation(theta)
            for view, theta in before.rounds.theta.items()
        }
        before = before._replace(rounds=replace(before.rounds, theta=shuffled))
    return changes_of(now, before, Path("earlier"))


def holds(changes: Changes, truth: dict[str, float]) -> bool:
    return all(
        each.low is not None
        and each.high is not None
        and each.low <= truth[each.model] <= each.high
        for each in changes.models
    )


def width(changes: Changes) -> float:
    return float(np.mean([(each.high or 0.0) - (each.low or 0.0) for each in changes.models]))


def simulated_weeks(arenas: int, gain: float, folder: Path) -> Weeks:
    found = []
    for seed in range(arenas):
        weeks = two_weeks(seed, gain)
        before, now = (board(week, seed, folder) for week in weeks)
        paired, unpaired = (compared(before, now, paired=each) for each in (True, False))
        assert paired.view == "debiased"
        gains = weeks[1].strength - weeks[0].strength
        shares = {
            each.model: each.center_share for each in now.results.board.views["debiased"].ratings
        }
        models = now.results.board.models
        zero = sum(g * (shares[m] or 0.0) for g, m in zip(gains, models, strict=True))
        truth = {m: SETTINGS.points * float(g - zero) for g, m in zip(gains, models, strict=True)}
        better = {each.model for each in paired.models if each.moved and (each.change or 0.0) > 0}
        best = models[BETTER]
        found.append(
            (
                holds(paired, truth),
                holds(unpaired, truth),
                bool(better - {best}) or (gain == 0 and best in better),
                best in better,
                width(paired),
                width(unpaired),
            )
        )
    return Weeks(*(np.array(each, dtype=np.float64) for each in zip(*found, strict=True)))


# With 10 pairs of weeks 3 misses have the chance 0.011 at a level of 5%; the standard error of 250
# is 0.014.
@pytest.mark.parametrize(
    ("arenas", "slack", "gain"),
    [
        (10, 0.16, 0.8),
        pytest.param(250, 0.03, 0.0, marks=pytest.mark.long),
        pytest.param(250, 0.03, 0.8, marks=pytest.mark.long),
    ],
)
def test_the_intervals_of_all_changes_hold_together_and_pairs_are_narrower(
    arenas: int, slack: float, gain: float, tmp_path: Path
) -> None:
    weeks = simulated_weeks(arenas, gain, tmp_path)
    print(
        f"gain {gain}: {weeks.held.mean():.3f} hold, unpaired {weeks.held_unpaired.mean():.3f}; "
        f"widths {weeks.width.mean():.1f} and {weeks.width_unpaired.mean():.1f}; found "
        f"{weeks.found.mean():.3f}, others {weeks.named.mean():.3f} of {arenas}"
    )
    assert weeks.held.mean() >= 0.95 - slack
    assert weeks.held_unpaired.mean() >= 0.95 - slack
    assert weeks.named.mean() <= 0.05 + slack
    assert weeks.width.mean() < 0.8 * weeks.width_unpaired.mean()
    assert gain == 0.0 or weeks.found.mean() > 0.5
