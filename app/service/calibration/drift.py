"""Compares recent judgments with the calibration set that they use.

A guarantee holds for traffic like the labelled pairs. Two figures of recent judgments are compared
with the set: the share of abstentions, with the share of labelled pairs that the same thresholds
reject; and the mean uncertainty. The comparison cannot detect wrong verdicts, and cannot detect a
change of the traffic that leaves both figures unchanged.
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

# The smallest and the largest number of judgments that are compared with the set. Judgments are
# collected in blocks of 50, and the figures are compared after each block.
_LEAST = 200
_WINDOW = 1000
_BLOCK = 50
# The mean uncertainty of fewer examples is too inexact.
_LEAST_EXAMPLES = 50
# Drift begins at the first number of standard errors and ends below the second. In 3,000 simulated
# runs of 10,000 judgments without drift, one run reached 5 (tests/statistics/test_drift.py). One
# run in 400 reached 4.5.
_BEGINS_Z = 5.0
_ENDS_Z = 2.5
# Smaller differences are no drift, however many judgments show them.
_LEAST_SHARE = 0.05
_LEAST_NATS = 0.02
# Callers choose the names of sets and the thresholds, so their numbers are limited.
_MOST_SETS = 1000
_MOST_THRESHOLDS = 256

logger = logging.getLogger("app.drift")


class _Expected(NamedTuple):
    """Expected share of abstentions and standard deviation of one abstention, from the set."""

    share: float
    deviation: float


class Tally:
    """Sums over the judgments of one batch that share a criterion.

    Args:
        calibration: The calibration set of the criterion.
        threshold: Threshold in nats; None if the alpha is infeasible.
        judgments: Number of judgments.
        abstained: Number of abstentions.
        uncertainty: Sum of the uncertainties, in nats.
    """

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
        judgments: Number of judgments.
        uncertainty: Sum of the uncertainties, in nats.
        decided: Number of judgments with a feasible alpha. Only abstentions of these judgments are
            informative; the following sums are over them.
        abstained: Number of abstentions.
        expected: Expected number of abstentions.
        deviations: Sum of the standard deviations of the single abstentions.
        variances: Sum of the variances of the single abstentions.
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
        """Adds up several sums."""
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
    """The difference between a mean over recent judgments and its expectation.

    Args:
        observed: Mean over recent judgments.
        expected: Expectation from the calibration set.
        z: Difference in standard errors.
        least: Smallest absolute difference that counts as drift.
    """

    observed: float
    expected: float
    z: float
    least: float

    def reaches(self, z: float) -> bool:
        """Whether the difference counts and is at least z standard errors, in either direction."""
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
        # Sums over all complete blocks; None before the first block is complete.
        self._sums: _Sums | None = None
        self.has_drifted = False

    def add(self, tally: Tally) -> None:
        """Adds judgments that used this set."""
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
            abstained = calibration.n - calibration.accepts(threshold)
            # Rule of succession: no finite set proves that abstentions are impossible.
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
            self._log()

    @property
    def _nats(self) -> _Difference | None:
        """Difference of the mean uncertainty; None with too few judgments or examples."""
        sums, n = self._sums, self._examples
        if sums is None or sums.judgments < _LEAST or n < _LEAST_EXAMPLES:
            return None
        mean = sums.uncertainty / sums.judgments
        # The mean over the set has a standard error, too.
        error = math.sqrt(self._variance * (1 / sums.judgments + 1 / n))
        return _Difference(mean, self._mean, _ratio(mean - self._mean, error), _LEAST_NATS)

    @property
    def _abstentions(self) -> _Difference | None:
        """Difference of the share of abstentions; None with too few judgments or examples."""
        sums, n = self._sums, self._examples
        if sums is None or sums.decided < _LEAST or n < _LEAST_EXAMPLES:
            return None
        # The errors at different thresholds are correlated, because the examples are the same.
        error = math.sqrt(sums.variances + sums.deviations**2 / n)
        z = _ratio(sums.abstained - sums.expected, error)
        observed, expected = sums.abstained / sums.decided, sums.expected / sums.decided
        return _Difference(observed, expected, z, _LEAST_SHARE)

    @property
    def figures(self) -> TrafficFigures | None:
        """The figures that metrics and answers show; None with too few judgments or examples."""
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

    def _log(self) -> None:
        found = self.figures
        if found is None:
            return
        abstentions = (
            ""
            if found.abstentions is None or found.expected_abstentions is None
            else f"{found.abstentions:.1%} abstentions (labelled pairs: "
            f"{found.expected_abstentions:.1%}), "
        )
        logger.warning(
            "the traffic of calibration %r (version %d) is %s its labelled pairs: the last %d "
            "judgments have %sa mean uncertainty of %.3f nats (labelled pairs: %.3f)%s",
            self.name,
            self.version,
            "unlike" if self.has_drifted else "like",
            found.judgments,
            abstentions,
            found.uncertainty,
            found.expected_uncertainty,
            "; see docs/guides/monitoring.md for what to do" if self.has_drifted else "",
        )


class Drift:
    """Compares recent judgments of each set with the set; mutated only on the event loop."""

    def __init__(self) -> None:
        # The most recently used set comes last.
        self._sets: OrderedDict[str, SetTraffic] = OrderedDict()

    def note(
        self,
        outcomes: Sequence[Judgment | ScopeJudgeError],
        calibrations: Sequence[tuple[Calibration, float] | ScopeJudgeError | None],
    ) -> None:
        """Adds a batch of outcomes.

        Args:
            outcomes: Judgments and errors, in order.
            calibrations: For each outcome, the calibration of its criterion and the age of the
                calibration in seconds, or an error, or None without an alpha.
        """
        tallies: dict[int, Tally] = {}
        reference: CalibrationReference | None = None
        tally: Tally | None = None
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, ScopeJudgeError):
                continue
            # Judgments of one batch with the same criterion share one reference object.
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
            # Another version has other thresholds, so its comparison starts from zero.
            self._sets[name] = known = SetTraffic(tally.calibration)
            if len(self._sets) > _MOST_SETS:
                self._sets.popitem(last=False)
        self._sets.move_to_end(name)
        known.add(tally)

    def figures(self, calibration: Calibration) -> TrafficFigures | None:
        """Returns the figures of this version; None with too few judgments by this process."""
        known = self._sets.get(calibration.name)
        if known is None or known.write_id != calibration.write_id:
            return None
        return known.figures

    def names(self) -> list[str]:
        """Returns the names of the sets that were used, the most recent first."""
        return list(reversed(self._sets))


def _ratio(difference: float, error: float) -> float:
    """Returns a difference in standard errors; infinite if all labelled pairs are alike."""
    return difference / error if error else math.copysign(math.inf, difference)
