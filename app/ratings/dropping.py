"""How few battles, dropped, change the first place."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from app.ratings.bootstrap import Cells, Games
from app.ratings.bradley_terry import Bools, Floats, Ints, Tally, covariance, solve, sums
from app.ratings.results import FirstPlace

# Challengers by their distance in standard deviations, and those that are verified.
_NEAREST = 10
_VERIFIED = 3
_NAMED = 20


class _Order(NamedTuple):
    """Battles in the order of their influence, and how many are expected to suffice."""

    expected: int
    rows: Ints


class _Removal(NamedTuple):
    """The battles that suffice, and the model that is then first."""

    rows: Ints
    first: int


def first_place(
    games: Games,
    cells: Cells,
    theta: Floats,
    ranked: Bools,
    *,
    models: tuple[str, ...],
    names: tuple[str, ...],
    prior_sd: float,
) -> FirstPlace | None:
    """Finds a small set of battles without which another model is first.

    For each challenger the battles are ordered by their influence on its distance to the first
    model: one Newton step, with the leverage of the battle. The shortest beginning of this order
    that changes the first place is found by solving again (Broderick, Giordano and Meager, 2020;
    Huang, Shen, Wei and Broderick, 2025, for Bradley-Terry).

    Args:
        games: The battles of a view.
        cells: The same, summed.
        theta: Shape (models,). Their ratings.
        ranked: Shape (models,). The models of the largest component that have a rank.
        models: Names.
        names: Shape (n,). Identifiers of the battles.
        prior_sd: In logits.

    Returns:
        None if fewer than two models have a rank.
    """
    inside = np.flatnonzero(ranked)
    if len(inside) < 2:
        return None
    first = int(inside[np.argmax(theta[inside])])
    orders = sorted(_orders(games, cells, theta, first, inside, prior_sd), key=lambda one: one[0])
    removals = [
        removal
        for order in orders[:_VERIFIED]
        if (removal := _shortest(games, cells, theta, inside, order, first, prior_sd)) is not None
    ]
    if not removals:
        return FirstPlace(
            model=models[first], challenger=None, dropped=None, share=None, rows=(), least=False
        )
    best = min(removals, key=lambda removal: len(removal.rows))
    return FirstPlace(
        model=models[first],
        challenger=models[best.first],
        dropped=len(best.rows),
        share=len(best.rows) / len(games.first),
        rows=tuple(names[row] for row in best.rows[:_NAMED]),
        least=len(best.rows) == 1,
    )


def _orders(
    games: Games, cells: Cells, theta: Floats, first: int, inside: Ints, prior_sd: float
) -> Iterator[_Order]:
    """Yields the order of the battles for each of the nearest challengers that can be reached."""
    spread = covariance(cells.whole, np.nan_to_num(theta), prior_sd=prior_sd)
    a, b = games.first, games.second
    expected = expit(theta[a] - theta[b])
    own = spread[a, a] + spread[b, b] - 2.0 * spread[a, b]
    leverage = games.weight * expected * (1.0 - expected) * own
    residual = games.weight * (games.outcome - expected) / np.maximum(1.0 - leverage, 0.01)
    gap = theta[first] - theta
    others = inside[inside != first]
    variance = spread[first, first] + np.diag(spread) - 2.0 * spread[first]
    nearest = np.argsort(gap[others] ** 2 / variance[others], kind="stable")[:_NEAREST]
    for challenger in others[nearest]:
        direction = spread[first] - spread[challenger]
        loss = (direction[a] - direction[b]) * residual
        rows = np.argsort(-loss, kind="stable")
        reached = np.cumsum(loss[rows]) > gap[challenger]
        if reached.any():
            yield _Order(int(np.argmax(reached)) + 1, rows)


def _shortest(
    games: Games,
    cells: Cells,
    theta: Floats,
    inside: Ints,
    order: _Order,
    first: int,
    prior_sd: float,
) -> _Removal | None:
    """The shortest beginning of an order that changes the first place, by bisection."""

    def leader(count: int) -> int:
        left = _without(games, cells, order.rows[:count])
        again = solve(left, prior_sd=prior_sd, start=np.nan_to_num(theta))
        return int(inside[np.argmax(again[inside])])

    fails, suffices = 0, min(2 * order.expected + 10, len(order.rows))
    if leader(suffices) == first:
        return None
    while suffices - fails > 1:
        middle = (fails + suffices) // 2
        if leader(middle) == first:
            fails = middle
        else:
            suffices = middle
    return _Removal(order.rows[:suffices], leader(suffices))


def _without(games: Games, cells: Cells, rows: Ints) -> Tally:
    """The tally of all battles but some."""
    whole, pair, k = cells.whole, cells.pair[rows], len(cells.whole.first)
    outcome = np.where(cells.ahead[rows], games.outcome[rows], 1.0 - games.outcome[rows])
    weight = whole.weight - sums(pair, games.weight[rows], k)
    points = whole.points - sums(pair, games.weight[rows] * outcome, k)
    return Tally(
        models=whole.models,
        first=whole.first,
        second=whole.second,
        weight=np.maximum(weight, 0.0),
        points=points,
    )
