"""JSON about feasible alphas, with the price of a choice after a look at the labels."""

from collections.abc import Iterable

from app.core.assessment import AFTER_LOOKING, AlphaInterval
from app.core.calibration import STANDARD_DELTA, ThresholdRow
from app.core.comparison import Guarantee
from app.core.diagnostics import Feasibility
from app.wire.answers import Out


class InfeasibleOut(Out):
    """An alpha at which nothing is accepted, and what would make it feasible.

    `smallest_feasible_alpha` is the smallest alpha that the present examples make feasible; under
    "pac", larger alphas may be infeasible again (see `feasible_alphas`).
    `more_examples` is the number of additional examples that make this alpha feasible if the error
    rates stay the same; null if more than 100,000 are needed. Neither keeps the promise of `pac`
    if you act on it, because that is a choice made after a look at the labels; `after_looking` has
    the price in words.
    """

    alpha: float
    guarantee: Guarantee
    delta: float | None
    smallest_feasible_alpha: float | None
    more_examples: int | None
    after_looking: str

    @classmethod
    def of(cls, row: ThresholdRow, advice: Feasibility) -> "InfeasibleOut":
        """Converts an infeasible row and the advice about it."""
        return cls(
            alpha=row.alpha,
            guarantee=row.guarantee,
            delta=row.delta,
            smallest_feasible_alpha=advice.smallest_alpha,
            more_examples=advice.more_examples,
            after_looking=AFTER_LOOKING[row.guarantee],
        )


class FeasibleAlphasOut(Out):
    """The alphas at which the present examples accept something, in steps of 0.001 below 1.

    `intervals` has the first and the last alpha of each row of consecutive feasible alphas. Each
    alpha keeps its own promise. One that is chosen here does not: of the alphas from 0.02 to 0.30,
    some one was exceeded in up to 29% of simulated calibrations with delta 0.10.
    """

    guarantee: Guarantee
    delta: float | None
    intervals: list[tuple[float, float]]

    @classmethod
    def of(cls, guarantee: Guarantee, intervals: Iterable[AlphaInterval]) -> "FeasibleAlphasOut":
        """Converts the feasible alphas of a guarantee, "pac" at the standard delta."""
        return cls(
            guarantee=guarantee,
            delta=STANDARD_DELTA if guarantee == "pac" else None,
            intervals=[(each.low, each.high) for each in intervals],
        )
