"""A figure: samples of ours and theirs, taken in turns, and their ratio with its target."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table.

    Args:
        name: Value of `--only`.
        unit: Unit of the samples.
        ours: One sample of ours for each repeat.
        theirs: One sample of theirs for each repeat; empty if the target is absolute.
        target: Target of the ratio, or of ours if `theirs` is empty; None if there is no target.
        at_most: Whether the target is a ceiling.
        notes: Facts that a reader needs about this measurement.
        extra: Further samples by name, e.g. of a third contestant.
    """

    name: str
    unit: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    target: float | None
    at_most: bool = False
    notes: tuple[str, ...] = ()
    extra: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.ours:
            raise ValueError(f"{self.name} has no samples")
        if self.theirs and len(self.theirs) != len(self.ours):
            raise ValueError(f"{self.name} has {len(self.ours)} samples and {len(self.theirs)}")

    @property
    def compared(self) -> tuple[float, ...]:
        """The values to compare with the target: the ratio of each repeat, or ours if alone."""
        if not self.theirs:
            return self.ours
        # The ratio of each repeat, not of the medians: a slow moment slows both.
        return tuple(ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True))

    @property
    def median(self) -> float:
        """Median of the compared values."""
        return statistics.median(self.compared)

    @property
    def spread(self) -> tuple[float, float]:
        """Smallest and largest of the compared values."""
        return min(self.compared), max(self.compared)

    @property
    def met(self) -> bool | None:
        """Whether the median reaches the target; None if there is no target."""
        if self.target is None:
            return None
        return self.median <= self.target if self.at_most else self.median >= self.target


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A figure that this machine cannot measure, or whose measurement failed."""

    name: str
    why: Literal["skipped", "failed"]
    reason: str


Result = Figure | Unmeasured


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How the samples of a figure are taken.

    Args:
        folder: Folder for keys, stores and logs.
        repeats: Number of samples of each contestant.
        small: Whether a sample is small: a smoke test, not a measurement.
        on_sample: Called after each sample.
    """

    folder: Path
    repeats: int
    small: bool = False
    on_sample: Callable[[], None] = lambda: None

    def in_turns(
        self, contestants: Sequence[Callable[[int], float]], *, warm_up: bool = False
    ) -> list[tuple[float, ...]]:
        """Takes samples of each contestant as ABAB..., so that a busy machine slows all of them.

        Args:
            contestants: Each receives the number of the repeat, so that all see the same input.
            warm_up: Whether each contestant takes a sample beforehand, with a number of its own.

        Returns:
            One tuple of samples for each contestant.
        """
        if warm_up:
            for contestant in contestants:
                contestant(self.repeats)
        samples: list[list[float]] = [[] for _ in contestants]
        for repeat in range(self.repeats):
            for contestant, taken in zip(contestants, samples, strict=True):
                taken.append(contestant(repeat))
                self.on_sample()
        return [tuple(taken) for taken in samples]
