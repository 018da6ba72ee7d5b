"""Compares the traffic with the calibration set that it is judged by.

A guarantee holds for traffic like the labelled pairs. Two figures of recent judgments can be held
against the set itself: the share that abstained, against the share of the set that the same
thresholds leave out, and the mean uncertainty. This sees no wrong verdict, and no change of traffic
that leaves both as they were.
"""

import logging
import math
from collections import OrderedDict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.core.calibration import Calibration
from app.core.comparison import CalibrationReference, Judgment
from app.core.errors import ScopeJudgeError
from app.telemetry import TrafficFigures

# Judgments that are compared with the set, the fewest and the most. A block is counted as one, so
# that there is a look at the figures every 50 judgments.
_LEAST = 200
_WINDOW = 1000
_BLOCK = 50
# Fewer examples say too little of their own mean.
_LEAST_EXAMPLES = 50
# Standard errors at which drift begins, and below which it ends. Of 3,000 simulated runs of 10,000
# judgments without drift 1 reached 5 (tests/statistics/test_drift.py); 4.5 is 1 in 400.
_BEGINS_Z = 5.0
_ENDS_Z = 2.5
# Smaller differences need no attention, however many judgments show them.
_LEAST_SHARE = 0.05
_LEAST_NATS = 0.02
# Callers name the sets.
_MOST_SETS = 1000
_MOST_THRESHOLDS = 256

logger = logging.getLogger("app.drift")


class _Expected(NamedTuple):
    """Expectation and standard deviation of one abstention, by the calibration set."""

    share: float
    deviation: float


class Tally:
    """Judgments of one batch by one criterion; `threshold` is None where it is infeasible."""

    __slots__ = ("abstained", "calibration", "judgments", "threshold", "uncertainty")

    def __init__(
        self,
        calibration: Calibration,
        threshold: float | None,
        *,
        judgments: int = 0,
        abstained: int = 0,
        uncertainty: float = 0.0,
    ) -> None:
        self.calibration = calibration
        self.threshold = threshold
        self.judgments = judgments
        self.abstained = abstained
        self.uncertainty = uncertainty


@dataclass(slots=True)
class _Sums:
    """Sums over judgments.

    Args:
        judgments: Their number.
        uncertainty: In nats.
        decided: Those whose threshold accepts some pair: only these can tell by abstaining.
        abstained: Abstentions of these.
        expected: Expected abstentions of these.
        deviations: Standard deviations of each.
        variances: Variances of each.
    """

    judgments: int = 0
    uncertainty: float = 0.0
    decided: int = 0
    abstained: int = 0
    expected: float = 0.0
    deviations: float = 0.0
    variances: float = 0.0

    @classmethod
    def of(cls, parts: Collection["_Sums"]) -> "_Sums":
        """The sums of several."""
        return cls(
            sum(part.judgments for part in parts),
            math.fsum(part.uncertainty for part in parts),
            sum(part.decided for part in parts),
            sum(part.abstained for part in parts),
            math.fsum(part.expected for part in parts),
            math.fsum(part.deviations for part in parts),
            math.fsum(part.variances for part in parts),
        )


class _Difference(NamedTuple):
    """A mean over recent judgments and over the calibration set, and how far they are apart.

    Args:
        observed: Over recent judgments.
        expected: By the calibration set.
        z: The difference in standard errors.
        least: The smallest difference that counts.
    """

    observed: float
    expected: float
    z: float
    least: float

    def reaches(self, z: float) -> bool:
        """Whether the difference is so many standard errors, in either direction."""
        return abs(self.z) >= z and abs(self.observed - self.expected) >= self.least


