"""The battles to label next are drawn with known probabilities, where a label tells most."""

from dataclasses import replace

import numpy as np
import pytest

from app.core.errors import InvalidRequestError
from app.ratings.battles import Battles
from app.ratings.label_plan import label_plan
from tests.statistics.worlds.arenas import WORLDS, labelled_arena


@pytest.fixture(scope="module")
def battles() -> Battles:
    """2,000 battles of six models; a tenth has a label."""
    whole = labelled_arena(WORLDS["10% of the battles"], 0)[1]
    return whole.where(np.arange(whole.n) < 2000)


@pytest.fixture(scope="module")
def bare(battles: Battles) -> Battles:
    nothing = np.full(battles.n, np.nan)
    return replace(battles, human=nothing, human_probability=nothing)


@pytest.mark.parametrize("labelled", [True, False])
def test_as_many_are_drawn_as_were_asked_for(
    labelled: bool, battles: Battles, bare: Battles
) -> None:
    found = battles if labelled else bare
    drawn = [int(label_plan(found, 200, seed=seed).drawn.sum()) for seed in range(3)]
    # The number has a standard deviation of at most sqrt(200), their mean of 8.
    assert np.mean(drawn) == pytest.approx(200, abs=32)
    assert len(set(drawn)) > 1


def test_a_probability_is_that_of_either_draw(battles: Battles) -> None:
    plan = label_plan(battles, 200, seed=0)
    earlier = battles.human_probability
    assert (plan.probability >= earlier).all()
    assert (plan.probability <= 1.0).all()
    expected = (200 / (~battles.labelled).sum()) * (1.0 - earlier).sum()
    assert (plan.probability - earlier).sum() == pytest.approx(expected, rel=1e-6)
    assert not (plan.drawn & battles.labelled).any()


def test_without_labels_every_battle_can_be_drawn(bare: Battles) -> None:
    plan = label_plan(bare, 200, seed=0)
    assert plan.view == "soft"
    assert plan.probability.min() >= 0.25 * 200 / bare.n
    assert plan.probability.sum() == pytest.approx(200, rel=1e-6)


def test_battles_of_which_the_judge_is_unsure_are_drawn_more_often(bare: Battles) -> None:
    probability = label_plan(bare, 200, seed=0).probability
    unsure = np.abs(bare.p_bar - 0.5) < 0.1
    sure = np.abs(bare.p_bar - 0.5) > 0.45
    assert probability[unsure].mean() > 2.0 * probability[sure].mean()


def test_errors_of_a_sure_judge_bring_labels_to_what_it_is_sure_of(battles: Battles) -> None:
    sure = np.abs(battles.p_bar - 0.5) > 0.45
    wrong = np.where(battles.labelled & sure, 1.0 - np.round(battles.p_bar), battles.human)
    misled = replace(battles, human=wrong)
    now, then = (label_plan(each, 200, seed=0).probability for each in (battles, misled))
    assert then[sure].mean() > 1.1 * now[sure].mean()


def test_no_label_has_a_part_in_its_own_probability(battles: Battles) -> None:
    plan = label_plan(battles, 200, seed=0)
    place = int(np.flatnonzero(battles.labelled)[3])
    turned = battles.human.copy()
    turned[place] = 1.0 - turned[place]
    other = label_plan(replace(battles, human=turned), 200, seed=0)
    assert other.probability[place] == plan.probability[place]
    assert (other.probability != plan.probability).any()


def test_labels_for_all_battles_are_no_draw(battles: Battles) -> None:
    rest = ~battles.labelled
    plan = label_plan(battles, int(rest.sum()), seed=0)
    assert (plan.drawn == rest).all()
    assert (plan.probability == 1.0).all()


def test_an_equal_seed_draws_anew_after_labels_have_come(battles: Battles) -> None:
    plan = label_plan(battles, 200, seed=5)
    assert (label_plan(battles, 200, seed=5).drawn == plan.drawn).all()
    human = np.where(plan.drawn, 1.0, battles.human)
    after = label_plan(
        replace(battles, human=human, human_probability=plan.probability), 200, seed=5
    )
    # By the same random numbers a battle that was left out would be left out again.
    chance = plan.drawn.mean()
    assert after.drawn.mean() == pytest.approx(chance, rel=0.3)


def test_a_battle_without_a_judgment_is_not_drawn(battles: Battles) -> None:
    failed = np.arange(battles.n) % 3 == 0
    nothing = np.where(failed, np.nan, battles.p_bar)
    plan = label_plan(replace(battles, judged=~failed, p_bar=nothing), 200, seed=0)
    assert not plan.drawn[failed].any()
    assert np.isnan(plan.probability[failed]).all()


def test_the_expected_width_lies_below_the_present_and_the_even_one(battles: Battles) -> None:
    plan = label_plan(battles, 200, seed=0)
    assert plan.view == "debiased"
    assert plan.now is not None
    assert plan.then < plan.evenly < plan.now


def test_a_plan_that_cannot_be_right_is_refused(battles: Battles, bare: Battles) -> None:
    gone = np.where(battles.labelled, battles.human_probability, np.nan)
    surely = np.where(battles.labelled, battles.human_probability, 1.0)
    one = replace(bare, unit=np.zeros(bare.n, dtype=np.int64), units=1)
    for wrong, count, message in (
        (bare, 2001, "2001 labels are wanted, and 2000"),
        (replace(battles, human_probability=gone), 10, "human_probability is missing or 1"),
        (replace(battles, human_probability=surely), 10, "human_probability is missing or 1"),
        (replace(bare, p_bar=np.full(bare.n, np.nan)), 10, "no p_bar"),
        (one, 10, "one question or group"),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            label_plan(wrong, count, seed=0)
