"""Planned looks: the sizes of a pool at which people may stop, fixed before the first label.

Adding labels until an alpha is feasible breaks the promise of `pac`. With sizes that are fixed
before, and delta divided by their number, the thresholds of all looks hold together with
probability 1 - delta. So people may stop at any of them, for any reason.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from app.core.errors import InvalidRequestError
from app.service.labelling.pairs import drawn


@dataclass(frozen=True, kw_only=True, slots=True)
class Looks:
    """The plan.

    Args:
        sizes: Number of pairs at each look, rising.
        until_coverage: Share of the pairs, in (0, 1). The first look that accepts so many is the
            last one.
    """

    sizes: tuple[int, ...]
    until_coverage: float

    def __post_init__(self) -> None:
        if not self.sizes or self.sizes[0] < 1 or any(a >= b for a, b in pairwise(self.sizes)):
            raise InvalidRequestError("looks are rising numbers of pairs, such as 250,500,1000")
        if not 0.0 < self.until_coverage < 1.0:
            raise InvalidRequestError("the coverage to stop at is between 0 and 1")

    @classmethod
    def parse(cls, sizes: str, until_coverage: float) -> "Looks":
        """Reads sizes such as "250,500,1000".

        Raises:
            InvalidRequestError: They are not rising numbers, or the coverage is not in (0, 1).
        """
        try:
            numbers = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            numbers = ()
        return cls(sizes=numbers, until_coverage=until_coverage)

    def order(self, keys: Collection[str], seed: int) -> Sequence[str]:
        """Keys of all pairs in a random order, the same in every run; a look has the first ones.

        Raises:
            InvalidRequestError: There are fewer pairs than the last look has.
        """
        if len(keys) < self.sizes[-1]:
            raise InvalidRequestError(
                f"the last look has {self.sizes[-1]} pairs, and there are only {len(keys)}"
            )
        # The sides are drawn with the seed itself.
        return drawn(keys, most=self.sizes[-1], seed=seed + 1)

    def remaining(self, pooled: int) -> range:
        """Numbers, from 0, of the looks that a pool with so many pairs has not passed."""
        first = sum(size < pooled for size in self.sizes)
        return range(min(first, len(self.sizes) - 1), len(self.sizes))

    def suffices(self, coverage: float) -> bool:
        """Whether this coverage ends the labelling."""
        return coverage >= self.until_coverage
