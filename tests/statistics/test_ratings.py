"""Bias, spread and coverage of the ratings of simulated arenas, by view."""

import numpy as np
import pytest

from app.ratings.results import POINTS, ViewName
from tests.statistics.worlds.arenas import FAVORED, WORLDS, labeled_arena
from tests.statistics.worlds.rated import Runs
from tests.statistics.worlds.rated import runs as runs_of
from tests.unit.ratings.arena import simulated

# The bias of the views of the judge alone shows in a few arenas.
ARENAS, FEW = 60, 20


@pytest.fixture(scope="module")
def runs() -> dict[ViewName, Runs]:
    arenas = [labeled_arena(WORLDS["10% of the battles"], seed) for seed in range(ARENAS)]
    return {
        "accepted": runs_of(arenas[:FEW], "accepted"),
        "soft": runs_of(arenas[:FEW], "soft", rounds=2),
        "abstain_as_tie": runs_of(arenas[:FEW], "abstain_as_tie", rounds=2),
        "debiased": runs_of(arenas, "debiased"),
        "people": runs_of(arenas, "people"),
    }


def misplaced(found: Runs) -> float:
    """Mean error of the favored model, in logits."""
    return float(found.error[:, FAVORED].mean() / POINTS)


def test_the_simulated_judge_keeps_its_alpha() -> None:
    arena = simulated(battles=60_000, favor=1.35)
    wrong = (arena.p_bar > 0.5) != (arena.truth > 0.5)
    assert arena.accepted.mean() == pytest.approx(0.52, abs=0.001)
    assert wrong[arena.accepted].mean() < 0.05


def test_a_favored_model_is_misplaced_however_small_the_accepted_error_is(
    runs: dict[ViewName, Runs],
) -> None:
    assert misplaced(runs["accepted"]) > 0.9
    assert misplaced(runs["soft"]) > 0.4
    assert misplaced(runs["abstain_as_tie"]) > 0.3


def test_labels_put_it_back(runs: dict[ViewName, Runs]) -> None:
    # The standard error of a mean of these runs is 0.015.
    assert abs(misplaced(runs["debiased"])) < 0.04
    assert np.abs(runs["debiased"].error.mean(axis=0)).max() / POINTS < 0.04


@pytest.mark.parametrize("view", ["debiased", "people"])
def test_intervals_contain_the_truth_as_often_as_they_say(
    runs: dict[ViewName, Runs], view: ViewName
) -> None:
    assert 0.92 < runs[view].coverage < 0.98


@pytest.mark.parametrize("view", ["debiased", "people"])
def test_the_rank_sets_of_all_models_hold_together(
    runs: dict[ViewName, Runs], view: ViewName
) -> None:
    assert runs[view].in_sets.mean() >= 0.93


def test_intervals_of_a_biased_view_do_not(runs: dict[ViewName, Runs]) -> None:
    assert runs["accepted"].coverage < 0.5
