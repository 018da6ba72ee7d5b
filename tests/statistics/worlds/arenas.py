"""Arenas that people label in part: which battles, by whom, and how dependent they are."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from app.ratings.battles import Battles
from tests.unit.ratings.arena import Arena, Floats, simulated

Ints = NDArray[np.int64]
BATTLES = 6000
FAVORED = 2
_FAVOR = 1.35
_PER_QUESTION = 5
_SIGNAL = 1.95


@dataclass(frozen=True, kw_only=True)
class World:
    """A kind of arena.

    Args:
        labelled: Probability of a label for each battle, from the arena's p_bar.
        of_question: Whether battles are of questions, five of the same two models each, whose
            outcomes and judgments depend on each other.
        whole_questions: Whether people label all battles of a question, or none.
        noise: Share of wrong labels.
    """

    labelled: Callable[[Floats], Floats]
    of_question: bool = False
    whole_questions: bool = False
    noise: float = 0.0
    signal: float = _SIGNAL


def _share(value: float) -> Callable[[Floats], Floats]:
    return lambda p_bar: np.full(len(p_bar), value)


def _unsure_first(p_bar: Floats) -> Floats:
    """From 2% of the battles that the judge is sure of to 30% of those that it is not."""
    return 0.02 + 0.28 * (1.0 - np.abs(2.0 * p_bar - 1.0))


WORLDS = {
    "10% of the battles": World(labelled=_share(0.1)),
    "unsure battles first": World(labelled=_unsure_first),
    "five battles a question": World(labelled=_share(0.1), of_question=True),
    "whole questions": World(labelled=_share(0.1), of_question=True, whole_questions=True),
    "60 labels": World(labelled=_share(0.01)),
    "60 labels, a weak judge": World(labelled=_share(0.01), signal=0.4),
    "10%, a weak judge": World(labelled=_share(0.1), signal=0.4),
    "10%, 15% of them wrong": World(labelled=_share(0.1), noise=0.15),
}


def labeled_arena(world: World, seed: int) -> tuple[Arena, Battles]:
    """An arena of six models, and its battles as the leaderboard reads them."""
    rng = np.random.default_rng([seed, 1])
    if world.of_question:
        arena, unit = _with_questions(rng), np.arange(BATTLES) // _PER_QUESTION
    else:
        arena = simulated(favor=_FAVOR, favored=FAVORED, seed=seed, signal=world.signal)
        unit = np.arange(BATTLES)
    probability = world.labelled(arena.p_bar)
    chance = rng.random(BATTLES)
    drawn = (chance[unit] if world.whole_questions else chance) < probability
    wrong = rng.random(BATTLES) < world.noise
    human = np.where(wrong, 1.0 - arena.truth, arena.truth)
    return arena, _battles(arena, unit, np.where(drawn, human, np.nan), probability)


def _with_questions(rng: np.random.Generator) -> Arena:
    """Battles of which 40% copy the outcome of their question; half the judge's noise is shared."""
    models, questions = 6, BATTLES // _PER_QUESTION
    strength = np.linspace(-1.0, 1.0, models)
    first = np.repeat(rng.integers(models, size=questions), _PER_QUESTION)
    second = (first + np.repeat(rng.integers(1, models, size=questions), _PER_QUESTION)) % models
    gap = strength[first] - strength[second]
    shared = np.repeat(rng.random(questions), _PER_QUESTION)
    chance = np.where(rng.random(BATTLES) < 0.4, shared, rng.random(BATTLES))
    truth = (chance < expit(gap)).astype(float)
    noise = np.repeat(rng.normal(size=questions), _PER_QUESTION) + rng.normal(size=BATTLES)
    shown = (2.0 * truth - 1.0) * _SIGNAL**2 / 2.0 + _SIGNAL * noise / np.sqrt(2.0)
    kin = (first == FAVORED).astype(float) - (second == FAVORED).astype(float)
    p_bar = expit(gap + shown + _FAVOR * kin)
    return Arena(strength, first, second, truth, p_bar, 0.5)


def _battles(arena: Arena, unit: Ints, human: Floats, probability: Floats) -> Battles:
    n = len(arena.truth)
    return Battles(
        judge="simulated",
        signature=None,
        alpha=0.1,
        guarantee="marginal",
        models=tuple(f"model-{place}" for place in range(len(arena.strength))),
        first=arena.first,
        second=arena.second,
        unit=unit,
        units=int(unit.max()) + 1,
        key=unit.astype(np.uint64),
        judged=np.ones(n, dtype=bool),
        verdict=np.where(arena.accepted, np.round(arena.p_bar), np.nan),
        p_bar=arena.p_bar,
        human=human,
        human_probability=probability,
    )
