"""Bootstrap over units of dependent battles: questions, or groups of questions.

How often a round draws a unit is a function of the unit's name, the round and the seed. So two
boards draw the questions that both have alike, and the difference of their ratings has the spread
of a paired comparison, although neither knows the other's battles.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import factorial

from app.ratings.bradley_terry import Floats, Ints, Solution, Tally, solved, sums

Keys = NDArray[np.uint64]

# Numbers in one block of counts: 32 MB.
_BLOCK = 4_000_000
# Distribution function of a Poisson variable with the mean 1, up to 12: beyond lie 6e-11.
_POISSON = np.cumsum(np.exp(-1.0) / factorial(np.arange(13)))


@dataclass(frozen=True, kw_only=True)
class Games:
    """Battles that a view counts; arrays have shape (n,).

    Args:
        first, second: Indexes of the models.
        unit: Index of the unit of the bootstrap.
        keys: Shape (units,). Key of each unit of the whole board, with those that the view does not
            count.
        weight: Above 0.
        outcome: Share of the points that the first model gets; any real number.
    """

    models: int
    first: Ints
    second: Ints
    unit: Ints
    keys: Keys
    weight: Floats
    outcome: Floats

    @property
    def units(self) -> int:
        """Number of units."""
        return len(self.keys)


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Games summed by unit and pair of models.

    Args:
        whole: The tally of all units.
        keys: Shape (units,). Key of each unit.
        weight, points: Sparse, shape (units, k), as in a tally.
    """

    whole: Tally
    keys: Keys
    weight: csr_array
    points: csr_array

    def resampled(self, counts: Floats) -> Tally:
        """The tallies of units that were drawn so often, of shape (rounds, units)."""
        whole = self.whole
        return Tally(
            models=whole.models,
            first=whole.first,
            second=whole.second,
            weight=_product(self.weight, counts),
            points=_product(self.points, counts),
        )


def _product(cells: csr_array, counts: Floats) -> Floats:
    sums: Floats = (cells.T @ counts.T).T
    return np.ascontiguousarray(sums)


def cells_of(games: Games) -> Cells:
    """Sums games by unit and pair; the order of a pair's models in a game does not matter."""
    ahead = games.first < games.second
    low = np.where(ahead, games.first, games.second)
    high = np.where(ahead, games.second, games.first)
    keys, pair = np.unique(low * games.models + high, return_inverse=True)
    points = games.weight * np.where(ahead, games.outcome, 1.0 - games.outcome)
    shape = (games.units, len(keys))
    whole = Tally(
        models=games.models,
        first=keys // games.models,
        second=keys % games.models,
        weight=sums(pair, games.weight, len(keys)),
        points=sums(pair, points, len(keys)),
    )
    place = (games.unit, pair)
    return Cells(
        whole=whole,
        keys=games.keys,
        weight=csr_array((games.weight, place), shape=shape),
        points=csr_array((points, place), shape=shape),
    )


def draws(keys: Keys, *, rounds: int, seed: int) -> Iterator[Floats]:
    """Yields how often each unit is drawn in each round: (rounds of the block, units).

    The numbers are independent and Poisson with the mean 1, as those of a bootstrap with
    replacement are in the limit of many units (Hanley and MacGibbon, 2006). A unit with the same
    key is drawn as often in the same round of the same seed, whatever the other units are.
    """
    of_round = np.random.default_rng(seed).integers(2**64, size=rounds, dtype=np.uint64)
    height = max(1, _BLOCK // max(len(keys), 1))
    for begin in range(0, rounds, height):
        mixed = _mixed(keys[None, :] ^ of_round[begin : begin + height, None])
        uniform = (mixed >> np.uint64(11)) * 2.0**-53
        yield np.searchsorted(_POISSON, uniform, side="right").astype(np.float64)


def _mixed(words: Keys) -> Keys:
    """Words of 64 bits, each mixed by the function of SplitMix64 (Steele, Lea and Flood, 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))


def replicates(
    cells: Sequence[Cells],
    starts: Sequence[Floats],
    *,
    rounds: int,
    seed: int,
    prior_sd: float,
) -> list[Solution]:
    """Ratings of resampled units, for several views of the same units, all by the same draws.

    Args:
        cells: The views.
        starts: Shape (models,) each. Ratings of all units, in logits.
        prior_sd: In logits.

    Returns:
        One for each view, of shape (rounds, models).
    """
    blocks_by_view: list[list[Solution]] = [[] for _ in cells]
    for counts in draws(cells[0].keys, rounds=rounds, seed=seed):
        for view_cells, start, blocks in zip(cells, starts, blocks_by_view, strict=True):
            tally = view_cells.resampled(counts)
            blocks.append(solved(tally, prior_sd=prior_sd, start=np.nan_to_num(start)))
    return [
        Solution(*(np.concatenate(each) for each in zip(*blocks, strict=True)))
        for blocks in blocks_by_view
    ]
