"""Tests without labels whether judgments by a set are like its labelled pairs.

A guarantee holds for traffic like the labelled pairs. Three values of each judgment are compared
with those of the labelled pairs: uncertainty, position gap |p_fwd - p_rev| and label mass. A judge
that sees no order has no position gap, and one without labels has no label mass. The test cannot
see a wrong verdict, nor a change that leaves these values as they were. A question counts once,
with one labelled pair or with its first judgment: several pairs of it resemble each other.

Each replica tests its own judgments, and publishes its evidence in the store. All replicas see the
same merged evidence, which raises a false alarm as rarely as that of one.
"""

import asyncio
import json
import logging
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from uuid import uuid4

import numpy as np

from app.core.calibration import Calibration
from app.core.conformal import ConformalMartingale, merged
from app.core.errors import ScopeJudgeError, StoreUnavailableError
from app.core.monitoring import JudgedSpan, Ringing
from app.core.preference import FloatArray
from app.observability import gauges
from app.observability.telemetry import Telemetry
from app.ports import AuditStore
from app.service.auditing.entries import between, written
from app.service.calibration.cache import Calibrations
from app.service.calibration.parsing import PARSE_ERRORS, parse_finite
from app.service.calibration.traffic import VALUES
from app.service.off_loop import off_loop

# The three values of a judgment, in the order of `traffic`.
STREAMS = ("uncertainty", "position_gap", "label_mass")
# False alarms of one version of a set, of all streams and replicas together, over all time.
DRIFT_DELTA = 0.05
# Interval at which new judgments are tested, and at which replicas exchange their evidence.
_SETTLE_S = 1.0
_EXCHANGE_S = 5.0
# Judgments that one call of a thread tests: 20 ms, so that other work gets its turn.
_MOST_AT_ONCE = 4096
_MOST_SETS = 1000
_SPAN = ("first_judged_at", "last_judged_at")

logger = logging.getLogger("app.drift")


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamFigures:
    """The merged evidence of one stream.

    Args:
        evidence: Wealth of the bets that the judgments are unlike the labelled pairs; the largest
            so far, merged over the replicas.
        alarm: Whether it has reached 1 / delta.
        rang: When it did; None without an alarm, or if no replica that runs or has run knows.
    """

    evidence: float
    alarm: bool
    rang: Ringing | None = None


Figures = Mapping[str, StreamFigures]


def streams_of(calibration: Calibration) -> tuple[str, ...]:
    """Returns the values that the judge of a set has."""
    has = {"position_gap": calibration.orders == 2, "label_mass": calibration.has_label_mass}
    return tuple(name for name in STREAMS if has.get(name, True))


def tested_values(calibration: Calibration) -> dict[str, FloatArray]:
    """Returns the values of the labelled pairs that judgments are compared with, by stream.

    They are those of one pair of each question: correlated scores are not exchangeable.
    """
    preferences, used = calibration.preferences, calibration.one_a_question
    gap = np.abs(preferences.p_fwd - preferences.p_rev)
    columns = (calibration.uncertainty, gap, calibration.table.label_mass)
    tested = streams_of(calibration)
    return {
        name: column[used] for name, column in zip(STREAMS, columns, strict=True) if name in tested
    }


class Martingales:
    """The tests of one version of a set by this replica."""

    def __init__(self, calibration: Calibration) -> None:
        self._streams = {
            name: ConformalMartingale.of(values)
            for name, values in tested_values(calibration).items()
        }

    def add(self, values: Sequence[float], rng: np.random.Generator) -> None:
        """Adds judgments; `values` has those of one judgment after the other."""
        # In a random order: a batch that callers have sorted is not unlike the labelled pairs.
        table = rng.permutation(np.asarray(values, dtype=np.float64).reshape(-1, VALUES))
        for name, column in zip(STREAMS, table.T, strict=True):
            if name in self._streams:
                known = column[~np.isnan(column)]
                self._streams[name].update(known, rng.random((len(known), 2)))

    @property
    def judged(self) -> int:
        """Number of judgments that were tested."""
        return self._streams["uncertainty"].judged

    @property
    def largest(self) -> dict[str, float]:
        """The largest evidence of each stream so far."""
        return {name: each.largest for name, each in self._streams.items()}


@dataclass(slots=True)
class _SetDrift:
    """The state of one version of a set.

    Args:
        write_id: The version.
        martingales: The tests; None before the first judgment.
        place: Place of this replica among those that were registered for this version, from 1.
        others: Place -> entry of the other replicas.
        figures: The merged evidence.
        span: The judgments that this replica has tested; None before the first one.
        rang: Stream -> its alarm, if this replica was the one that noticed it.
        lock: Held while the state changes.
        exchanged: Number of tested judgments at the last exchange.
        exchanged_at: Time of the loop at the last exchange.
    """

    write_id: str
    martingales: Martingales | None = None
    place: int | None = None
    others: "dict[int, _Entry]" = field(default_factory=dict)
    figures: Figures = field(default_factory=dict)
    span: JudgedSpan | None = None
    rang: dict[str, Ringing] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    exchanged: int = 0
    exchanged_at: float = -_EXCHANGE_S

    @property
    def judged(self) -> int:
        """Number of judgments that this replica has tested."""
        return 0 if self.martingales is None else self.martingales.judged


