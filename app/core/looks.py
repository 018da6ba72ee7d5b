"""Planned looks: the sizes of a pool at which people may stop, fixed before the first label.

Adding labels until an alpha is feasible breaks the promise of `pac`. With sizes that are fixed
before, and delta divided by their number, the thresholds of all looks hold together with
probability 1 - delta. So you can stop at any of them, for any reason.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from app.core.comparison import shared_delta

# The share of delta of one look of many is so small that no look accepts anything.
MOST_LOOKS = 16
# No look accepts anything below this delta.
_SMALLEST_DELTA = 1e-300


@dataclass(frozen=True, kw_only=True, slots=True)
class Looks:
    """The plan of one set.

    Args:
        sizes: Number of pairs at each look, rising.
        until_coverage: Share of the pairs, in (0, 1). The first look that accepts so many is the
            last one.
        alpha: The alpha that is labelled for, in (0, 1).
        delta: Probability that any look breaks its promise, in (0, 1).

    Raises:
        ValueError: The sizes do not rise, are too many, or a share is not in (0, 1).
    """

    sizes: tuple[int, ...]
    until_coverage: float
    alpha: float
    delta: float

    def __post_init__(self) -> None:
        if not self.sizes or self.sizes[0] < 1 or any(a >= b for a, b in pairwise(self.sizes)):
            raise ValueError("looks are rising numbers of pairs, such as 250, 500, 1000")
        if len(self.sizes) > MOST_LOOKS:
            raise ValueError(f"at most {MOST_LOOKS} looks share a delta")
        if not all(0.0 < share < 1.0 for share in (self.until_coverage, self.alpha, self.delta)):
            raise ValueError("coverage, alpha and delta are between 0 and 1")

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Looks":
        """Reads the fields of `dataclasses.asdict`, with a list of sizes.

        Raises:
            ValueError, TypeError: They are not a plan.
        """
        return cls(**{**fields, "sizes": tuple(fields["sizes"])})

    @property
    def last(self) -> int:
        """Number of pairs at the last look."""
        return self.sizes[-1]

    def share_of(self, delta: float) -> float:
        """The delta of each look, so that all of them together have this delta."""
        return shared_delta(max(delta, _SMALLEST_DELTA), len(self.sizes))

    def suffices(self, coverage: float) -> bool:
        """Whether this coverage ends the labelling."""
        return coverage >= self.until_coverage


@dataclass(frozen=True, kw_only=True, slots=True)
class TakenLook:
    """The result of one look.

    Args:
        size: Number of pairs at this look.
        coverage: Share of these pairs that its threshold accepts, in [0, 1].
        threshold: In nats; None if it accepts nothing.
    """

    size: int
    coverage: float
    threshold: float | None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.coverage) and math.isfinite(self.threshold or 0.0)):
            raise ValueError("the coverage and the threshold of a look are finite")
