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

from app.audits.entries import AboutAlarm, AlarmEnd, AlarmEntry, in_fields, written
from app.core.comparison import Criterion
from scope_judge import records


@dataclass(frozen=True, kw_only=True, slots=True)
class Alarm:
    """An alarm, and the position of its entry."""

    position: int
    entry: AlarmEntry

    @property
    def record(self) -> records.EndedAlarm:
        """What callers see of an alarm that ends."""
        return records.EndedAlarm(**in_fields(self.entry.criterion), rang_at=written(self.entry.at))


@dataclass(frozen=True, kw_only=True, slots=True)
class AlarmState:
    """The alarms of a criterion.

    Args:
        ended: Position of the end of the last alarm that has ended; 0 if none has. Draws up to this
            position say nothing about the time after it.
    """

    last: Alarm | None = None
    end: AlarmEnd | None = None
    ended: int = 0

    @property
    def standing(self) -> Alarm | None:
        """The active alarm; None if there is none."""
        return self.last if self.end is None else None


class Alarms:
    """The alarms of a set: a fold over the entries of its trail."""

    def __init__(self) -> None:
        self._states: dict[Criterion, AlarmState] = {}
        # Position after which draws of the set are examples of its present traffic. Draws from
        # before an alarm that has ended are not, nor are those from before a `resume`.
        self.begun = 0

    def state(self, criterion: Criterion) -> AlarmState:
        """Returns the alarms of a criterion."""
        return self._states.get(criterion, AlarmState())

    def states(self) -> Mapping[Criterion, AlarmState]:
        """Returns a copy of the alarms by their criteria."""
        return dict(self._states)

    def standing(self) -> list[Alarm]:
        """Returns the active alarms."""
        states = self._states.values()
        return [state.standing for state in states if state.standing is not None]

    def first(self) -> Alarm | None:
        """Returns the active alarm that was raised first; None if there is none."""
        return min(self.standing(), key=lambda alarm: alarm.position, default=None)

    @property
    def start(self) -> int:
        """Position after which draws can join the set: of the active alarm, or of the last one."""
        alarm = self.first()
        return self.begun if alarm is None else alarm.position

    def takes(self, entry: AboutAlarm) -> bool:
        """Whether an entry would change anything; False if another one came first."""
        if isinstance(entry, AlarmEntry):
            state = self.state(entry.criterion)
            return state.standing is None and entry.after == state.ended
        standing = self.state(entry.criterion).standing
        return standing is not None and entry.alarm == standing.position

    def apply(self, position: int, entry: AboutAlarm) -> bool:
        """Applies the entry at a position of the trail; returns False if it changes nothing."""
        if not self.takes(entry):
            return False
        state = self.state(entry.criterion)
        if isinstance(entry, AlarmEntry):
            alarm = Alarm(position=position, entry=entry)
            state = replace(state, last=alarm, end=None)
        else:
            begun = entry.alarm if entry.because == "version" else position
            self.begun = max(begun, self.begun)
            state = replace(state, end=entry, ended=position)
        self._states[entry.criterion] = state
        return True
