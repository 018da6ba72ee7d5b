"""The test for favoured models: its joint level, with shrunken gaps too, and its power."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from app.demo.arena import FAVOURED, MODELS, STRENGTHS
from app.ratings.agreement import agreement_of
from app.ratings.battles import Battles
from tests.statistics.worlds.arenas import World, labelled_arena

BATTLES, LABELLED = 2000, 0.1


def arena(seed: int, *, favour: float, shrink: float) -> Battles:
    """Battles of the demo's models; the judge's log-odds are multiplied by `shrink`."""
    rng = np.random.default_rng([seed, 3])
    strength = np.array(STRENGTHS)
    models = len(strength)
    first = rng.integers(models, size=BATTLES)
    second = (first + rng.integers(1, models, size=BATTLES)) % models
    truth = (rng.random(BATTLES) < expit(strength[first] - strength[second])).astype(float)
    shown = (2.0 * truth - 1.0) * 1.95**2 / 2.0 + rng.normal(0.0, 1.95, BATTLES)
    favoured = MODELS.index(FAVOURED)
    kin = (first == favoured).astype(float) - (second == favoured).astype(float)
    p_bar = expit(shrink * (strength[first] - strength[second] + shown + favour * kin))
    _, battles = labelled_arena(World(labelled=lambda p: np.full(len(p), 0.1)), 0)
    drawn = rng.random(BATTLES) < LABELLED
    few = battles.where(np.arange(battles.n) < BATTLES)
    return replace(
        few,
        models=MODELS,
        first=first,
        second=second,
        p_bar=p_bar,
        verdict=np.round(p_bar),
        human=np.where(drawn, truth, np.nan),
        human_probability=np.full(BATTLES, LABELLED),
    )


def named(battles: Battles) -> tuple[list[str], list[str]]:
    """The models that the test calls favoured, and disfavoured."""
    agreement = agreement_of(battles, level=0.95)
    assert agreement is not None
    assert len(agreement.favours) == len(MODELS)
    favours = agreement.favours
    return [f.model for f in favours if f.low > 0], [f.model for f in favours if f.high < 0]


# With 40 boards, 7 false ones have the chance 0.003 at a level of 5%.
SIZES = [(40, 0.16), pytest.param(600, 0.075, marks=pytest.mark.long)]


@pytest.mark.parametrize("shrink", [1.0, 0.4])
@pytest.mark.parametrize(("boards", "most"), SIZES)
def test_a_judge_without_a_favour_is_accused_in_at_most_5_percent_of_the_boards(
    boards: int, most: float, shrink: float
) -> None:
    false = [any(named(arena(seed, favour=0.0, shrink=shrink))) for seed in range(boards)]
    print(f"shrink {shrink}: accused in {np.mean(false):.3f} of {boards} boards")
    assert np.mean(false) <= most


@pytest.mark.parametrize("shrink", [1.0, 0.4])
@pytest.mark.parametrize(
    ("boards", "least"), [(20, 0.7), pytest.param(300, 0.8, marks=pytest.mark.long)]
)
def test_a_favoured_model_is_found(boards: int, least: float, shrink: float) -> None:
    found = [named(arena(seed, favour=2.5, shrink=shrink))[0] for seed in range(boards)]
    share = np.mean([FAVOURED in models for models in found])
    others = np.mean([any(model != FAVOURED for model in models) for models in found])
    print(f"shrink {shrink}: found in {share:.3f} of {boards} boards, another one in {others:.3f}")
    assert share >= least
    assert others <= 0.2


def test_the_log_odds_are_shrunken() -> None:
    whole, shrunken = (arena(0, favour=0.0, shrink=shrink) for shrink in (1.0, 0.4))
    np.testing.assert_allclose(logit(shrunken.p_bar), 0.4 * logit(whole.p_bar))
