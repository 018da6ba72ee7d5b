"""The judge's weight in the debiased ratings."""

from dataclasses import replace

import numpy as np
import pytest

from app.ratings.battles import Battles
from app.ratings.outcomes import debiased, views_of
from app.ratings.tuning import judge_weights
from tests.statistics.worlds.arenas import WORLDS, labelled_arena


@pytest.fixture(scope="module")
def battles() -> Battles:
    return labelled_arena(WORLDS["10% of the battles"], 0)[1]


def test_the_weight_is_high_for_a_judge_that_knows_and_low_for_one_that_guesses(
    battles: Battles,
) -> None:
    truth = labelled_arena(WORLDS["10% of the battles"], 0)[0].truth
    guesses = np.random.default_rng(1).random(battles.n)
    assert judge_weights(replace(battles, p_bar=truth)).mean() > 0.99
    assert judge_weights(replace(battles, p_bar=guesses)).mean() < 0.1


def test_a_weight_does_not_depend_on_the_labels_that_it_weighs(battles: Battles) -> None:
    weights = judge_weights(battles)
    assert len(set(weights)) > 1
    own = weights == weights[0]
    turned = replace(battles, human=np.where(own, 1.0 - battles.human, battles.human))
    assert judge_weights(turned)[0] == weights[0]
    assert (judge_weights(turned)[~own] != weights[~own]).any()


def test_battles_of_one_question_have_one_weight() -> None:
    _, battles = labelled_arena(WORLDS["five battles a question"], 0)
    weights = judge_weights(battles).reshape(-1, 5)
    assert (weights == weights[:, :1]).all()


def test_where_the_other_folds_have_no_label_people_count_alone(battles: Battles) -> None:
    one = np.where(np.arange(battles.n) == 7, 1.0, np.nan)
    few = replace(battles, human=one)
    assert judge_weights(few)[7] == 0.0


def test_labels_for_all_battles_leave_nothing_to_the_judge(battles: Battles) -> None:
    everyone = replace(battles, human=np.round(battles.p_bar), human_probability=np.ones(battles.n))
    outcomes = debiased(everyone, judge_weights(everyone))
    np.testing.assert_allclose(outcomes.outcome * outcomes.weight, everyone.human)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_a_weight_mixes_the_points_of_people_and_of_the_corrected_judge(
    weight: float, battles: Battles
) -> None:
    mixed = debiased(battles, np.full(battles.n, weight))
    people, corrected = views_of(battles)["people"], views_of(battles)["debiased"]
    kept = mixed.counted
    share = np.where(people.counted, people.weight, 0.0)
    points = np.where(people.counted, people.weight * people.outcome, 0.0)
    np.testing.assert_allclose(
        mixed.weight[kept], ((1 - weight) * share + weight * corrected.weight)[kept]
    )
    np.testing.assert_allclose(
        (mixed.weight * mixed.outcome)[kept],
        ((1 - weight) * points + weight * corrected.outcome)[kept],
    )


def test_noise_leaves_the_mean_of_the_labels_where_it_was() -> None:
    battles = labelled_arena(WORLDS["10% of the battles"], 0)[1]
    noisy = replace(battles, human=np.array([1.0, 0.0, 0.5, np.nan]), label_noise=0.2)
    # The first side is better, and 8 of 10 labels say so: 8/10 (4/3) + 2/10 (-1/3) = 1.
    np.testing.assert_allclose(noisy.people, [4 / 3, -1 / 3, 0.5, np.nan])
