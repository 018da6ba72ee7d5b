"""The state of all audits: a fold over the log, in two tables.

As Python objects, 100,000 draws would take a hundred megabytes, and one pass of the garbage
collector over them would stop every thread. The tables are numpy's structured arrays. Only the
event loop changes them. Other threads get copies, and views of fields that never change.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.audits.alarms import Alarms
from app.audits.entries import (
    AuditLabel,
    Decider,
    Draw,
    Entry,
    LabelEntry,
)
from app.core.comparison import Criterion
from app.core.fingerprint import drawn_pair
from app.core.score import Score

T = TypeVar("T", bound=Hashable)
Rows = NDArray[np.void]
Status = Literal["open", "labelled", "closed", "expired"]
# Code of a label in a table; code 0 means that there is none.
_LABELS: tuple[AuditLabel | None, ...] = (None, "A", "B", "tie", "none")
NO_LABEL, LABEL_A, TIE, CLOSED = (_LABELS.index(label) for label in (None, "A", "tie", "none"))
_MIRRORED: Mapping[AuditLabel, AuditLabel] = {"A": "B", "B": "A", "tie": "tie", "none": "none"}

# Criteria of one version of a set whose draws count. Callers choose the criteria, and each one has
# its own draws, its own figures and its own alarm.
MOST_CRITERIA = 64
# One key begins at most this many of them, so that judgments of other keys are audited, too.
MOST_CRITERIA_OF_KEY = 32
# Name of every caller of a service without keys.
KEYLESS = "anonymous"

# Number of the decider of an entry that is not a use.
_NONE = -1

# One row for each drawn comparison, with what its first entry says. `calibration`, `fingerprint`
# and `labelled_by` are numbers of texts, `first_use` is a row of the uses, `entries` the number of
# its rows there.
_DRAW = np.dtype(
    [
        ("id", "V16"),
        ("digest", "V32"),
        ("question", "V32"),
        ("gap_fwd", "f8"),
        ("gap_rev", "f8"),
        ("label_mass", "f8"),
        ("rate", "f8"),
        ("last_at", "f8"),
        ("wait_s", "f8"),
        ("labelled_at", "f8"),
        ("calibration", "i4"),
        ("fingerprint", "i4"),
        ("labelled_by", "i4"),
        ("first_use", "i4"),
        ("entries", "u4"),
        ("label", "u1"),
        ("label_changes", "u4"),
    ]
)
# One row for each entry about a drawn comparison, in the order of the log. A use is the first entry
# of a comparison and a decider; labels, repeated uses and the entries of folded comparisons have no
# decider. `by` is the number of the key's name, for uses.
_USE = np.dtype(
    [
        ("position", "i8"),
        ("at", "f8"),
        ("draw", "i4"),
        ("decider", "i4"),
        ("by", "i4"),
        ("accepted", "?"),
    ]
)
# One row for each entry of a trail: a changed label, a closed draw, or an entry
# about an alarm. `before` is the code of the label that was replaced, in the order of the entry's
# id.
_EVENT = np.dtype(
    [
        ("position", "i8"),
        ("calibration", "i4"),
        ("before", "u1"),
    ]
)
# One row for each drawn comparison: the position of its first entry, and the code of its label.
_LABELED = np.dtype([("position", "i8"), ("label", "u1")])
# One row for each use, with the state of its draw.
_OUTCOME = np.dtype(
    [
        ("id", "V16"),
        ("question", "V32"),
        ("position", "i8"),
        ("decider", "i4"),
        ("by", "i4"),
        ("accepted", "?"),
        ("at", "f8"),
        ("label", "u1"),
        ("labelled_at", "f8"),
        ("gap_fwd", "f8"),
        ("gap_rev", "f8"),
        ("wait_s", "f8"),
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """One drawn comparison with its label, in the order of its first judgment.

    Args:
        draw: Its first entry in the log.
        position: Position of that entry.
        expires_at: Time until which it waits for its label, in seconds since 1970; each new decider
            prolongs it.
        label: Its present label; "none" if it was closed without one.
        labelled_at: Time of its first label, or at which it was closed first.
        labelled_by: Name of the key that sent its present label, or closed it.
        label_changes: Number of labels that replaced another one.
    """

    draw: Draw
    position: int
    expires_at: float
    label: AuditLabel | None
    labelled_at: float | None
    labelled_by: str | None
    label_changes: int

    def label_of(self, identifier: str) -> AuditLabel | None:
        """Returns the label in the order of an id of this draw."""
        return None if self.label is None else self.turned(self.label, identifier)

    def turned(self, label: AuditLabel, identifier: str) -> AuditLabel:
        """Turns a label between the order of this draw and that of an id of it."""
        return label if self.draw.id == identifier else _MIRRORED[label]

    def is_of_another(self, by: str) -> bool:
        """Whether it has a label, or was closed, by another key than this one."""
        return self.label is not None and self.labelled_by != by

    def status(self, now: float) -> Status:
        """Returns the status at a time, in seconds since 1970."""
        if self.label is not None:
            return "closed" if self.label == "none" else "labelled"
        return "open" if now <= self.expires_at else "expired"


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditPage:
    """Audits, oldest first.

    Args:
        audits: The audits, to be read once; any thread may read them.
        at: Time of their statuses, in seconds since 1970.
        next_after: Position after which the next page begins; None for the last page.
    """

    audits: Iterator[Audit]
    at: float
    next_after: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrailPlace:
    """The place of an entry of a trail in the log.

    Args:
        position: Position of the entry.
        before: The label that it replaced, in the order of its id; None if there was none.
    """

    position: int
    before: AuditLabel | None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SetView:
    """The draws of a set, which keep changing.

    A plan that another thread makes by it must be checked on the event loop.

    Args:
        ledger: The ledger.
        number: Number of the set in `draws`.
        deciders: The deciders by their numbers.
        draws: The rows of all draws, of all sets.
        uses: The rows of all entries about them.
    """

    ledger: "Ledger"
    number: int
    deciders: Sequence[Decider]
    draws: Rows
    uses: Rows


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Uses:
    """The drawn judgments by one version of a set, as they were at one moment.

    Args:
        deciders: The deciders by their numbers, in the order in which their criteria came into use.
        keys: The names of keys by their numbers.
        uses: The rows of all uses, of all versions.
        draws: The rows of all draws, whose ids and scores never change.
        labels: A copy of the labels of all draws.
        labelled_at: A copy of the times of these labels.
    """

    deciders: Mapping[int, Decider]
    keys: Mapping[int, str]
    uses: Rows
    draws: Rows
    labels: NDArray[np.uint8]
    labelled_at: NDArray[np.float64]

    def rows(self) -> Rows:
        """Gathers the judgments; any thread may do it.

        Returns:
            Shape (n,). The judgments in the order of the log, with the fields `id`, `position`,
            `decider` and `by` (numbers), `accepted`, `at`, `label` (a code),
            `labelled_at`, `gap_fwd`, `gap_rev`, `question` (a digest) and `wait_s`: the seconds
            until which a judgment waits for its label.
        """
        uses = self.uses[np.isin(self.uses["decider"], list(self.deciders))]
        rows = np.empty(len(uses), _OUTCOME)
        for field in ("position", "decider", "by", "accepted", "at"):
            rows[field] = uses[field]
        for field in ("id", "question", "gap_fwd", "gap_rev", "wait_s"):
            rows[field] = self.draws[field][uses["draw"]]
        rows["label"] = self.labels[uses["draw"]]
        rows["labelled_at"] = self.labelled_at[uses["draw"]]
        return rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Labels:
    """The labels of a set's audits by one judge.

    Args:
        calibration: Number of the set.
        fingerprint: Number of the judge's fingerprint.
        uses: All uses.
        draws: All draws.
        labels: A copy of the labels of all draws.
    """

    calibration: int
    fingerprint: int
    uses: Rows
    draws: Rows
    labels: NDArray[np.uint8]

    def rows(self) -> Rows:
        """Gathers the labels; any thread may do it.

        Returns:
            Shape (n,). The audits, oldest first, with the fields `position` and `label` (a code).
        """
        is_set = self.draws["calibration"] == self.calibration
        own = np.flatnonzero(is_set & (self.draws["fingerprint"] == self.fingerprint))
        rows = np.empty(len(own), _LABELED)
        rows["position"] = self.uses["position"][self.draws["first_use"][own]]
        rows["label"] = self.labels[own]
        return rows


class Ledger:
    """All draws and labels up to a position of the log; for the event loop only.

    Args:
        expires_s: Seconds after its last use until which a draw waits for its label.
    """

    def __init__(self, *, expires_s: float) -> None:
        self._expires_s = expires_s
        self.position = 0
        # Text of the last entry, by which another log is noticed.
        self.last_text: str | None = None
        self.alarms = Alarms()
        self._draws = _Table(_DRAW)
        self._uses = _Table(_USE)
        self._events = _Table(_EVENT)
        # Id without the bit of its order -> row of the draw.
        self._rows: dict[int, int] = {}
        # Row of a draw and number of a decider, of the uses after the first one of each draw.
        self._used_again: set[tuple[int, int]] = set()
        self._calibrations = _Numbered[str]()
        self._names = _Numbered[str]()
        self._keys = _Numbered[str]()
        self._deciders = _Numbered[Decider]()
        # Version -> numbers of the deciders that count, in the order of the log.
        self._counted: dict[_Version, list[int]] = {}
        # Number of these that a key has begun.
        self._begun = Counter[tuple[_Version, str]]()
        # Number of applied entries by the name of the set, and the sender of its last label.
        self._changes = Counter[str]()
        self._last_sender = dict[str, str]()

    def __len__(self) -> int:
        return len(self._rows)

    def apply(self, position: int, text: str, entry: Entry | None) -> None:
        """Applies the next entry of the log; an entry of an earlier position changes nothing.

        Repeated uses and labels of unknown draws are ignored, and so is a further use by a decider
        that does not count. Replicas that race for the last place can write such a use.

        Args:
            position: Position of the entry.
            text: The entry as the store has it.
            entry: The entry; None for one that this release cannot parse.
        """
        if position <= self.position:
            return
        self.position, self.last_text = position, text
        if isinstance(entry, Draw):
            self._apply_draw(position, entry)
        elif isinstance(entry, LabelEntry):
            self._apply_label(position, entry)
        elif entry is not None and self.alarms.apply(position, entry):
            self._changes[entry.calibration] += 1
            self._note(position, entry.calibration, before=NO_LABEL)

    def audit(self, identifier: str) -> Audit | None:
        """Returns an audit by its id in either order; None if there is none."""
        row = self._rows.get(drawn_pair(identifier))
        if row is None:
            return None
        draw = self._draws.rows[row]
        return self._audit(draw, self._uses.rows[draw["first_use"]])

    @property
    def calibrations(self) -> list[str]:
        """The names of the sets that have or had draws."""
        return list(self._calibrations)

    def newest(self) -> Audit | None:
        """Returns the audit that was drawn first most recently; None if there is none."""
        draws = self._draws.rows
        return (
            self._audit(draws[-1], self._uses.rows[draws[-1]["first_use"]]) if len(draws) else None
        )

    def knows_use(self, draw: Draw) -> bool:
        """Whether the log has this comparison with this decider already."""
        row, decider = self._rows.get(drawn_pair(draw.id)), self._deciders.number(draw.decider)
        return row is not None and decider is not None and self._has_use(row, decider)

    def has_label(self, identifier: str) -> bool:
        """Whether the pair of an id has a label or is closed."""
        row = self._rows.get(drawn_pair(identifier))
        return row is not None and bool(self._draws.rows[row]["label"] != NO_LABEL)

    def open_pairs(self, keys: Iterable[str], *, now: float) -> set[str]:
        """Returns the given pairs that wait for a label.

        Args:
            keys: Keys of `texts.key_of`; unknown ones are ignored.
            now: Time in seconds since 1970.
        """
        rows = {key: row for key in keys if (row := self._row_of(key)) is not None}
        draws = self._draws.rows[list(rows.values())]
        waits = (draws["label"] == NO_LABEL) & (now <= draws["last_at"] + draws["wait_s"])
        return {key for key, each in zip(rows, waits.tolist(), strict=True) if each}

    def open_ids(
        self, calibration: str | None, *, may_use: Callable[[str], bool], now: float
    ) -> NDArray[np.void]:
        """Returns the ids of open audits as bytes, oldest first; a copy for any thread.

        Args:
            calibration: Only audits of this set; None for all sets.
            may_use: Whether the caller may use a calibration set; audits of others are left out.
            now: Time of the statuses, in seconds since 1970.
        """
        draws = self._draws.rows
        wanted = self._have_status(draws, "open", now) & self._usable(draws, calibration, may_use)
        return draws["id"][np.flatnonzero(wanted)]

    def _usable(
        self, draws: Rows, calibration: str | None, may_use: Callable[[str], bool]
    ) -> NDArray[np.bool_]:
        usable = [number for number, name in enumerate(self._calibrations) if may_use(name)]
        wanted = np.isin(draws["calibration"], usable)
        if calibration is not None:
            wanted &= draws["calibration"] == self._number_of(calibration)
        return wanted

    def _row_of(self, key: str) -> int | None:
        try:
            return self._rows.get(int(key, 16))
        except ValueError:
            # Another program wrote it.
            return None

    def counts(self, decider: Decider) -> bool:
        """Whether the draws by a decider count: those of the first criteria of a version do."""
        return self._deciders.number(decider) in self._counted.get(_version(decider), ())

    def room(self, decider: Decider, key: str | None) -> int:
        """Returns how many further criteria of its version a key may begin.

        Args:
            decider: A decider of the version.
            key: Name of the key; None for all keys together.
        """
        version = _version(decider)
        room = MOST_CRITERIA - len(self._counted.get(version, ()))
        if key is None or key == KEYLESS:
            return room
        return min(room, MOST_CRITERIA_OF_KEY - self._begun[version, key])

    def changes(self, calibration: str) -> int:
        """Returns a number that grows whenever the draws, labels or alarms of a set change."""
        return self._changes[calibration]

    def last_sender(self, calibration: str) -> str:
        """Returns the name of the key that sent the last label of a set, or "service"."""
        return self._last_sender.get(calibration, "service")

    def trail(self, calibration: str, *, before: int | None, limit: int) -> list[TrailPlace]:
        """Returns the places of the entries of a set's trail, newest first.

        Args:
            calibration: Name of the set.
            before: Only entries before this position of the log; None for all of them.
            limit: Most places to return, at least 1.
        """
        events = self._events.rows
        wanted = events["calibration"] == self._number_of(calibration)
        if before is not None:
            wanted &= events["position"] < before
        places = events[wanted][-limit:][::-1]
        return [
            TrailPlace(position=int(place["position"]), before=_LABELS[place["before"]])
            for place in places
        ]

    def criteria(self, calibration: str, write_id: str) -> frozenset[Criterion]:
        """Returns the criteria of a version of a set whose draws count."""
        counted = self._counted.get(_Version(calibration=calibration, write_id=write_id), ())
        return frozenset(self._deciders[number].criterion for number in counted)

    def uses(self, calibration: str, write_id: str) -> Uses:
        """Returns the draws of a version of a set that count, as they are now."""
        counted = self._counted.get(_Version(calibration=calibration, write_id=write_id), ())
        draws = self._draws.rows
        return Uses(
            deciders={number: self._deciders[number] for number in counted},
            keys=dict(enumerate(self._keys)),
            uses=self._uses.rows,
            draws=draws,
            labels=draws["label"].copy(),
            labelled_at=draws["labelled_at"].copy(),
        )

    def audits(self, calibration: str | None = None) -> Iterator[Audit]:
        """Returns the audits of a set, or of all sets, oldest first; any thread may read them."""
        draws = self._draws.rows.copy()
        if calibration is not None:
            draws = draws[draws["calibration"] == self._number_of(calibration)]
        return map(self._audit, draws, self._uses.rows[draws["first_use"]])

    def labels(self, calibration: str, fingerprint: str) -> Labels:
        """Returns the labels of a set's audits by one judge, as they are now."""
        judge, draws = self._names.number(fingerprint), self._draws.rows
        return Labels(
            calibration=self._number_of(calibration),
            fingerprint=-1 if judge is None else judge,
            uses=self._uses.rows,
            draws=draws,
            labels=draws["label"].copy(),
        )

    def view(self, calibration: str) -> SetView:
        """Returns the draws of a set without copying them; any thread may read them."""
        return SetView(
            ledger=self,
            number=self._number_of(calibration),
            deciders=list(self._deciders),
            draws=self._draws.rows,
            uses=self._uses.rows,
        )

    def page(
        self,
        *,
        calibration: str | None,
        status: Status | None,
        after: int,
        limit: int,
        may_use: Callable[[str], bool],
        now: float,
    ) -> AuditPage:
        """Returns audits, oldest first.

        Args:
            calibration: Only audits of this set; None for all sets.
            status: Only audits with this status; None for all of them.
            after: Only audits whose first entry lies after this position of the log.
            limit: Most audits to return, at least 1.
            may_use: Whether the caller may use a calibration set; audits of others are left out.
            now: Time of the statuses, in seconds since 1970.
        """
        draws = self._draws.rows
        wanted = self._usable(draws, calibration, may_use)
        if status is not None:
            wanted &= self._have_status(draws, status, now)
        wanted &= self._uses.rows["position"][draws["first_use"]] > after
        places = np.flatnonzero(wanted)
        shown = draws[places[:limit]]
        uses = self._uses.rows[shown["first_use"]]
        is_last = len(places) <= limit
        return AuditPage(
            audits=map(self._audit, shown, uses),
            at=now,
            next_after=None if is_last else int(uses["position"][-1]),
        )

    def count(self, calibration: str, *, status: Status | None, now: float) -> int:
        """Returns the number of audits of a set, with a status or all of them; see `page`."""
        draws = self._draws.rows
        wanted = draws["calibration"] == self._number_of(calibration)
        if status is not None:
            wanted &= self._have_status(draws, status, now)
        return int(wanted.sum())

    def _have_status(self, draws: Rows, status: Status, now: float) -> NDArray[np.bool_]:
        unlabeled, closed = draws["label"] == NO_LABEL, draws["label"] == CLOSED
        in_time = now <= draws["last_at"] + draws["wait_s"]
        having: Mapping[Status, NDArray[np.bool_]] = {
            "open": unlabeled & in_time,
            "labelled": ~unlabeled & ~closed,
            "closed": closed,
            "expired": unlabeled & ~in_time,
        }
        return having[status]

    def _number_of(self, calibration: str) -> int:
        number = self._calibrations.number(calibration)
        # No row has this number.
        return -2 if number is None else number

    def _audit(self, row: np.void, first_use: np.void) -> Audit:
        draw, use = _fields(row), _fields(first_use)
        label, identifier = _LABELS[draw["label"]], draw["id"].hex()
        return Audit(
            draw=Draw(
                id=identifier,
                fingerprint=self._names[draw["fingerprint"]],
                digest=draw["digest"].hex(),
                question=draw["question"].hex(),
                score=Score.of_numbers(draw["gap_fwd"], draw["gap_rev"], draw["label_mass"]),
                decider=self._deciders[use["decider"]],
                accepted=use["accepted"],
                rate=draw["rate"],
                at=use["at"],
                by=self._keys[use["by"]],
            ),
            position=use["position"],
            expires_at=draw["last_at"] + draw["wait_s"],
            label=label,
            labelled_at=None if label is None else draw["labelled_at"],
            labelled_by=None if label is None else self._names[draw["labelled_by"]],
            label_changes=draw["label_changes"],
        )

    def _apply_draw(self, position: int, draw: Draw) -> None:
        pair, row = drawn_pair(draw.id), self._rows.get(drawn_pair(draw.id))
        counted = self._counted.setdefault(_version(draw.decider), [])
        decider = self._deciders.number(draw.decider)
        if row is not None and len(counted) == MOST_CRITERIA and decider not in counted:
            self._append_entry(position, row, at=draw.at)
            return
        if decider is None:
            decider = self._deciders.add(draw.decider)
        if len(counted) < MOST_CRITERIA and decider not in counted:
            counted.append(decider)
            self._begun[_version(draw.decider), draw.by] += 1
        if row is None:
            gap_fwd, gap_rev, label_mass = draw.score.numbers
            self._rows[pair] = row = self._draws.append(
                id=bytes.fromhex(draw.id),
                digest=bytes.fromhex(draw.digest),
                question=bytes.fromhex(draw.question),
                gap_fwd=gap_fwd,
                gap_rev=gap_rev,
                label_mass=label_mass,
                rate=draw.rate,
                last_at=draw.at,
                wait_s=min(self._expires_s, draw.wait_s or self._expires_s),
                labelled_at=0.0,
                calibration=self._calibrations.add(draw.calibration),
                fingerprint=self._names.add(draw.fingerprint),
                labelled_by=0,
                first_use=len(self._uses.rows),
                entries=0,
                label=NO_LABEL,
                label_changes=0,
            )
        elif self._has_use(row, decider):
            self._append_entry(position, row, at=draw.at)
            return
        else:
            self._used_again.add((row, decider))
            state = self._draws.rows[row]
            state["last_at"] = max(state["last_at"], draw.at)
        self._append_entry(
            position,
            row,
            at=draw.at,
            by=self._keys.add(draw.by),
            decider=decider,
            accepted=draw.accepted,
        )
        self._changes[draw.calibration] += 1

    def _append_entry(
        self,
        position: int,
        row: int,
        *,
        at: float,
        by: int = _NONE,
        decider: int = _NONE,
        accepted: bool = False,
    ) -> None:
        """Appends an entry about the comparison of a row, a use unless it has no decider."""
        self._uses.append(
            position=position,
            at=at,
            draw=row,
            decider=decider,
            by=by,
            accepted=accepted,
        )
        self._draws.rows[row]["entries"] += 1

    def _has_use(self, row: int, decider: int) -> bool:
        first = self._uses.rows[self._draws.rows[row]["first_use"]]
        return bool(first["decider"] == decider) or (row, decider) in self._used_again

    def _apply_label(self, position: int, entry: LabelEntry) -> None:
        row = self._rows.get(drawn_pair(entry.id))
        if row is None:
            return
        self._append_entry(position, row, at=entry.at)
        state = self._draws.rows[row]
        if not (entry.yields and self._is_labeled_by_another(state, entry.by)):
            self._set_label(position, state, entry)

    def _set_label(self, position: int, state: np.void, entry: LabelEntry) -> None:
        is_mirrored = state["id"].tobytes().hex() != entry.id
        label = _LABELS.index(_MIRRORED[entry.label] if is_mirrored else entry.label)
        before, calibration = state["label"], self._calibrations[state["calibration"]]
        if before == NO_LABEL:
            state["labelled_at"] = entry.at
        elif before != label:
            state["label_changes"] += 1
        if label != before and (before != NO_LABEL or label == CLOSED):
            shown = _LABELS[before]
            if is_mirrored and shown is not None:
                shown = _MIRRORED[shown]
            self._note(position, calibration, before=_LABELS.index(shown))
        state["label"] = label
        state["labelled_by"] = self._names.add(entry.by)
        self._changes[calibration] += 1
        self._last_sender[calibration] = entry.by

    def _is_labeled_by_another(self, state: np.void, by: str) -> bool:
        return bool(state["label"] != NO_LABEL) and self._names[state["labelled_by"]] != by

    def _note(self, position: int, calibration: str, *, before: int) -> None:
        """Adds the entry at a position to the trail of a set."""
        self._events.append(
            position=position, calibration=self._calibrations.add(calibration), before=before
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Version:
    """A version of a calibration set."""

    calibration: str
    write_id: str


def _version(decider: Decider) -> _Version:
    return _Version(calibration=decider.criterion.calibration, write_id=decider.write_id)


def _fields(row: np.void) -> dict[str, Any]:
    """Returns the fields of a row as Python objects by their names."""
    assert row.dtype.names is not None
    return dict(zip(row.dtype.names, row.item(), strict=True))


class _Table:
    """A structured array that grows."""

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        self._allocated = np.empty(64, dtype)
        self._count = 0
        self._names = dtype.names or ()

    @property
    def rows(self) -> Rows:
        """The rows so far; a view, whose fields can be set."""
        return self._allocated[: self._count]

    def append(self, **fields: object) -> int:
        """Appends a row of all fields; returns its index."""
        if self._count == len(self._allocated):
            more = np.empty(self._count // 4, self._allocated.dtype)
            self._allocated = np.concatenate([self._allocated, more])
        self._allocated[self._count] = tuple([fields[name] for name in self._names])
        self._count += 1
        return self._count - 1


class _Numbered(Generic[T]):
    """Values by a number, so that a table can hold them."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}
        self._values: list[T] = []

    def __getitem__(self, number: int) -> T:
        return self._values[number]

    def __iter__(self) -> Iterator[T]:
        return iter(self._values)

    def number(self, value: T) -> int | None:
        """Returns the number of a value; None for an unknown one."""
        return self._numbers.get(value)

    def add(self, value: T) -> int:
        """Returns the number of a value, and adds an unknown one."""
        number = self._numbers.setdefault(value, len(self._values))
        if number == len(self._values):
            self._values.append(value)
        return number
