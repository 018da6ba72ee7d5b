import numpy as np
import pytest
from scipy.special import expit

from app.ratings.bootstrap import Games, cells_of, draws, replicates
from app.ratings.bradley_terry import (
    Structure,
    center_shares,
    centered,
    solved,
    structure_of,
)


def games(
    rng: np.random.Generator, *, models: int = 8, battles: int = 2000, per_unit: int = 1
) -> Games:
    """Battles with wins, ties and weights; every model wins and loses."""
    theta = rng.normal(0.0, 1.0, models)
    first = rng.integers(models, size=battles)
    second = (first + rng.integers(1, models, size=battles)) % models
    outcome = (rng.random(battles) < expit(theta[first] - theta[second])).astype(float)
    outcome[rng.random(battles) < 0.1] = 0.5
    unit = np.arange(battles) // per_unit
    return Games(
        models=models,
        first=first,
        second=second,
        unit=unit,
        keys=np.arange(unit[-1] + 1, dtype=np.uint64),
        weight=rng.uniform(0.5, 2, battles),
        outcome=outcome,
    )


def of_pairs(*pairs: tuple[int, int, float], models: int) -> Games:
    first, second, outcome = (np.array(each) for each in zip(*pairs, strict=True))
    n = len(first)
    return Games(
        models=models,
        first=first,
        second=second,
        unit=np.arange(n),
        keys=np.arange(n, dtype=np.uint64),
        weight=np.ones(n),
        outcome=outcome.astype(float),
    )


def sides(structure: Structure) -> str:
    """One sign for each model: ^ without a bound above, v below, ? on both sides, else a point."""
    both = zip(structure.no_ceiling.tolist(), structure.no_floor.tolist(), strict=True)
    return "".join({(0, 0): ".", (1, 0): "^", (0, 1): "v", (1, 1): "?"}[each] for each in both)


def test_the_solution_of_real_outcomes_satisfies_the_score_equation() -> None:
    rng = np.random.default_rng(1)
    some = games(rng)
    outcome = some.outcome + rng.normal(0.0, 2.0, len(some.outcome))
    assert outcome.min() < 0
    assert outcome.max() > 1
    tally = cells_of(Games(**{**vars(some), "outcome": outcome})).whole
    theta = solved(tally, prior_sd=5.0).theta
    residual = some.weight * (outcome - expit(theta[some.first] - theta[some.second]))
    score = np.bincount(some.first, residual, 8) - np.bincount(some.second, residual, 8)
    np.testing.assert_allclose(score, theta / 25.0, atol=1e-6)


def test_many_problems_are_solved_as_one_by_one() -> None:
    some = games(np.random.default_rng(3), per_unit=4)
    cells = cells_of(some)
    start = solved(cells.whole, prior_sd=5.0).theta
    (found,) = replicates([cells], [start], rounds=7, seed=5, prior_sd=5.0)
    counts = np.concatenate(list(draws(some.keys, rounds=7, seed=5)))
    for row, drawn in zip(found.theta, counts, strict=True):
        kept = np.repeat(np.arange(len(some.first)), drawn[some.unit].astype(int))
        again = Games(
            models=some.models,
            first=some.first[kept],
            second=some.second[kept],
            unit=some.unit[kept],
            keys=some.keys,
            weight=some.weight[kept],
            outcome=some.outcome[kept],
        )
        np.testing.assert_allclose(
            solved(cells_of(again).whole, prior_sd=5.0).theta, row, atol=1e-7
        )


CIRCLE = [(0, 1, 1), (1, 2, 1), (2, 0, 1)]


@pytest.mark.parametrize(
    ("pairs", "unbounded"),
    [
        (CIRCLE, "..."),
        ([(0, 1, 1), (1, 2, 1), (2, 1, 1)], "^.."),
        # Two that exchange wins, and both beat the third.
        ([(0, 1, 1), (1, 0, 1), (0, 2, 1), (2, 1, 0)], "..v"),
        # The same, and the third beats a fourth.
        ([(0, 1, 1), (1, 0, 1), (0, 2, 1), (2, 3, 1)], "..vv"),
        # Both the group and the fourth beat the third: nothing compares the fourth with the group.
        ([(0, 1, 1), (1, 0, 1), (0, 2, 1), (3, 2, 1)], "..v?"),
        # A tie is a point for both, and the third model has no battle.
        ([(0, 1, 0.5)], "..."),
        ([(0, 1, 1)], "^v."),
        # Debiased outcomes can push a model's sum beyond its end.
        ([(0, 1, 2.7), (1, 0, 1), (1, 2, 0.5), (2, 0, 0.1)], "^v."),
        # One battle of a rookie unbinds the rookie and not the established models.
        ([*CIRCLE * 40, (0, 3, 1)], "...v"),
        ([*CIRCLE * 40, (0, 3, 0)], "...^"),
    ],
)
def test_a_rating_is_infinite_only_where_somebody_won_or_lost_everything(
    pairs: list[tuple[int, int, float]], unbounded: str
) -> None:
    found = structure_of(cells_of(of_pairs(*pairs, models=len(unbounded))).whole)
    assert sides(found) == unbounded


@pytest.mark.parametrize("seed", range(40))
def test_the_pull_tells_whether_finite_ratings_solve_the_equations(seed: int) -> None:
    """Few battles of five models: the structure has Ford's condition, which about half meet."""
    rng = np.random.default_rng(seed)
    tally = cells_of(games(rng, models=5, battles=int(rng.integers(6, 25)))).whole
    pull = solved(tally, prior_sd=5.76).pull
    largest = np.abs(pull[tally.first] - pull[tally.second]).max()
    assert (largest <= 1.0) == (not structure_of(tally).unbounded.any())


def test_ratings_are_less_the_mean_of_the_finite_ones() -> None:
    theta = np.array([10.0, 20.0, 99.0, 7.0])
    structure = Structure(np.arange(4) < 3, np.zeros(4, dtype=bool), np.arange(4) == 2)
    found = centered(theta, structure, center_shares(structure, np.ones(4)))
    np.testing.assert_array_equal(found, [-5.0, 5.0, 84.0, np.nan])
