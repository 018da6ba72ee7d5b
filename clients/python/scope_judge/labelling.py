"""Answers about pairs that are judged first and labelled later."""

from dataclasses import dataclass

from scope_judge.answers import ExampleError


@dataclass(frozen=True, slots=True)
class PoolReport:
    """A calibration set after pairs without labels were added, with their counts and errors.

    `digests` has the digest of each pair, in order; None for a pair that failed.
    """

    name: str
    version: int
    n: int
    labelled: int
    unlabelled: int
    pool_ties: int
    added: int
    known: int
    failed: int
    digests: tuple[str | None, ...]
    errors: tuple[ExampleError, ...]


@dataclass(frozen=True, slots=True)
class NextLabels:
    """The pairs to label next for one alpha and delta under "pac", by their digests."""

    name: str
    version: int
    alpha: float
    delta: float
    clusters: str
    n: int
    labelled: int
    needed: int
    complete: bool
    threshold: float | None
    feasible: bool
    digests: tuple[str, ...]
