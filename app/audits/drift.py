"""Tests without labels whether judgments by a set are like its labeled pairs.

A guarantee holds for traffic like the labeled pairs. Three values of each judgment are compared
with those of the labeled pairs: uncertainty, position gap |p_fwd - p_rev| and label mass. A judge
that sees no order has no position gap, and one without labels has no label mass. The test cannot
see a wrong verdict, nor a change that leaves these values as they were. A question counts once,
with one labeled pair or with its first judgment: several pairs of it resemble each other.

Each process tests its own judgments, at 5% divided by the number of replicas. So over all of them a
false alarm is as rare as that of one, and an alarm of any of them counts.
"""

import asyncio
import logging
import math
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from app.audits.entries import NO_ALARM, written
from app.core.calibration import Calibration
from app.core.comparison import Case, Criterion
from app.core.conformal import ConformalMartingale
from app.core.preference import FloatArray
from app.flow import off_loop
from app.observability.telemetry import Row, Telemetry
from app.sets.cache import Calibrations
from scope_judge.records import DriftStream, Rung

# The three values of a judgment; those of a cascade are of its small judge, and of its large one on
# pairs that always reach it. A value that is unknown is NaN.
STREAMS = ("uncertainty", "position_gap", "label_mass")
_OF_CASCADES = ("uncertainty", "position_gap", "large_uncertainty")
# False alarms of one version of a set, of all streams and replicas together, over all time.
DRIFT_DELTA = 0.05
# Interval at which new judgments are tested.
_SETTLE_S = 1.0
# Judgments that one call of a thread tests: 20 ms, so that other work gets its turn.
_MOST_AT_ONCE = 4096
# Callers choose the names of sets and the criteria, so their numbers are limited.
_MOST_SETS = 1000
_MOST_CRITERIA = 64
# Judgments that wait for their test; further ones are left out. The choice depends on nothing that
# is tested, so that the tests stay valid.
_MOST_FRESH = 2**16
# Questions that are remembered, so that each is tested once.
_MOST_SEEN = 100_000

logger = logging.getLogger("app.drift")


# The evidence of each stream.
Figures = Mapping[str, DriftStream]


def _names(calibration: Calibration) -> tuple[str, ...]:
    return STREAMS if calibration.cascade is None else _OF_CASCADES


def tested_values(calibration: Calibration) -> dict[str, FloatArray]:
    """Returns the values of the labeled pairs that judgments are compared with, by stream.

    They are those of one pair of each question: correlated scores are not exchangeable.
    """
    table, plan = calibration.first_table, calibration.cascade
    preferences, used = table.preferences_at(calibration.temperature), calibration.counted
    gap, last = np.abs(preferences.p_fwd - preferences.p_rev), table.label_mass
    if plan is not None:
        always = preferences.entropy > plan.largest_first
        last = np.where(always, calibration.uncertainty, np.nan)
    columns = (preferences.entropy, gap, last)
    has = {
        "position_gap": bool(table.sees_order.any()) or not calibration.n,
        "label_mass": calibration.has_label_mass,
    }
    return {
        name: column[used & ~np.isnan(column)]
        for name, column in zip(_names(calibration), columns, strict=True)
        if has.get(name, True)
    }


class Martingales:
    """The tests of one version of a set by this replica."""

    def __init__(self, calibration: Calibration) -> None:
        self._names = _names(calibration)
        self._streams = {
            name: ConformalMartingale.of(values)
            for name, values in tested_values(calibration).items()
        }

    def add(self, values: Sequence[float], rng: np.random.Generator) -> None:
        """Adds judgments; `values` has those of one judgment after the other."""
        # In a random order: a batch that callers have sorted is not unlike the labeled pairs.
        table = rng.permutation(np.asarray(values, dtype=np.float64).reshape(-1, len(self._names)))
        for name, column in zip(self._names, table.T, strict=True):
            if name in self._streams:
                known = column[~np.isnan(column)]
                self._streams[name].update(known, rng.random((len(known), 2)))

    @property
    def largest(self) -> dict[str, float]:
        """The largest evidence of each stream so far."""
        return {name: stream.largest for name, stream in self._streams.items()}


