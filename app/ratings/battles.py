"""The battles of one judge, as arrays."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from app.ratings.bootstrap import Keys
from app.ratings.bradley_terry import Bools, Floats, Ints

# Keys of units without a name begin here.
UNNAMED = 2**63


@dataclass(frozen=True)
class Battles:
    """The battles of one judge; arrays have shape (n,).

    Args:
        judge: Name to show.
        signature: None if the rows have none.
        alpha, guarantee: None if the rows have none or several.
        models: In alphabetical order.
        names: Identifiers of the battles, for people.
        battle: Number of the battle, the same for every judge; -1 if the rows do not tell.
        first, second: Indexes of model_a and model_b.
        unit: Unit of the bootstrap, below `units`.
        key: Key of that unit: a digest of its name, below UNNAMED, which is the same in the files
            of every week; or UNNAMED and a number, if the rows do not name it.
        category: Index in `categories`; -1 if the row has none.
        categories: Kinds of questions.
        judged: Whether there is a judgment.
        verdict: 1 for model_a, 0 for model_b, 0.5 for a tie; NaN for none.
        has_verdicts: Whether the rows have the column `winner` at all.
        reason: Index in `reasons`; -1 without an abstention.
        p_bar, p_fwd, p_rev: NaN where there is none.
        human: Outcome by a person, like `verdict`.
        human_probability: Probability with which the row was drawn for labelling.
        label_noise: Share of wrong labels among those of people, in [0, 0.5); ties are right.
        style: Shape (n, 4). Difference of each of FEATURES by its sum, in [-1, 1]; None if the rows
            lack a feature.
        repeated: Number of rows that were left out as copies.
        placeless: Number of rows that failed because they hold no battle, left out likewise.
    """

    judge: str
    signature: str | None
    alpha: float | None
    guarantee: str | None
    models: tuple[str, ...]
    names: tuple[str, ...]
    battle: Ints
    first: Ints
    second: Ints
    unit: Ints
    units: int
    key: Keys
    category: Ints
    categories: tuple[str, ...]
    judged: Bools
    verdict: Floats
    has_verdicts: bool
    reason: Ints
    reasons: tuple[str, ...]
    p_bar: Floats
    p_fwd: Floats
    p_rev: Floats
    human: Floats
    human_probability: Floats
    style: Floats | None
    repeated: int = 0
    placeless: int = 0
    label_noise: float = 0.0

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
    def abstained(self) -> Bools:
        """Shape (n,). Judged battles without a verdict."""
        return np.asarray(self.judged & np.isnan(self.verdict))

    @property
    def labelled(self) -> Bools:
        """Shape (n,). Judged battles with a person's label."""
        return np.asarray(self.judged & ~np.isnan(self.human))

    @property
    def people(self) -> Floats:
        """Shape (n,). `human` without its noise: its mean over the noise is the right outcome.

        It leaves [0, 1] where there is noise, and is NaN where there is no label.
        """
        return 0.5 + (self.human - 0.5) / (1.0 - 2.0 * self.label_noise)

    def where(self, kept: Bools) -> "Battles":
        """The battles of a mask; the units are numbered anew."""
        arrays: dict[str, Any] = {
            name: value[kept]
            for name, value in vars(self).items()
            if isinstance(value, np.ndarray) and len(value) == self.n
        }
        units, arrays["unit"] = np.unique(arrays["unit"], return_inverse=True)
        names = tuple(name for name, keep in zip(self.names, kept, strict=True) if keep)
        return replace(self, **arrays, names=names, units=len(units))
