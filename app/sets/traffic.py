"""Recent judgments by each set, beside the labeled pairs of the set.

The figures inform people. `drift` tests whether the judgments are like the labeled pairs.
"""

import math
from array import array
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from statistics import fmean

from app.core.calibration import Calibration
from app.core.comparison import Criterion, Judgment
from app.judges.case import Case
from scope_judge import records

# The smallest and the largest number of judgments in the figures.
_LEAST = 200
_WINDOW = 1000
# The mean uncertainty of fewer examples is too inexact.
_LEAST_EXAMPLES = 50
# Callers choose the names of sets and the thresholds, so their numbers are limited.
_MOST_SETS = 1000
_MOST_THRESHOLDS = 256
_MOST_CRITERIA = 64
# Judgments that wait for the tests of drift; further ones are left out. The choice depends on
# nothing that is tested, so that the tests stay valid.
_MOST_FRESH = 2**16
# Questions that are remembered, so that each is tested once.
_MOST_SEEN = 100_000
# Values of one judgment that are tested for drift: uncertainty, position gap, and label mass, which
# is NaN if it is unknown. A cascade has the uncertainty of its large judge in its place.
VALUES = 3


class SetTraffic:
    """Recent judgments by one version of one calibration set."""

    def __init__(self, calibration: Calibration) -> None:
        self.name, self.write_id = calibration.name, calibration.write_id
        self._examples = calibration.n
        table = calibration.first_table
        scored = table.preferences_at(calibration.temperature).entropy[table.scored]
        self._mean = float(scored.mean()) if len(scored) else 0.0
        self._expected: dict[float, float] = {}
        # The first criteria that judgments by this version were asked for under.
        self.criteria: set[Criterion] = set()
        # Each recent judgment has its uncertainty, whether it abstained, and the expected share of
        # abstentions. Only abstentions of judgments with a feasible alpha are informative.
        self._recent = deque[tuple[float | None, bool | None, float]](maxlen=_WINDOW)
        self._fresh = array("d")

    def add(self, judgment: Judgment, calibration: Calibration, *, tested: bool) -> None:
        """Adds a judgment by this version, which may be one that is tested for drift."""
        if len(self.criteria) < _MOST_CRITERIA:
            self.criteria.add(judgment.criterion)
        preference, mass = judgment.preference, judgment.label_mass
        if judgment.rungs:
            # In a cascade, this is the judge that is asked first; the criterion does not matter.
            preference, mass = judgment.rungs[0].preference, _of_large(judgment, calibration)
        uncertainty = None if preference is None else preference.uncertainty
        if judgment.threshold is None:
            self._recent.append((uncertainty, None, 0.0))
        else:
            expected = self._expected_of(calibration, judgment)
            self._recent.append((uncertainty, judgment.verdict == "abstain", expected))
        if tested and preference is not None and len(self._fresh) < _MOST_FRESH * VALUES:
            self._fresh.extend(
                (
                    preference.uncertainty,
                    preference.position_gap,
                    math.nan if mass is None else mass,
                )
            )

    def take_fresh(self) -> "array[float]":
        """Returns the values to test for drift that came since the last call."""
        fresh, self._fresh = self._fresh, array("d")
        return fresh

    def _expected_of(self, calibration: Calibration, judgment: Judgment) -> float:
        """The share of the labeled pairs on which the judgment's criterion abstains."""
        criterion = judgment.criterion
        if calibration.cascade is not None and criterion.alpha and criterion.delta:
            return 1.0 - calibration.chosen(criterion.alpha, criterion.delta).coverage
        return self._expected_at(calibration, judgment.threshold or 0.0)

    def _expected_at(self, calibration: Calibration, threshold: float) -> float:
        """The share of the labeled pairs that a threshold does not accept."""
        expected = self._expected.get(threshold)
        if expected is None:
            if len(self._expected) >= _MOST_THRESHOLDS:
                self._expected.clear()
            expected = (calibration.n - calibration.accepts(threshold)) / calibration.n
            self._expected[threshold] = expected
        return expected

    @property
    def figures(self) -> records.Traffic | None:
        """What metrics and answers show, before any test of drift.

        None with too few judgments or examples.
        """
        # A copy, because metrics are written in another thread.
        recent = list(self._recent)
        if len(recent) < _LEAST or self._examples < _LEAST_EXAMPLES:
            return None
        scored = [uncertainty for uncertainty, _, _ in recent if uncertainty is not None]
        decided = [(abstained, share) for _, abstained, share in recent if abstained is not None]
        enough = len(decided) >= _LEAST
        return records.Traffic(
            judgments=len(recent),
            abstentions=fmean(abstained for abstained, _ in decided) if enough else None,
            expected_abstentions=fmean(share for _, share in decided) if enough else None,
            uncertainty=fmean(scored) if scored else 0.0,
            expected_uncertainty=self._mean,
            drifted=False,
        )


