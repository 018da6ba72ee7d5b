"""Alarms of the audits: when each one rang, and what ended it.

An alarm rings when the labels of one version prove more errors than alpha under a criterion, or in
one group of the traffic under it. It then lasts until somebody ends it with a reason, or until the
set has a version of which at least half of the labelled examples are newer than the version that
rang. Corrected labels and smaller changes of the set do not end it, so nothing ends an alarm
without a trace.

After it, somebody may fix the number of audits that make a new calibration. No
later number for the same alarm counts.

All of these are entries of the log of audits. Several replicas may write the same one: the first
counts, because an entry names the position that it follows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.core.monitoring import Watched
from app.service.auditing.entries import AboutAlarm, AlarmEnd, AlarmEntry, RecoveryPlan


@dataclass(frozen=True, kw_only=True, slots=True)
class Alarm:
    """An active alarm.

    Args:
        position: Position of its entry.
        entry: The entry.
    """

    position: int
    entry: AlarmEntry


@dataclass(frozen=True, kw_only=True, slots=True)
class AlarmState:
    """The alarms of a criterion, or of one of its groups.

    Args:
        standing: The active alarm; None if there is none.
        end: The end of the alarm before; None if no alarm has ended.
        ended: Position of that end; 0 if no alarm has ended. Draws up to this position say nothing
            about the time after it.
    """

    standing: Alarm | None = None
    end: AlarmEnd | None = None
    ended: int = 0


class Alarms:
    """The state of all alarms: a fold over their entries in the log."""

    def __init__(self) -> None:
        self._states: dict[Watched, AlarmState] = {}
        # Name of a set -> its last plan.
        self._plans: dict[str, RecoveryPlan] = {}

    def state(self, watched: Watched) -> AlarmState:
        """Returns the alarms of a criterion, or of one of its groups."""
        return self._states.get(watched, AlarmState())

    def states(self, calibration: str) -> Mapping[Watched, AlarmState]:
        """Returns a copy of the alarms of a set."""
        return {
            watched: state
            for watched, state in self._states.items()
            if watched.criterion.calibration == calibration
        }

    def standing(self, calibration: str) -> list[Alarm]:
        """Returns the active alarms of a set."""
        states = self.states(calibration).values()
        return [state.standing for state in states if state.standing is not None]

    def plan(self, calibration: str) -> RecoveryPlan | None:
        """Returns the last plan of a recovery of a set; None if there was none."""
        return self._plans.get(calibration)

    def takes(self, entry: AboutAlarm) -> bool:
        """Whether an entry would change anything; False if another one came first."""
        if isinstance(entry, RecoveryPlan):
            last = self.plan(entry.calibration)
            return last is None or last.since != entry.since
        state = self.state(entry.watched)
        if isinstance(entry, AlarmEntry):
            return state.standing is None and entry.after == state.ended
        return state.standing is not None and entry.alarm == state.standing.position

    def apply(self, position: int, entry: AboutAlarm) -> bool:
        """Applies the entry at a position of the log; returns False if it changes nothing."""
        if not self.takes(entry):
            return False
        if isinstance(entry, RecoveryPlan):
            self._plans[entry.calibration] = entry
            return True
        if isinstance(entry, AlarmEntry):
            state = replace(
                self.state(entry.watched), standing=Alarm(position=position, entry=entry)
            )
        else:
            state = AlarmState(end=entry, ended=position)
        self._states[entry.watched] = state
        return True
