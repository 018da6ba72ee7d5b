"""Alarms of the audits: when each one was raised, and what ended it.

An alarm is raised when the labels of one version prove more errors than alpha under a criterion. It
then lasts until somebody ends it with a reason, or until the set has a version of which at least
half of the labeled examples are in no version up to the one that raised it. Corrected labels,
rollbacks and smaller changes of the set do not end it. If such a version is rolled back, the alarm
is raised again.

All of these are entries of the trail of the set's audits. Replicas may find the same one: the first
counts, because an entry names the position that it follows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.audits.entries import Audit, TrailEntry, in_fields
from app.core.comparison import Criterion


@dataclass(frozen=True, kw_only=True, slots=True)
class AlarmState:
    """The last alarm of a criterion, and its end; both are None without an alarm."""

    last: TrailEntry | None = None
    end: TrailEntry | None = None

    @property
    def standing(self) -> TrailEntry | None:
        """The active alarm; None if there is none."""
        return self.last if self.end is None else None

    @property
    def ended(self) -> int:
        """Position of the end of the last alarm that has ended; 0 if none has.

        Draws up to this position say nothing about the time after it.
        """
        if self.end is not None:
            return self.end.position
        return 0 if self.last is None else self.last.follows


class Alarms:
    """The alarms of a set: a fold over the entries of its trail."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._states: dict[Criterion, AlarmState] = {}
        # Position after which draws of the set are examples of its present traffic. Draws from
        # before an alarm that has ended are not, nor are those from before a `resume`.
        self.begun = 0

    def criterion(self, entry: TrailEntry) -> Criterion:
        """Returns the criterion of an entry about an alarm."""
        return Criterion(**in_fields(entry), calibration=self._name)

    def state(self, criterion: Criterion) -> AlarmState:
        """Returns the alarms of a criterion."""
        return self._states.get(criterion, AlarmState())

    def states(self) -> Mapping[Criterion, AlarmState]:
        """Returns a copy of the alarms by their criteria."""
        return dict(self._states)

    def standing(self) -> dict[Criterion, TrailEntry]:
        """Returns the active alarms by their criteria."""
        states = self._states.items()
        return {key: state.standing for key, state in states if state.standing is not None}

    def first(self) -> TrailEntry | None:
        """Returns the active alarm that was raised first; None if there is none."""
        return min(self.standing().values(), key=lambda alarm: alarm.position, default=None)

    @property
    def start(self) -> int:
        """Position after which draws can join the set: of the active alarm, or of the last one."""
        alarm = self.first()
        return self.begun if alarm is None else alarm.position

    def needs_label(self, audit: Audit) -> bool:
        """Whether a label would count: for the monitor of a criterion, or as an example."""
        return audit.position > self.start or any(
            use.position > self.state(use.criterion).ended for use in audit.uses
        )

    def takes(self, entry: TrailEntry) -> bool:
        """Whether an entry would change anything; False if another one came first."""
        state = self.state(self.criterion(entry))
        if entry.event == "alarm":
            return state.standing is None and entry.follows == state.ended
        return state.standing is not None and entry.follows == state.standing.position

    def apply(self, entry: TrailEntry) -> None:
        """Applies an entry of the trail, unless it changes nothing."""
        if not self.takes(entry):
            return
        criterion = self.criterion(entry)
        if entry.event == "alarm":
            self._states[criterion] = AlarmState(last=entry)
            return
        begun = entry.follows if entry.event == "alarm_ended" else entry.position
        self.begun = max(begun, self.begun)
        self._states[criterion] = replace(self.state(criterion), end=entry)