class SetTraffic:
    """Recent judgments by one version of one calibration set."""

    def __init__(self, calibration: Calibration) -> None:
        self.name, self.version = calibration.name, calibration.version
        self.write_id = calibration.write_id
        self._examples = calibration.n
        self._mean = float(calibration.uncertainty.mean()) if calibration.n else 0.0
        self._variance = float(calibration.uncertainty.var()) if calibration.n else 0.0
        self._expected: dict[float, _Expected] = {}
        self._blocks: deque[_Sums] = deque()
        self._block = _Sums()
        # Over whole blocks; None before the first.
        self._sums: _Sums | None = None
        self.has_drifted = False

    def add(self, tally: Tally) -> None:
        """Adds judgments by this set."""
        block, count = self._block, tally.judgments
        block.judgments += count
        block.uncertainty += tally.uncertainty
        if tally.threshold is not None:
            share, deviation = self._expected_at(tally.calibration, tally.threshold)
            block.decided += count
            block.abstained += tally.abstained
            block.expected += count * share
            block.deviations += count * deviation
            block.variances += count * deviation * deviation
        if block.judgments >= _BLOCK:
            self._close_block()

    def _expected_at(self, calibration: Calibration, threshold: float) -> _Expected:
        found = self._expected.get(threshold)
        if found is None:
            accepted, _ = calibration.curve.accepted_at(threshold, undecided=calibration.undecided)
            abstained = calibration.n - accepted
            # The rule of succession: no set of finite size shows that abstentions are impossible.
            likely = (abstained + 1) / (calibration.n + 2)
            found = _Expected(abstained / calibration.n, math.sqrt(likely * (1.0 - likely)))
            if len(self._expected) >= _MOST_THRESHOLDS:
                self._expected.clear()
            self._expected[threshold] = found
        return found

    def _close_block(self) -> None:
        self._blocks.append(self._block)
        self._block = _Sums()
        held = sum(block.judgments for block in self._blocks)
        while held - self._blocks[0].judgments >= _WINDOW:
            held -= self._blocks.popleft().judgments
        self._sums = _Sums.of(self._blocks)
        limit = _ENDS_Z if self.has_drifted else _BEGINS_Z
        drifted = any(each.reaches(limit) for each in (self._abstentions, self._nats) if each)
        if drifted != self.has_drifted:
            self.has_drifted = drifted
            self._tell()

    @property
    def _nats(self) -> _Difference | None:
        """Mean uncertainty; None where too little was judged or labelled."""
        sums, n = self._sums, self._examples
        if sums is None or sums.judgments < _LEAST or n < _LEAST_EXAMPLES:
            return None
        mean = sums.uncertainty / sums.judgments
        # The set's own mean has an error, too.
        error = math.sqrt(self._variance * (1 / sums.judgments + 1 / n))
        return _Difference(mean, self._mean, _ratio(mean - self._mean, error), _LEAST_NATS)

    @property
    def _abstentions(self) -> _Difference | None:
        """Share of abstentions; None where too little was judged or labelled."""
        sums, n = self._sums, self._examples
        if sums is None or sums.decided < _LEAST or n < _LEAST_EXAMPLES:
            return None
        # Different thresholds err together: they are held against the same examples.
        error = math.sqrt(sums.variances + sums.deviations**2 / n)
        z = _ratio(sums.abstained - sums.expected, error)
        observed, expected = sums.abstained / sums.decided, sums.expected / sums.decided
        return _Difference(observed, expected, z, _LEAST_SHARE)

    @property
    def figures(self) -> TrafficFigures | None:
        """What is shown; None where too little was judged or labelled."""
        abstentions, nats = self._abstentions, self._nats
        if nats is None or self._sums is None:
            return None
        return TrafficFigures(
            judgments=self._sums.judgments,
            abstentions=None if abstentions is None else abstentions.observed,
            expected_abstentions=None if abstentions is None else abstentions.expected,
            uncertainty=nats.observed,
            expected_uncertainty=nats.expected,
            has_drifted=self.has_drifted,
        )

    def _tell(self) -> None:
        found = self.figures
        if found is None:
            return
        abstentions = (
            ""
            if found.abstentions is None or found.expected_abstentions is None
            else f"{found.abstentions:.1%} abstained, {found.expected_abstentions:.1%} of the "
            "pairs would; "
        )
        logger.warning(
            "the traffic of calibration %r (version %d) is %s its labelled pairs: of the last %d "
            "judgments %smean uncertainty %.3f nats, that of the pairs %.3f%s",
            self.name,
            self.version,
            "unlike" if self.has_drifted else "like",
            found.judgments,
            abstentions,
            found.uncertainty,
            found.expected_uncertainty,
            "; docs/guides/monitoring.md says what to do" if self.has_drifted else "",
        )


class Drift:
    """Compares the traffic of each calibration set with the set; changed on the event loop only."""

    def __init__(self) -> None:
        # The set that was judged by last comes last.
        self._sets: OrderedDict[str, SetTraffic] = OrderedDict()

    def note(
        self,
        outcomes: Sequence[Judgment | ScopeJudgeError],
        calibrations: Sequence[tuple[Calibration, float] | ScopeJudgeError | None],
    ) -> None:
        """Takes in a batch of outcomes, each with the calibration of its criterion, and its age."""
        tallies: dict[int, Tally] = {}
        reference: CalibrationReference | None = None
        tally: Tally | None = None
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, ScopeJudgeError):
                continue
            # Judgments of one batch and one criterion share their reference.
            if outcome.calibration is not reference:
                reference = outcome.calibration
                tally = tallies.get(id(reference))
                used = calibrations[place]
                if tally is None and isinstance(used, tuple):
                    tallies[id(reference)] = tally = Tally(used[0], outcome.threshold)
            if tally is not None:
                tally.judgments += 1
                tally.uncertainty += outcome.uncertainty
                if outcome.verdict == "abstain":
                    tally.abstained += 1
        for tally in tallies.values():
            self._add(tally)

    def _add(self, tally: Tally) -> None:
        name, write_id = tally.calibration.name, tally.calibration.write_id
        known = self._sets.get(name)
        if known is None or known.write_id != write_id:
            # Another version has other thresholds, and starts anew.
            self._sets[name] = known = SetTraffic(tally.calibration)
            if len(self._sets) > _MOST_SETS:
                self._sets.popitem(last=False)
        self._sets.move_to_end(name)
        known.add(tally)

    def figures(self, calibration: Calibration) -> TrafficFigures | None:
        """The traffic of this version; None where too little of it was judged here."""
        known = self._sets.get(calibration.name)
        if known is None or known.write_id != calibration.write_id:
            return None
        return known.figures

    def names(self) -> list[str]:
        """The sets that were judged by, the last of them first."""
        return list(reversed(self._sets))


def _ratio(difference: float, error: float) -> float:
    """A difference in standard errors; labelled pairs that are all alike have no error at all."""
    return difference / error if error else math.copysign(math.inf, difference)
