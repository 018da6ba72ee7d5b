"""Recent judgments by each set: their values, which `drift` tests, and their criteria."""

import math
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from app.core.calibration import Calibration
from app.core.comparison import Criterion, Judgment
from app.judges.case import Case

# Callers choose the names of sets and the criteria, so their numbers are limited.
_MOST_SETS = 1000
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
        # The first criteria that judgments by this version were asked for under.
        self.criteria: set[Criterion] = set()
        self._fresh = array("d")

    def add(self, judgment: Judgment, calibration: Calibration, *, tested: bool) -> None:
        """Adds a judgment by this version, which may be one that is tested for drift."""
        if len(self.criteria) < _MOST_CRITERIA:
            self.criteria.add(judgment.criterion)
        preference, mass = judgment.preference, judgment.label_mass
        if judgment.rungs:
            # In a cascade, this is the judge that is asked first; the criterion does not matter.
            preference, mass = judgment.rungs[0].preference, _of_large(judgment, calibration)
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
            # Another version has other labeled pairs, so its tests start from zero.
            self._sets[calibration.name] = traffic = SetTraffic(calibration)
            if len(self._sets) > _MOST_SETS:
                self._sets.popitem(last=False)
        self._sets.move_to_end(calibration.name)
        return traffic

    def _of(self, calibration: Calibration) -> SetTraffic | None:
        """Returns the traffic of this version; None if this process has not used it lately."""
        traffic = self._sets.get(calibration.name)
        return traffic if traffic is not None and traffic.write_id == calibration.write_id else None

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
