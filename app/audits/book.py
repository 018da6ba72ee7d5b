"""The audits of one set as this process has read them from the store."""

from collections.abc import Collection
from dataclasses import dataclass, field

from app.audits.alarms import Alarms
from app.audits.entries import Audit, Row, TrailEntry, key_of_row, pair_of
from app.core.comparison import Criterion

# Criteria of one version of a set whose judgments are drawn. Callers choose the criteria, and each
# one has its own draws, its own figures and its own alarm.
MOST_CRITERIA = 64
# Open draws of one set; above that, no further comparison is drawn.
MOST_OPEN = 10_000


@dataclass(kw_only=True, slots=True)
class Book:
    """The audits of a set; changed only on the event loop.

    Args:
        position: Position up to which all of its rows were read.
        audits: The audits by the key of their pair.
        places: Position of each row by its key, also of those that cannot be read.
        last_sender: Name of the key that sent its last label, or "service".
    """

    name: str
    position: int = 0
    audits: dict[str, Audit] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    trail: list[TrailEntry] = field(default_factory=list)
    alarms: Alarms = field(init=False)
    last_sender: str = "service"
    # Write id of each version with draws -> their criteria.
    _begun: dict[str, set[Criterion]] = field(default_factory=dict)
    _unlabeled: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.alarms = Alarms(self.name)

    def apply(self, key: str, position: int, row: Row | None) -> None:
        """Takes the next row in the order of changes; None is one that cannot be read."""
        self.position = max(self.position, position)
        self.places[key] = position
        if isinstance(row, Audit):
            self._apply_audit(key, row)
        elif isinstance(row, TrailEntry):
            self.trail.append(row)
            if row.id is None:
                self.alarms.apply(row)

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

    def with_texts(self) -> list[tuple[str, Audit]]:
        """Returns the audits whose texts the store keeps, by their keys."""
        return [(key, self.audits[key]) for key in self._unlabeled if self.audits[key].has_texts]

    def out_of_force(self, in_force: str | None, *, older_than: float, now: float) -> list[str]:
        """Returns the keys of rows that may go; see `Auditor.forget`."""
        alarm = self.alarms.first()
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

    def since(self, position: int) -> list[Audit]:
        """Returns the audits that were drawn after a position, oldest first."""
        audits = (audit for audit in self.audits.values() if audit.position > position)
        return sorted(audits, key=lambda audit: audit.place)

    def page_of_trail(self, before: int | None, limit: int) -> list[TrailEntry]:
        """Returns entries of the trail before a position, newest first."""
        entries = [entry for entry in self.trail if before is None or entry.position < before]
        return entries[::-1][:limit]
