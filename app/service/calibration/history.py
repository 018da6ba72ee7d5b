"""The trail of a calibration set: who changed what, and the way back to any version.

A store keeps for every change a record, which is shown, and an undo, which is applied. Undoing
leads backwards from what is there, so it needs no trail from the set's beginning; each undo names
the versions on both sides of its change, so a change that is not in the trail is noticed, as from
a replica of an older release.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple

from app.core.calibration import Calibration
from app.core.errors import StoreCorruptError, VersionNotFoundError
from app.core.examples import EMPTY, Draft, Examples
from app.ports import CalibrationStore, Revision, Undo, Version
from app.service.calibration.codec import (
    count,
    digest_of,
    finite,
    label_noise,
    labelled_score,
    text,
    threshold_field,
)
from app.service.calibration.json_pieces import JsonReader, array_pieces, object_pieces
from app.service.off_loop import off_loop

Action = Literal["calibrate", "delete", "rollback"]
Thresholds = Mapping[str, float | None]

# What reading something raises that this version did not write.
_UNREADABLE = (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError)

# An undo is as large as its change: a page of them is what is held in memory at once.
_PAGE = 16


class Counts(NamedTuple):
    """What a change did to the examples.

    Args:
        added: That were new.
        updated: That were there, as the caller was told.
        ties: Without a side, left out.
        removed: That were there; None where the set could not be read.
        failed: That could not be read or judged.
    """

    added: int = 0
    updated: int = 0
    ties: int = 0
    removed: int | None = 0
    failed: int = 0


class Change(NamedTuple):
    """What is recorded of a change besides its outcome.

    Args:
        action: What was asked for.
        by: Name of the key that asked, or "service".
        at: When, in UTC.
        counts: What it did to the examples.
        batch_digest: As `core.fingerprint.batch_digest`; None without a batch.
        rolled_back_to: The version that was asked for; None but for a rollback.
    """

    action: Action
    by: str
    at: datetime
    counts: Counts
    batch_digest: str | None = None
    rolled_back_to: int | None = None


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """One entry of the trail, as it is shown and stored.

    Args:
        version: That the change made; a deletion takes a number too.
        write_id: Of that version; None for a deletion.
        action: What was asked for: an `Action`, or what a later release calls one of its own.
        at: UTC, ISO 8601, to the second.
        by: Name of the key that asked, or "service".
        batch_digest: As `core.fingerprint.batch_digest`; None without a batch.
        added: As in `Counts`, like the next four.
        updated: See there.
        ties: See there.
        removed: See there.
        failed: See there.
        n: Examples after the change.
        label_noise: After the change; None for a deletion.
        min_label_mass: The setting of the service that made the change, with which the thresholds
            of both sides were computed; None where a deleted set could not be read.
        judge: Whose set it is, or was; None where a deleted set could not be read.
        fingerprint: Of that judge; None likewise.
        rolled_back_to: The version that was restored; None but for a rollback.
        thresholds_before: "guarantee:alpha" -> lambda_hat in nats, None if infeasible; None where
            there was no set, or none that could be read.
        thresholds_after: The same after the change; None for a deletion.
    """

    version: int
    write_id: str | None
    action: str
    at: str
    by: str
    batch_digest: str | None
    added: int
    updated: int
    ties: int
    removed: int | None
    failed: int
    n: int
    label_noise: float | None
    min_label_mass: float | None
    judge: str | None
    fingerprint: str | None
    rolled_back_to: int | None
    thresholds_before: Thresholds | None
    thresholds_after: Thresholds | None

    @classmethod
    def read(cls, name: str, stored: str) -> "ChangeRecord":
        """Reads an entry; fields of a later release are left out.

        Raises:
            StoreCorruptError: It is none, or a field is not what this version could show.
        """
        try:
            # Entries from before it was written down were made without it.
            found = {"min_label_mass": 0.0, **json.loads(stored)}
            return cls(**{field: read(found[field]) for field, read in _READERS.items()})
        except _UNREADABLE as exc:
            raise StoreCorruptError(
                f"the trail of calibration {name!r} holds an entry that this version did not write"
            ) from exc

    @property
    def text(self) -> str:
        """As it is stored."""
        return json.dumps(asdict(self), separators=(",", ":"))


def _optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _read_thresholds(value: Any) -> Thresholds:
    if not isinstance(value, dict):
        raise TypeError("no thresholds")
    return {text(name): _optional(finite)(threshold) for name, threshold in value.items()}


# How each field of a `ChangeRecord` is read.
_READERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("version", "added", "updated", "ties", "failed", "n"), count),
    **dict.fromkeys(("action", "at", "by"), text),
    **dict.fromkeys(("write_id", "batch_digest", "judge", "fingerprint"), _optional(text)),
    **dict.fromkeys(("removed", "rolled_back_to"), _optional(count)),
    "label_noise": _optional(label_noise),
    "min_label_mass": _optional(finite),
    **dict.fromkeys(("thresholds_before", "thresholds_after"), _optional(_read_thresholds)),
}


def record_of(
    number: int, before: Calibration | None, after: Calibration | None, change: Change
) -> ChangeRecord:
    """Describes a change.

    Args:
        number: Of the change.
        before: The set; None if there was none, or none that could be read.
        after: The set; None if the change deletes it.
        change: The rest.
    """
    subject = after or before
    return ChangeRecord(
        version=number,
        write_id=after.write_id if after else None,
        action=change.action,
        at=change.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        by=change.by,
        batch_digest=change.batch_digest,
        **change.counts._asdict(),
        n=after.n if after else 0,
        label_noise=after.label_noise if after else None,
        min_label_mass=subject.min_label_mass if subject else None,
        judge=subject.judge if subject else None,
        fingerprint=subject.fingerprint if subject else None,
        rolled_back_to=change.rolled_back_to,
        thresholds_before=_thresholds(before) if before else None,
        thresholds_after=_thresholds(after) if after else None,
    )


def _thresholds(calibration: Calibration) -> Thresholds:
    return {
        threshold_field(row.guarantee, row.alpha): row.threshold if row.feasible else None
        for row in calibration.standard_rows
    }


class Difference(NamedTuple):
    """What makes one state of the examples another.

    Args:
        put: Examples that are new, or have another score or label.
        take: Digests of those that are gone.
    """

    put: Examples
    take: tuple[str, ...]

    @classmethod
    def between(cls, before: Calibration | None, after: Calibration | None) -> "Difference":
        """What makes `before` `after`; None has no examples."""
        old = before.table if before else EMPTY
        new = after.table if after else EMPTY
        return cls(*new.since(old))


def undo_of(before: Calibration | None, after: Calibration | None) -> str:
    """Writes what makes `after` `before` again.

    Args:
        before: The set; None if there was none.
        after: The set; None if the change deletes it. Where both are None, a set was deleted that
            could not be read: that cannot be undone.
    """
    undo = {"made": version_of(after), "before": version_of(before)}
    if before is None:
        return json.dumps({**undo, "possible": after is not None}, separators=(",", ":"))
    content = {
        "judge": before.judge,
        "fingerprint": before.fingerprint,
        "label_noise": before.label_noise,
        "digest": digest_of(before),
        "possible": True,
    }
    put, take = Difference.between(after, before)
    short = json.dumps(undo | content, separators=(",", ":"))[:-1]
    # Plain tuples, which the garbage collector lets go of at once.
    scores = ((digest, tuple(score)) for digest, score in put.pairs())
    return "".join((short, ',"put":', *object_pieces(scores), ',"take":', *array_pieces(take), "}"))


def revision_of(
    before: Calibration | None, after: Calibration | None, record: ChangeRecord
) -> Revision:
    """The entry of the trail; arguments as of `record_of`."""
    return Revision(record.version, record.text, undo_of(before, after))


def version_of(calibration: Calibration | None) -> Version | None:
    """Which write made a set; None if there is none."""
    return Version(calibration.write_id, calibration.version) if calibration else None


async def as_it_was(
    store: CalibrationStore, number: int, *, now: Calibration | None, blank: Calibration
) -> Calibration:
    """A set as it was at a version, by taking back what was changed since.

    Args:
        store: With the trail.
        number: Of the version.
        now: The set as it is; None if there is none.
        blank: A calibration of the set's name, for what a trail does not say.

    Raises:
        VersionNotFoundError: There is no such version, or the trail does not lead to it.
        StoreCorruptError: The trail holds something that this version did not write.
    """
    state, before = now, None
    while state is None or state.version != number:
        undos = await store.undos(blank.name, before=before, limit=_PAGE)
        if not undos:
            raise _no_such_version(blank.name, number)
        # In a thread: taking a deletion back reads a whole set.
        state = await off_loop(_walked, state, undos, number, now or blank)
        before = undos[-1].number
    return state


def _walked(
    state: Calibration | None, undos: Sequence[Undo], target: int, blank: Calibration
) -> Calibration | None:
    """Takes changes back, up to all of them, until the target is there."""
    # One for all of them, changed in place: a copy for each would cost changes times examples.
    draft = Draft(state.table if state else None)
    digest: str | None = None
    for undo in undos:
        if undo.number < target:
            raise _no_such_version(blank.name, target)
        state, digest = _undone(state, draft, undo, target, blank)
        if state is not None and state.version == target:
            break
    if state is None:
        return None
    state = replace(state, examples=draft.done())
    # Undos from before it was noted have none.
    if digest not in (None, digest_of(state)):
        raise StoreCorruptError(
            f"the trail of calibration {blank.name!r} does not lead to the version "
            f"{state.version} that was there; no version before it can be restored"
        )
    return state


def _undone(
    state: Calibration | None, draft: Draft, undo: Undo, target: int, blank: Calibration
) -> tuple[Calibration | None, str | None]:
    """The state before a change, but for its examples, and the digest of that state.

    The draft has the examples after the change, and then those before it.
    """
    if not undo.text:
        raise _cannot_be_told(blank.name, target, undo.number)
    try:
        found = _read_undo(undo.text)
        made = Version(*found["made"]) if found["made"] else None
        if made is None and undo.number == target:
            raise VersionNotFoundError(
                f"version {target} of calibration {blank.name!r} is its deletion: name an earlier "
                "one to have the set back"
            )
        if not found["possible"] or made != version_of(state):
            raise _cannot_be_told(blank.name, target, undo.number)
        if found["before"] is None:
            draft.clear()
            return None, None
        before = Version(*found["before"])
        for digest in found["take"]:
            draft.take(digest)
        draft.put(found["put"])
        content = replace(
            blank,
            write_id=text(before.write_id),
            version=count(before.number),
            judge=text(found["judge"]),
            fingerprint=text(found["fingerprint"]),
            label_noise=label_noise(found["label_noise"]),
        )
        return content, found.get("digest")
    except _UNREADABLE as exc:
        raise StoreCorruptError(
            f"the undo of change {undo.number} of calibration {blank.name!r} is not one that this "
            "version wrote; no version before it can be restored"
        ) from exc


def _read_undo(stored: str) -> dict[str, Any]:
    """The fields of an undo, with `put` as `Examples` and `take` as a list."""
    reader = JsonReader(stored)
    found: dict[str, Any] = {}
    for field in reader.members():
        if field == "put":
            draft = Draft()
            for digest in reader.members():
                draft.set(text(digest), labelled_score(reader.value()))
            found[field] = draft.done()
        elif field == "take":
            found[field] = list(reader.elements())
        else:
            found[field] = reader.value()
    reader.end()
    return found


def _no_such_version(name: str, number: int) -> VersionNotFoundError:
    return VersionNotFoundError(
        f"calibration {name!r} has no version {number}, or none that its trail reaches: GET "
        f"/calibrations/{name}/versions lists them"
    )


def _cannot_be_told(name: str, number: int, change: int) -> VersionNotFoundError:
    return VersionNotFoundError(
        f"what version {number} of calibration {name!r} was cannot be told any more: the trail "
        f"does not say what was there before change {change}"
    )