def _of_large(judgment: Judgment, calibration: Calibration) -> float | None:
    """The uncertainty of a cascade's large judge on a pair that it is asked about at any alpha."""
    if len(judgment.rungs) < 2 or calibration.cascade is None:
        return None
    small, large = (rung.preference for rung in judgment.rungs)
    if small is None or large is None or small.uncertainty <= calibration.cascade.largest_first:
        return None
    return large.uncertainty


class Traffic:
    """Recent judgments of each set by this process; mutated only on the event loop."""

    def __init__(self) -> None:
        # The most recently used set comes last.
        self._sets: OrderedDict[str, SetTraffic] = OrderedDict()
        # Hashes of questions, the one that came first first. In a plain dict, finding the first one
        # would pass over all that were deleted.
        self._seen: OrderedDict[int, None] = OrderedDict()

    async def observe(self, judged: Sequence[Case]) -> None:
        """Adds the judgments of a batch that used a set.

        Tests of drift need values that are independent of each other. So they get the first
        comparison of each question.
        """
        for item in judged:
            calibration = item.calibration
            if calibration is not None:
                question = hash((calibration.write_id, item.comparison.question))
                tested = question not in self._seen
                self._seen[question] = None
                if len(self._seen) > _MOST_SEEN:
                    self._seen.popitem(last=False)
                self._used(calibration).add(item.judgment, calibration, tested=tested)

    def _used(self, calibration: Calibration) -> SetTraffic:
        """Returns the traffic of a version that was used now."""
        traffic = self._of(calibration)
        if traffic is None:
            # Another version has other thresholds, so its figures start from zero.
            self._sets[calibration.name] = traffic = SetTraffic(calibration)
            if len(self._sets) > _MOST_SETS:
                self._sets.popitem(last=False)
        self._sets.move_to_end(calibration.name)
        return traffic

    def _of(self, calibration: Calibration) -> SetTraffic | None:
        """Returns the traffic of this version; None if this process has not used it lately."""
        traffic = self._sets.get(calibration.name)
        return traffic if traffic is not None and traffic.write_id == calibration.write_id else None

    def figures(self, calibration: Calibration) -> records.Traffic | None:
        """Returns the figures of this version; None with too few judgments by this process."""
        traffic = self._of(calibration)
        return None if traffic is None else traffic.figures

    def criteria(self, name: str) -> frozenset[Criterion]:
        """Returns the criteria of judgments by the version of a set that was used last."""
        traffic = self._sets.get(name)
        return frozenset() if traffic is None else frozenset(traffic.criteria)

    def take_fresh(self, calibration: Calibration) -> "array[float]":
        """Returns the values of this version to test for drift that came since the last call."""
        traffic = self._of(calibration)
        return array("d") if traffic is None else traffic.take_fresh()

    def names(self) -> list[str]:
        """Returns the names of the sets that were used, the most recent first."""
        return list(reversed(self._sets))

    def sets(self) -> Iterator[SetTraffic]:
        """Yields the sets that were used, the most recent first."""
        yield from list(reversed(self._sets.values()))