@dataclass(slots=True)
class _SetDrift:
    """The judgments of this process by one version of a set.

    Args:
        criteria: The first criteria that were asked for.
        fresh: Values of the judgments that were not tested yet, one judgment after the other.
    """

    write_id: str
    criteria: set[Criterion] = field(default_factory=set)
    fresh: "array[float]" = field(default_factory=lambda: array("d"))
    martingales: Martingales | None = None
    figures: Figures = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Drift:
    """The recent judgments by each set, and their drift; mutated only on the event loop.

    Args:
        replicas: Number of processes that judge by the same sets, and share the false alarms.
        seed: Seed of the random numbers that break ties; None for a random one.
    """

    def __init__(
        self,
        calibrations: Calibrations,
        telemetry: Telemetry,
        *,
        replicas: int = 1,
        seed: int | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._calibrations = calibrations
        self._replicas = replicas
        self._rng = np.random.default_rng(seed)
        self._now = now
        # The most recently used set comes last.
        self._sets: OrderedDict[str, _SetDrift] = OrderedDict()
        # Hashes of questions, the one that came first first. In a plain dict, finding the first one
        # would pass over all that were deleted.
        self._seen: OrderedDict[int, None] = OrderedDict()
        telemetry.show(self._rows)

    async def observe(self, judged: Sequence[Case]) -> None:
        """Adds the judgments of a batch that used a set.

        The tests need values that are independent of each other. So they get the first comparison
        of each question.
        """
        for item in judged:
            calibration = item.calibration
            if calibration is not None and not self._is_replaced(calibration):
                state = self._sets[calibration.name] = self._state(calibration)
                self._sets.move_to_end(calibration.name)
                if len(self._sets) > _MOST_SETS:
                    self._sets.popitem(last=False)
                if len(state.criteria) < _MOST_CRITERIA:
                    state.criteria.add(item.criterion)
                question = hash((calibration.write_id, item.comparison.question))
                if question not in self._seen and len(state.fresh) < _MOST_FRESH * len(STREAMS):
                    state.fresh.extend(_values_of(item, calibration))
                self._seen[question] = None
                if len(self._seen) > _MOST_SEEN:
                    self._seen.popitem(last=False)

    def criteria(self, name: str) -> frozenset[Criterion]:
        """Returns the criteria of judgments by the version of a set that was used last."""
        state = self._sets.get(name)
        return frozenset() if state is None else frozenset(state.criteria)

    async def follow(self) -> None:
        """Tests new judgments; runs until it is cancelled."""
        while True:
            await asyncio.sleep(_SETTLE_S)
            for name, state in [*self._sets.items()]:
                calibration = self._calibrations.in_memory(name)
                # Otherwise a new version is in place, or the set was deleted.
                if calibration is not None and calibration.write_id == state.write_id:
                    await self.of(calibration)

    async def of(self, calibration: Calibration) -> Figures:
        """Returns the evidence about a version, after all judgments of this process so far."""
        state = self._state(calibration)
        async with state.lock:
            martingales = await self._settle(state, calibration)
            self._show(state, calibration, martingales.largest)
        return state.figures

    def known(self, calibration: Calibration) -> Figures:
        """Returns the evidence as it was last seen; {} for a version without judgments."""
        state = self._sets.get(calibration.name)
        if state is None or state.write_id != calibration.write_id:
            return {}
        return state.figures

    def _rows(self) -> Iterator[Row]:
        for calibration in self._calibrations.shown():
            for name, stream in self.known(calibration).items():
                yield "drift_evidence", (calibration.name, name), stream.evidence
                yield "drift_alarm", (calibration.name, name), stream.alarm

    def _state(self, calibration: Calibration) -> _SetDrift:
        """Returns the judgments by a version: the kept ones, or none yet, which are not kept."""
        state = self._sets.get(calibration.name)
        if state is not None and state.write_id == calibration.write_id:
            return state
        # Another version has other labeled pairs, so its tests start over.
        return _SetDrift(calibration.write_id)

    def _is_replaced(self, calibration: Calibration) -> bool:
        """Whether a judgment by a version ended after the set had a new one."""
        newest = self._calibrations.in_memory(calibration.name)
        return newest is not None and newest.write_id != calibration.write_id

    async def _settle(self, state: _SetDrift, calibration: Calibration) -> Martingales:
        """Tests the judgments since the last call, in threads."""
        if state.martingales is None:
            state.martingales = await off_loop(Martingales, calibration)
        step = _MOST_AT_ONCE * len(STREAMS)
        while state.fresh:
            part, state.fresh = state.fresh[:step], state.fresh[step:]
            work = asyncio.ensure_future(off_loop(state.martingales.add, part, self._rng))
            try:
                # The caller may leave, but the thread continues: hold the lock until it ends.
                await asyncio.shield(work)
            finally:
                await asyncio.wait([work])
        return state.martingales

    def _show(
        self, state: _SetDrift, calibration: Calibration, evidence: Mapping[str, float]
    ) -> None:
        """Updates the figures by the largest evidence of each stream, and logs new alarms."""
        before = state.figures
        shares = len(evidence) * self._replicas
        state.figures = {}
        for name, largest in evidence.items():
            stream, known = stream_figures(largest, shares=shares), before.get(name)
            if known is not None and known.alarm:
                stream = replace(known, evidence=stream.evidence)
            elif stream.alarm:
                rang_at = written(self._now())
                stream = replace(stream, rang_at=rang_at, rang_version=calibration.version)
                logger.warning(
                    "drift alarm: the traffic of calibration %r (version %d) is unlike its labeled "
                    "pairs since %s: the evidence from the %s of its judgments is %.3g; "
                    "docs/guides/monitoring.md says what to do",
                    calibration.name,
                    calibration.version,
                    rang_at,
                    name.replace("_", " "),
                    stream.evidence,
                )
            state.figures[name] = stream


def _values_of(case: Case, calibration: Calibration) -> tuple[float, ...]:
    """The values of a judgment that are tested; none for one without a preference."""
    preference, last = case.preference, case.judgment.label_mass
    if rungs := case.judgment.rungs:
        # In a cascade, this is the judge that is asked first; the criterion does not matter.
        preference, last = case.first, _of_large(rungs, calibration)
    if preference is None:
        return ()
    return preference.uncertainty, preference.position_gap, math.nan if last is None else last


def _of_large(rungs: Sequence[Rung], calibration: Calibration) -> float | None:
    """The uncertainty of a cascade's large judge on a pair that it is asked about at any alpha."""
    if len(rungs) < 2 or calibration.cascade is None:
        return None
    small, large = (rung.uncertainty for rung in rungs)
    return None if small is None or small <= calibration.cascade.largest_first else large


def stream_figures(largest: float, *, shares: int = len(STREAMS)) -> DriftStream:
    """Returns the evidence of one stream.

    Args:
        largest: The largest wealth so far of the bets that the judgments are unlike the pairs.
        shares: Number of streams of all replicas, which share the false alarms of the set.
    """
    evidence = largest / shares
    return DriftStream(evidence=evidence, alarm=evidence >= 1.0 / DRIFT_DELTA, **NO_ALARM)