class Drift:
    """The drift of each set in use; mutated only on the event loop.

    Args:
        calibrations: The sets, and the judgments that used them.
        store: Keeps the evidence of all replicas.
        telemetry: Shows the evidence about the sets that have gauges.
        replica: Unique name of this process; None for a random one.
        seed: Seed of the random numbers that break ties; None for a random one.
        now: Clock in seconds since 1970.
    """

    def __init__(
        self,
        calibrations: Calibrations,
        store: AuditStore,
        telemetry: Telemetry,
        *,
        replica: str | None = None,
        seed: int | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._calibrations = calibrations
        self._store = store
        self._replica = replica or uuid4().hex
        self._rng = np.random.default_rng(seed)
        self._now = now
        # The most recently used set comes last.
        self._sets: OrderedDict[str, _SetDrift] = OrderedDict()
        telemetry.show_drift(self._gauges)

    async def follow(self) -> None:
        """Tests new judgments and exchanges evidence; runs until it is cancelled."""
        while True:
            await asyncio.sleep(_SETTLE_S)
            for traffic in self._calibrations.traffic.sets():
                calibration = self._calibrations.in_memory(traffic.name)
                # Else a new version is in place, or the set was deleted.
                if calibration is not None and calibration.write_id == traffic.write_id:
                    await self._follow_one(calibration)

    async def _follow_one(self, calibration: Calibration) -> None:
        state = self._state(calibration)
        async with state.lock:
            await self._settle(state, calibration)
            now = asyncio.get_running_loop().time()
            if state.judged > state.exchanged and now - state.exchanged_at >= _EXCHANGE_S:
                state.exchanged_at = now
                # A lost store is reported by the judgments, and the next round tries again.
                with suppress(ScopeJudgeError):
                    await self._exchange(state, calibration)

    async def of(self, calibration: Calibration) -> Figures:
        """Returns the merged evidence about a version, after all judgments so far.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        state = self._state(calibration)
        async with state.lock:
            await self._settle(state, calibration)
            await self._exchange(state, calibration)
        return state.figures

    def known(self, calibration: Calibration) -> Figures:
        """Returns the merged evidence as it was last seen; {} for a version without judgments."""
        state = self._sets.get(calibration.name)
        if state is None or state.write_id != calibration.write_id:
            return {}
        return state.figures

    def _gauges(self) -> list[gauges.DriftFigures]:
        return [
            gauges.DriftFigures(
                calibration=calibration.name,
                stream=stream,
                evidence=figures.evidence,
                alarm=figures.alarm,
            )
            for calibration in self._calibrations.shown()
            for stream, figures in self.known(calibration).items()
        ]

    def _state(self, calibration: Calibration) -> _SetDrift:
        state = self._sets.get(calibration.name)
        if state is None or state.write_id != calibration.write_id:
            # Another version has other labelled pairs, so its tests start over.
            self._sets[calibration.name] = state = _SetDrift(calibration.write_id)
            if len(self._sets) > _MOST_SETS:
                self._sets.popitem(last=False)
        self._sets.move_to_end(calibration.name)
        return state

    async def _settle(self, state: _SetDrift, calibration: Calibration) -> None:
        """Tests the judgments since the last call, in threads."""
        fresh = self._calibrations.traffic.take_fresh(calibration)
        if fresh:
            # They were judged within the last second or so.
            now = self._now()
            begun = now if state.span is None else state.span.first_judged_at
            state.span = JudgedSpan(first_judged_at=begun, last_judged_at=now)
        for begin in range(0, len(fresh), _MOST_AT_ONCE * VALUES):
            part = fresh[begin : begin + _MOST_AT_ONCE * VALUES]
            tested = off_loop(self._tested, state.martingales, calibration, part)
            work = asyncio.ensure_future(tested)
            try:
                # The caller may leave, but the thread continues: hold the lock until it ends.
                await asyncio.shield(work)
            finally:
                await asyncio.wait([work])
                state.martingales = work.result()
        if fresh:
            self._merge(state, calibration)

    def _tested(
        self, martingales: Martingales | None, calibration: Calibration, values: "array[float]"
    ) -> Martingales:
        if martingales is None:
            martingales = Martingales(calibration)
        martingales.add(values, self._rng)
        return martingales

    async def _exchange(self, state: _SetDrift, calibration: Calibration) -> None:
        """Publishes this replica's evidence, and reads that of the others."""
        stored = await self._store.evidence(calibration.name)
        entries = _entries(stored, calibration)
        own = entries.get(state.place or 0)
        if state.judged and (own is None or own.replica != self._replica):
            # The places of another version's entries are free.
            places = range(1, len(entries) + 2)
            state.place = next(place for place in places if place not in entries)
        state.others = {place: each for place, each in entries.items() if place != state.place}
        self._merge(state, calibration)
        if state.judged and state.place is not None and state.martingales is not None:
            entry = _Entry(
                write_id=calibration.write_id,
                replica=self._replica,
                largest=state.martingales.largest,
                rang=state.rang,
            )
            if stored.get(str(state.place)) != entry.text:
                # A store that can only be read, such as one on a full disk, still shows the others.
                with suppress(StoreUnavailableError):
                    await self._store.put_evidence(calibration.name, str(state.place), entry.text)
        state.exchanged = state.judged

    def _merge(self, state: _SetDrift, calibration: Calibration) -> None:
        """Merges the evidence of all replicas, and logs new alarms."""
        streams = streams_of(calibration)
        known = {place: each.largest for place, each in state.others.items()}
        if state.martingales is not None:
            known[state.place or max(known, default=0) + 1] = state.martingales.largest
        before, state.figures = (
            state.figures,
            {
                name: stream_figures(
                    {place: each[name] for place, each in known.items()}, streams=len(streams)
                )
                for name in streams
            },
        )
        for name, figures in state.figures.items():
            if figures.alarm:
                self._note_alarm(state, calibration, name)
        state.figures = {
            name: replace(figures, rang=_first_ringing(state, name)) if figures.alarm else figures
            for name, figures in state.figures.items()
        }
        for name, figures in state.figures.items():
            if figures.alarm and not (name in before and before[name].alarm):
                _log_alarm(calibration, name, figures)

    def _note_alarm(self, state: _SetDrift, calibration: Calibration, name: str) -> None:
        """Notes the time of an alarm that is there by the judgments of this replica.

        An alarm of the other replicas alone has their time, or none if an earlier release wrote it.
        """
        others = {place: each.largest[name] for place, each in state.others.items()}
        merged_others = stream_figures(others, streams=len(streams_of(calibration)))
        is_theirs = merged_others.alarm or _first_ringing(state, name) is not None
        if state.span is not None and not is_theirs:
            state.rang[name] = Ringing(at=self._now(), version=calibration.version, span=state.span)


def _first_ringing(state: _SetDrift, name: str) -> Ringing | None:
    """The first of the times at which replicas noticed the alarm of a stream."""
    noted = [state.rang, *(entry.rang for entry in state.others.values())]
    return min(
        (each[name] for each in noted if name in each), key=lambda rang: rang.at, default=None
    )


def _log_alarm(calibration: Calibration, name: str, figures: StreamFigures) -> None:
    rang = figures.rang
    logger.warning(
        "drift alarm: the traffic of calibration %r (version %d) is unlike its labelled pairs "
        "since %s: the evidence from the %s of its judgments%s is %.3g; docs/guides/monitoring.md "
        "says what to do",
        calibration.name,
        calibration.version,
        "an unknown time" if rang is None else written(rang.at),
        name.replace("_", " "),
        between(None if rang is None else rang.span),
        figures.evidence,
    )


def stream_figures(largest: Mapping[int, float], *, streams: int = len(STREAMS)) -> StreamFigures:
    """Merges the largest evidence of one stream of each replica.

    Args:
        largest: Place of a replica -> its evidence. A place whose evidence is unknown keeps its
            share of the false alarms.
        streams: Number of streams that share the false alarms of the set.
    """
    places = range(1, max(largest, default=0) + 1)
    evidence = merged([largest.get(place, 0.0) for place in places], streams=streams)
    return StreamFigures(evidence=evidence, alarm=evidence >= 1.0 / DRIFT_DELTA)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    """The evidence of one replica as the store keeps it."""

    write_id: str
    replica: str
    largest: dict[str, float]
    rang: dict[str, Ringing] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The entry as JSON without spaces."""
        return json.dumps(asdict(self), separators=(",", ":"))


def _entries(stored: Mapping[str, str], calibration: Calibration) -> dict[int, _Entry]:
    """Place -> entry of each replica that was registered for a version; others are left out."""
    entries, streams = {}, streams_of(calibration)
    for place, text in stored.items():
        # Another release may write other entries; their places are free for this version.
        with suppress(*PARSE_ERRORS):
            fields = json.loads(text)
            largest = {name: parse_finite(fields["largest"][name]) for name in streams}
            if fields["write_id"] == calibration.write_id:
                entries[int(place)] = _Entry(
                    write_id=calibration.write_id,
                    replica=str(fields["replica"]),
                    largest=largest,
                    rang={
                        name: _ringing(rang)
                        # Entries of earlier releases have no times.
                        for name, rang in fields.get("rang", {}).items()
                    },
                )
    return entries


def _ringing(fields: Any) -> Ringing:
    span = fields["span"]
    return Ringing(
        at=parse_finite(fields["at"]),
        version=int(fields["version"]),
        span=JudgedSpan(**{name: parse_finite(span[name]) for name in _SPAN}),
    )
