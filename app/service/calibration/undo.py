"""Undos of changes: how they are written, and how they restore an earlier version of a set.

The store keeps an undo for each change. Restoring starts from the current set and takes back the
newest changes first, so the trail need not begin with the first version of the set. Each undo names
the versions before and after its change. So a change without an entry in the trail is detected.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from app.core.calibration import Calibration
from app.core.errors import StoreCorruptError, VersionNotFoundError
from app.core.examples import EMPTY, Draft, Examples
from app.off_loop import off_loop
from app.ports import CalibrationStore, Version
from app.service.calibration.codec import (
    digest_of,
    written_release,
    written_runtimes,
)
from app.service.calibration.parsing import (
    PARSE_ERRORS,
    parse_count,
    parse_example,
    parse_text,
    parse_texts,
)

# Number of undos in memory at once. An undo is as large as its change.
_PAGE = 16
# Examples that are written in one call.
_PIECE = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class _Undo:
    """A parsed undo of one change.

    Args:
        made: The version that the change made; None for a deletion.
        possible: False if the change deleted a set that could not be read.
        before: The set before the change, without its examples; None if there was none.
        put: Examples to put in, in order to restore the examples before the change.
        take: Digests of the examples to remove before that.
        digest: Content digest of the set before the change; None if there was none.
    """

    made: Version | None
    possible: bool
    before: Calibration | None
    put: Examples
    take: tuple[str, ...]
    digest: str | None


def version_of(calibration: Calibration | None) -> Version | None:
    """Returns the version of a calibration; None without a calibration."""
    return Version(calibration.write_id, calibration.version) if calibration else None


def examples_of(calibration: Calibration | None) -> Examples:
    """Returns the examples of a calibration; no examples without a calibration."""
    return calibration.table if calibration else EMPTY


def undo_of(before: Calibration | None, after: Calibration | None) -> str:
    """Writes the undo of a change, as JSON.

    Args:
        before: The set before the change; None if there was none.
        after: The set after the change; None for a deletion. If both sets are None, the change
            deleted a set that could not be read, and cannot be undone.
    """
    undo = {"made": version_of(after), "before": version_of(before)}
    if before is None:
        return _json({**undo, "possible": after is not None})
    content = {
        "judge": before.judge,
        "fingerprint": before.fingerprint,
        **written_release(before),
        **written_runtimes(before),
        "digest": digest_of(before),
        "possible": True,
    }
    put, take = before.table.since(examples_of(after))
    scores = ((digest, score.fields) for digest, score in put.pairs())
    # One call for all of 300,000 examples would stop all other threads for half a second.
    pieces = iter(lambda: dict(islice(scores, _PIECE)), {})
    written = ",".join(_json(piece)[1:-1] for piece in pieces)
    return f'{_json(undo | content)[:-1]},"put":{{{written}}},"take":{_json(take)}}}'


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


async def restored(
    store: CalibrationStore, number: int, *, now: Calibration | None, blank: Calibration
) -> Calibration:
    """Returns a set as it was at a version, by taking back all later changes.

    Args:
        store: The store that keeps the trail.
        number: Number of the version.
        now: The current set; None if there is none.
        blank: A calibration with the name of the set, and with this service's values of the fields
            that undos do not have.

    Raises:
        VersionNotFoundError: There is no such version, or the trail does not lead to it.
        StoreCorruptError: The trail holds an undo that this version did not write.
    """
    state, before = now, None
    while state is None or state.version != number:
        undos = await store.undos(blank.name, before=before, limit=_PAGE)
        if not undos:
            raise _no_such_version(blank.name, number)
        # In a thread, because the undo of a deletion holds a whole set.
        state = await off_loop(_applied, state, _steps(state, undos, number, now or blank))
        before = min(undos)
    return state


async def seen_until(
    store: CalibrationStore, version: Version, *, now: Calibration | None, blank: Calibration
) -> set[str]:
    """Returns the digests of all examples that a set had in any version up to one.

    Arguments and errors are those of `restored`. A version that another write made is not found.
    """
    state = await restored(store, version.number, now=now, blank=blank)
    if state.write_id != version.write_id:
        raise _no_such_version(blank.name, version.number)
    seen, before = set(state.examples), version.number + 1
    while undos := await store.undos(blank.name, before=before, limit=_PAGE):
        seen |= await off_loop(_mentioned, undos, blank)
        before = min(undos)
    return seen


def _mentioned(undos: Mapping[int, str], blank: Calibration) -> set[str]:
    """Returns the digests of all examples that some changes added, changed or removed."""
    mentioned = set[str]()
    for number, text in undos.items():
        if not text:
            raise _unknown_before(blank.name, number, number)
        undo = _parsed(number, text, blank)
        mentioned.update(digest for digest, _ in undo.put.pairs())
        mentioned.update(undo.take)
    return mentioned


def _steps(
    state: Calibration | None, undos: Mapping[int, str], target: int, blank: Calibration
) -> Iterator[tuple[int, _Undo]]:
    """Parses and checks undos, newest first, until the one that restores the target version.

    Args:
        state: The set after the newest of these changes.
        undos: Number of the change -> undo, newest first.
        target: Number of the version to restore.
        blank: A calibration with the name of the set.

    Raises:
        VersionNotFoundError: The undos do not lead to the target.
        StoreCorruptError: An undo was not written by this version.
    """
    made = version_of(state)
    for number, text in undos.items():
        if number < target:
            raise _no_such_version(blank.name, target)
        if not text:
            raise _unknown_before(blank.name, target, number)
        undo = _parsed(number, text, blank)
        if undo.made is None and number == target:
            raise VersionNotFoundError(
                f"version {target} of calibration {blank.name!r} is its deletion. Name an earlier "
                "version to restore the set"
            )
        if not undo.possible or undo.made != made:
            raise _unknown_before(blank.name, target, number)
        yield number, undo
        made = version_of(undo.before)
        if made is not None and made.number == target:
            return


def _parsed(number: int, text: str, blank: Calibration) -> _Undo:
    """Parses one undo.

    Args:
        number: Number of the change.
        text: The stored JSON.
        blank: Supplies the fields of the calibration that the undo does not have.

    Raises:
        StoreCorruptError: The text is not an undo that this version wrote.
    """
    try:
        fields = _fields(text)
        before = None
        if fields["before"] is not None:
            version = Version(*fields["before"])
            before = replace(
                blank,
                write_id=parse_text(version.write_id),
                version=parse_count(version.number),
                judge=parse_text(fields["judge"]),
                fingerprint=parse_text(fields["fingerprint"]),
                release=parse_text(fields["release"]) if "release" in fields else None,
                runtimes=parse_texts(fields.get("runtimes", "[]")),
            )
        return _Undo(
            made=Version(*fields["made"]) if fields["made"] else None,
            possible=bool(fields["possible"]),
            before=before,
            put=fields["put"] if before else EMPTY,
            take=fields["take"] if before else (),
            digest=fields["digest"] if before else None,
        )
    except PARSE_ERRORS as exc:
        raise _not_ours(blank.name, number) from exc


def _fields(text: str) -> dict[str, Any]:
    """Parses the fields of an undo; `put` becomes `Examples` and `take` a tuple of digests."""
    # The parser is one call, too, but other threads can run when it calls Python for a number.
    fields: dict[str, Any] = json.loads(text, parse_float=lambda digits: float(digits))
    if "put" in fields:
        draft = Draft()
        for digest, score in fields["put"].items():
            draft.set(parse_text(digest), parse_example(score))
        fields["put"] = draft.done()
    if "take" in fields:
        fields["take"] = tuple(map(parse_text, fields["take"]))
    return fields


def _applied(state: Calibration | None, steps: Iterable[tuple[int, _Undo]]) -> Calibration | None:
    """Returns the set before the oldest of these changes; the given set is not modified.

    Args:
        state: The set after the newest of these changes; None if there is none.
        steps: Numbers and undos of consecutive changes, newest first; at least one.

    Raises:
        StoreCorruptError: An undo does not match the examples, or leads to another content than
            the set had.
    """
    # One draft for all steps. A copy for each step would cost changes times examples.
    draft = Draft(examples_of(state))
    name = ""
    last: _Undo | None = None
    for number, last in steps:
        if last.before is None:
            draft.clear()
            continue
        name = last.before.name
        try:
            for digest in last.take:
                draft.take(digest)
        except KeyError as exc:
            raise _not_ours(name, number) from exc
        draft.put(last.put)
    assert last is not None, "there is at least one undo"
    if last.before is None:
        return None
    restored = replace(last.before, examples=draft.done())
    if last.digest != digest_of(restored):
        raise StoreCorruptError(
            f"the trail of calibration {name!r} does not lead to the version {restored.version} "
            "that the set had. This version and earlier versions cannot be restored"
        )
    return restored


def _not_ours(name: str, number: int) -> StoreCorruptError:
    return StoreCorruptError(
        f"this version did not write the undo of change {number} of calibration {name!r}. Versions "
        "before this change cannot be restored"
    )


def _no_such_version(name: str, number: int) -> VersionNotFoundError:
    return VersionNotFoundError(
        f"calibration {name!r} has no version {number}, or its trail does not reach that version: "
        f"GET /calibrations/{name}/versions lists the versions"
    )


def _unknown_before(name: str, number: int, change: int) -> VersionNotFoundError:
    return VersionNotFoundError(
        f"version {number} of calibration {name!r} can no longer be restored: the trail does not "
        f"say how the set was before change {change}"
    )
