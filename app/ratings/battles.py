"""The battles of one judge, as arrays."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from app.ratings.bootstrap import Keys
from app.ratings.bradley_terry import Bools, Floats, Ints

# Name of the judge where people decided all battles.
PEOPLE = "people"
# Keys of units without a name begin here.
UNNAMED = 2**63


@dataclass(frozen=True)
class Battles:
    """The battles of one judge; arrays have shape (n,).

    Args:
        alpha, guarantee: None if the rows have none or several.
        models: In alphabetical order.
        first, second: Indexes of model_a and model_b.
        unit: Unit of the bootstrap, below `units`.
        key: Key of that unit: a digest of its name, below UNNAMED, which is the same in the files
            of every week; or UNNAMED and a number, if the rows do not name it.
        judged: Whether there is a judgment.
        verdict: 1 for model_a, 0 for model_b, 0.5 for a tie; NaN for none.
        p_bar: NaN where there is none.
        human: Outcome by a person, like `verdict`; also of battles without a judgment.
        human_probability: Probability with which the row was drawn for labeling.
        label_noise: Share of wrong labels among those of people, in [0, 0.5); ties are right.
        repeated: Number of rows that were left out as copies.
        placeless: Number of rows that failed because they hold no battle, left out likewise.
    """

    judge: str
    signature: str | None
    alpha: float | None
    guarantee: str | None
    models: tuple[str, ...]
    first: Ints
    second: Ints
    unit: Ints
    units: int
    key: Keys
    judged: Bools
    verdict: Floats
    p_bar: Floats
    human: Floats
    human_probability: Floats
    label_noise: float = 0.0
    repeated: int = 0
    placeless: int = 0

    @property
    def n(self) -> int:
        """Number of battles."""
        return len(self.first)

    @property
    def keys(self) -> Keys:
        """Shape (units,). Key of each unit."""
        keys = np.empty(self.units, dtype=np.uint64)
        keys[self.unit] = self.key
        return keys

    @property
    def preferred(self) -> Bools:
        """Shape (n,). Judged battles with a preference of the judge, accepted or not."""
        return np.asarray(self.judged & ~np.isnan(self.p_bar))

    @property
    def accepted(self) -> Bools:
        """Shape (n,). Battles with a verdict."""
        return np.asarray(self.judged & ~np.isnan(self.verdict))

    @property
    def labeled(self) -> Bools:
        """Shape (n,). Battles with a person's label, judged or not."""
        return ~np.isnan(self.human)

    @property
    def people(self) -> Floats:
        """Shape (n,). `human` without its noise: its mean over the noise is the right outcome.

        It leaves [0, 1] where there is noise, and is NaN where there is no label.
        """
        return 0.5 + (self.human - 0.5) / (1.0 - 2.0 * self.label_noise)

    def played(self, counted: Bools) -> Ints:
        """Shape (models,). Number of the counted battles of each model."""
        m = len(self.models)
        return np.bincount(self.first[counted], minlength=m) + np.bincount(
            self.second[counted], minlength=m
        )

    def where(self, kept: Bools) -> "Battles":
        """The battles of a mask; the units are numbered again from 0."""
        arrays: dict[str, Any] = {
            name: value[kept] for name, value in vars(self).items() if isinstance(value, np.ndarray)
        }
        units, arrays["unit"] = np.unique(arrays["unit"], return_inverse=True)
        return replace(self, **arrays, units=len(units))
