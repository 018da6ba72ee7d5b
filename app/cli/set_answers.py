"""Answers about calibration sets that only the commands read; the client has all others.

It imports the client, so the functions that need it import it.
"""

from dataclasses import dataclass

from scope_judge.records import (
    Calibration,
    CalibrationDetail,
    Effect,
    EndedAlarm,
    ExampleError,
    Guarantee,
    Label,
    Threshold,
)


@dataclass(frozen=True, slots=True)
class ListedSet(Calibration):
    """One set of the list."""

    unlabelled: int


@dataclass(frozen=True, slots=True)
class Sets:
    """One page of the calibration sets that the key may use."""

    calibrations: tuple[ListedSet, ...]
    next_after: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a set; `removed` is None if the set could not be read."""

    version: int
    at: str
    by: str
    action: str
    rolled_back_to: int | None
    added: int
    updated: int
    removed: int | None
    n: int


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a set, newest first."""

    versions: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class RolledBack(Calibration):
    """A set after a rollback, or as it would be after it."""

    added: int
    updated: int
    removed: int
    dry_run: bool
    effects: tuple[Effect, ...]
    ends_alarms: tuple[EndedAlarm, ...]
    note: str


@dataclass(frozen=True, slots=True)
class Deletion:
    """The consequences of a deletion; `version` is None if the set cannot be read."""

    version: int | None
    in_use: tuple[Threshold, ...]
    note: str


@dataclass(frozen=True, slots=True)
class MonitoredKey:
    """The audits of judgments that one key asked for."""

    key: str | None
    audited: int
    errors: int
    evidence: float
    open: int


@dataclass(frozen=True, slots=True)
class MonitoredCriterion:
    """The audits of one criterion."""

    alpha: float
    guarantee: str
    delta: float | None
    audited: int
    errors: int
    evidence: float
    open: int
    alarm: bool
    certified: bool
    suspended: bool
    keys: tuple[MonitoredKey, ...]
    alarm_evidence: float


@dataclass(frozen=True, slots=True)
class Monitor:
    """The audits of a set, with a note if there is something to do."""

    criteria: tuple[MonitoredCriterion, ...]
    note: str | None


@dataclass(frozen=True, slots=True)
class Ringing:
    """When an alarm rang, and the judgments that led to it."""

    rang_at: str | None
    rang_version: int | None
    first_judged_at: str | None
    last_judged_at: str | None

    @property
    def told(self) -> str:
        """The same in words."""
        version = "" if self.rang_version is None else f" (version {self.rang_version})"
        judged = ""
        if self.first_judged_at is not None:
            judged = f", after judgments from {self.first_judged_at} to {self.last_judged_at}"
        return f"since {self.rang_at or 'an unknown time'}{version}{judged}"


@dataclass(frozen=True, slots=True)
class Stream(Ringing):
    """Evidence of drift in one value of the judgments."""

    evidence: float
    alarm: bool


@dataclass(frozen=True, slots=True)
class DriftOfSet:
    """Evidence of drift in three values of the judgments; None for one that the judge has not."""

    uncertainty: Stream
    position_gap: Stream | None
    label_mass: Stream | None


@dataclass(frozen=True, slots=True)
class AuditedCriterion(Ringing):
    """The audits of one criterion with its alarm."""

    alpha: float
    guarantee: str
    delta: float | None
    labelled: int
    ties: int
    tie_interval: tuple[float, ...]
    audited: int
    errors: int
    error_interval: tuple[float, ...]
    evidence: float
    open: int
    waiting: int
    alarm: bool
    certified: bool
    suspended: bool
    alarm_evidence: float
    certified_without_expired: bool


@dataclass(frozen=True, slots=True)
class Recovery:
    """The recovery after an alarm, in words."""

    note: str


@dataclass(frozen=True, slots=True)
class AuditStatus:
    """The audits, alarms and drift of a set, with a sentence that sums them up."""

    version: int
    criteria: tuple[AuditedCriterion, ...]
    drift: DriftOfSet
    summary: str
    note: str | None
    recovery: Recovery | None


@dataclass(frozen=True, slots=True)
class ScoredExample:
    """One example of a set; `question` is None where it is unknown."""

    digest: str
    gap_fwd: float
    gap_rev: float | None
    label_mass: float | None
    label: Label | None
    question: str | None


@dataclass(frozen=True, slots=True)
class ExamplePage:
    """One page of the examples of a set."""

    name: str
    version: int
    judge: str
    fingerprint: str
    n: int
    examples: tuple[ScoredExample, ...]
    release: str | None
    runtimes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scores:
    """A judged batch that was added to no set, without the examples that failed."""

    fingerprint: str
    scores: tuple[ScoredExample, ...]
    errors: tuple[ExampleError, ...]


@dataclass(frozen=True, slots=True)
class FeasibleAlphas:
    """The first and the last of each row of alphas at which examples accept something.

    Raises:
        ValueError: An interval has no two ends.
    """

    guarantee: Guarantee
    intervals: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if any(len(interval) != 2 for interval in self.intervals):
            raise ValueError("intervals")


@dataclass(frozen=True, slots=True)
class AssessedSet(CalibrationDetail):
    """A set with everything that its assessment shows.

    Raises:
        ValueError: The accuracy is not a share of labeled pairs.
    """

    feasible_alphas: tuple[FeasibleAlphas, ...] = ()

    def __post_init__(self) -> None:
        if self.accuracy is not None and not (0 <= self.accuracy <= 1 and self.sided >= 1):
            raise ValueError("accuracy")

    @property
    def sided(self) -> int:
        """Number of pairs with a preferred side."""
        return self.n - self.unlabelled - self.pool_ties
