"""The audits of one set as this process has read them: draws, their trail, and alarms.

An alarm is raised when the labels of one version prove more errors than alpha under a criterion. It
then lasts until somebody ends it with a reason, or until the set has a version of which at least
half of the labeled examples are in no version up to the one that raised it. Corrected labels,
rollbacks and smaller changes of the set do not end it. If such a version is rolled back, the alarm
is raised again.

All of these are entries of the trail of the set's audits. Replicas may find the same one: the first
counts, because an entry names the position that it follows.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from app.audits.entries import Audit, Row, TrailEntry, in_fields, key_of_row, pair_of
from app.core.comparison import Criterion

# Criteria of one version of a set whose judgments are drawn. Callers choose the criteria, and each
# one has its own draws, its own figures and its own alarm.
MOST_CRITERIA = 64
# Open draws of one set; above that, no further comparison is drawn.
MOST_OPEN = 10_000


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


@dataclass(kw_only=True, slots=True)
class Book:
    """The audits of a set; changed only on the event loop.

    Args:
        position: Position up to which all of its rows were read.
        places: Position of each row by its key, also of those that cannot be read.
        last_sender: Name of the key that sent its last label, or "service".
    """

    name: str
    position: int = 0
    audits: dict[str, Audit] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    trail: list[TrailEntry] = field(default_factory=list)
    alarms: dict[Criterion, AlarmState] = field(default_factory=dict)
    last_sender: str = "service"
    # Position after which draws of the set are examples of its present traffic. Draws from before
    # an alarm that has ended are not, nor are those from before a `resume`.
    _traffic_begun: int = 0
    # Write id of each version with draws -> their criteria.
    _begun: dict[str, set[Criterion]] = field(default_factory=dict)
    _unlabeled: set[str] = field(default_factory=set)

    def apply(self, key: str, position: int, row: Row | None) -> None:
        """Takes the next row in the order of changes; None is one that cannot be read."""
        self.position = max(self.position, position)
        self.places[key] = position
        if isinstance(row, Audit):
            self._apply_audit(key, row)
        elif isinstance(row, TrailEntry):
            self.trail.append(row)
            if row.id is None and self.takes(row):
                self._apply_alarm(row)

    def _apply_audit(self, key: str, audit: Audit) -> None:
        before = self.audits.get(key)
        if audit.labelled_by is not None and (before is None or before.label != audit.label):
            self.last_sender = audit.labelled_by
        self.audits[key] = audit
        if audit.label is None:
            self._unlabeled.add(key)
        else:
            self._unlabeled.discard(key)
        for use in audit.uses[0 if before is None else len(before.uses) :]:
            self._begun.setdefault(use.write_id, set()).add(use.criterion)

    def _apply_alarm(self, entry: TrailEntry) -> None:
        criterion = self.criterion(entry)
        if entry.event == "alarm":
            self.alarms[criterion] = AlarmState(last=entry)
            return
        begun = entry.follows if entry.event == "alarm_ended" else entry.position
        self._traffic_begun = max(begun, self._traffic_begun)
        self.alarms[criterion] = replace(self.alarm(criterion), end=entry)

    def takes(self, entry: TrailEntry) -> bool:
        """Whether an entry about an alarm changes anything; False if another one came first."""
        state = self.alarm(self.criterion(entry))
        if entry.event == "alarm":
            return state.standing is None and entry.follows == state.ended
        return state.standing is not None and entry.follows == state.standing.position

    def criterion(self, entry: TrailEntry) -> Criterion:
        """Returns the criterion of an entry about an alarm."""
        return Criterion(**in_fields(entry), calibration=self.name)

    def alarm(self, criterion: Criterion) -> AlarmState:
        """Returns the last alarm of a criterion."""
        return self.alarms.get(criterion, AlarmState())

    def standing(self) -> dict[Criterion, TrailEntry]:
        """Returns the active alarms by their criteria."""
        states = self.alarms.items()
        return {key: state.standing for key, state in states if state.standing is not None}

    def first_alarm(self) -> TrailEntry | None:
        """Returns the active alarm that was raised first; None if there is none."""
        return min(self.standing().values(), key=lambda alarm: alarm.position, default=None)

    @property
    def start(self) -> int:
        """Position after which draws can join the set: of the active alarm, or of the last one."""
        alarm = self.first_alarm()
        return self._traffic_begun if alarm is None else alarm.position

    def needs_label(self, audit: Audit) -> bool:
        """Whether a label would count: for the monitor of a criterion, or as an example."""
        return audit.position > self.start or any(
            use.position > self.alarm(use.criterion).ended for use in audit.uses
        )

    def begun(self, write_id: str) -> frozenset[Criterion]:
        """Returns the criteria of a version's draws."""
        return frozenset(self._begun.get(write_id, ()))

    def open(self, now: float) -> list[Audit]:
        """Returns the open audits, oldest first."""
        audits = (self.audits[key] for key in self._unlabeled)
        waiting = [audit for audit in audits if audit.status(now) == "open"]
        return sorted(waiting, key=lambda audit: audit.place)

    def room(self, now: float) -> int:
        """Returns how many further comparisons may be drawn; see `MOST_OPEN`."""
        if len(self._unlabeled) < MOST_OPEN:
            return MOST_OPEN - len(self._unlabeled)
        return MOST_OPEN - len(self.open(now))

    def expired_with_texts(self, now: float) -> list[Audit]:
        """Returns the audits that nobody can label any more and whose texts the store keeps."""
        audits = (self.audits[key] for key in self._unlabeled)
        return [audit for audit in audits if audit.has_texts and audit.status(now) != "open"]

    def out_of_force(self, in_force: str | None, *, older_than: float, now: float) -> list[str]:
        """Returns the keys of audits of versions out of force, and of entries about their labels.

        An audit stays while it is open, and while it may be among the draws since an active alarm.

        Args:
            in_force: Write id of the version in force; None if the set was deleted.
            older_than: Audits that have changed since stay, in seconds since 1970.
        """
        alarm = self.first_alarm()
        keys = [
            key
            for key, audit in self.audits.items()
            if audit.last_change < older_than
            and audit.status(now) != "open"
            and (alarm is None or audit.position <= alarm.position)
            and all(use.write_id != in_force for use in audit.uses)
        ]
        # An earlier step may have removed the audit of an entry, and not the entry.
        left = self.audits.keys() - set(keys)
        return keys + [
            key_of_row(entry)
            for entry in self.trail
            if entry.id is not None and pair_of(entry.id) not in left
        ]

    def remove(self, keys: Collection[str]) -> None:
        """Removes rows."""
        if not keys:
            return
        self._unlabeled -= set(keys)
        for key in keys:
            self.places.pop(key, None)
            self.audits.pop(key, None)
        self.trail = [entry for entry in self.trail if key_of_row(entry) not in keys]

    def since(self, position: int, *, fingerprint: str) -> list[Audit]:
        """Returns the audits of a judge that were drawn after a position, oldest first."""
        audits = (
            audit
            for audit in self.audits.values()
            if audit.position > position and fingerprint == audit.fingerprint
        )
        return sorted(audits, key=lambda audit: audit.place)

    def page_of_trail(self, before: int | None, limit: int) -> list[TrailEntry]:
        """Returns entries of the trail before a position, newest first."""
        entries = [entry for entry in self.trail if before is None or entry.position < before]
        return entries[::-1][:limit]
