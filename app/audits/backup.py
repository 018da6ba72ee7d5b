"""The file of a backup: a line for each set with its versions and trail, lines of audits, an end.

All lines are JSON in ASCII. The first has the number of the format, the release and the time, the
last one the SHA-256 of all lines before it, so that a file that was cut off is refused.
"""

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from typing import IO, Any

from app.core.errors import InvalidRequestError, StoreUnavailableError
from app.ports import KEPT_VERSIONS, Entry, Head, Store
from app.sets.codec import thresholds_in

_MARK, _FORMAT = "scope_judge_backup", 3
_AT_ONCE = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(kw_only=True, slots=True)
class Backup:
    """Summary of a backup: its release, its time (UTC), and how many sets and entries it holds."""

    release: str
    at: str
    sets: int = 0
    audits: int = 0


async def write_backup(store: Store, file: IO[bytes], *, release: str, at: str) -> Backup:
    """Writes all that a store had when this began, and perhaps later changes, too.

    The audits are read last: their log knows all versions that the sets have.
    """
    backup, digest = Backup(release=release, at=at), hashlib.sha256()

    def put(fields: dict[str, Any]) -> None:
        line = json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"
        digest.update(line)
        file.write(line)

    put({_MARK: _FORMAT, "release": release, "at": at})
    for name in await store.names(deleted=True):
        put({"set": name, **await _set_of(store, name)})
        backup.sets += 1
    if await store.last_audit():
        put({"secret": (await store.secret()).hex()})
    while entries := await store.audits(after=backup.audits, limit=_AT_ONCE):
        put({"audits": [text for _, text in entries]})
        backup.audits = entries[-1][0]
    put({"sha256": digest.hexdigest()})
    return backup


async def _set_of(store: Store, name: str) -> dict[str, Any]:
    """The trail of a set up to its present head, and the versions that are kept."""
    while True:
        trail: list[Entry] = []
        while page := await store.trail(
            name, before=trail[-1].head.number if trail else None, limit=_AT_ONCE
        ):
            trail += page
        blobs: dict[int, str] = {}
        for entry in trail[:KEPT_VERSIONS]:
            blob = await store.read(name, entry.head.number)
            if blob is not None:
                blobs[entry.head.number] = base64.b64encode(blob).decode("ascii")
        newest = trail[0].head
        # Otherwise many writes came between the two reads.
        if not newest.write_id or newest.number in blobs:
            return {
                "trail": [[*entry.head, entry.record] for entry in reversed(trail)],
                "versions": blobs,
            }


def check_backup(file: IO[bytes], name: str) -> Backup:
    """Reads a file to its end and checks that it is complete and all its names are valid.

    Raises:
        InvalidRequestError: It is not a backup, has another format or a bad name, or was cut off.
    """
    first = _fields(last := file.readline(2**20))
    if first.get(_MARK) != _FORMAT:
        raise InvalidRequestError(
            f"{name} is not a backup of format {_FORMAT}, which `scope-judge backup` of this "
            "release writes. `scope-judge sets import` reads exported sets"
        )
    backup = Backup(release=str(first["release"]), at=str(first["at"]))
    digest = hashlib.sha256()
    for line in file:
        digest.update(last)
        fields = _fields(last := line)
        backup.audits += len(fields.get("audits", ()))
        if "set" in fields:
            backup.sets += 1
            if not _NAME.fullmatch(str(fields["set"])):
                raise InvalidRequestError(f"{name} has a set whose name is not valid")
    if _fields(last).get("sha256") != digest.hexdigest():
        raise InvalidRequestError(
            f"{name} was cut off or changed: its last line does not match the lines before it. "
            "Use another backup"
        )
    return backup


async def is_empty(store: Store) -> bool:
    """Whether a store has no set, no trail and no audit."""
    return not (await store.names(deleted=True) or await store.last_audit())


async def restore_backup(store: Store, file: IO[bytes]) -> None:
    """Fills an empty store from a file that passed `check_backup`, by ordinary writes.

    Raises:
        StoreUnavailableError: Another program wrote to the store meanwhile.
    """
    for fields in map(_fields, file):
        if "set" in fields:
            await _restore_set(store, fields)
        elif "secret" in fields:
            await store.put_secret(bytes.fromhex(fields["secret"]))
        elif "audits" in fields:
            await store.append_audits(fields["audits"])


async def _restore_set(store: Store, fields: dict[str, Any]) -> None:
    before: Head | None = None
    for write_id, number, record in fields["trail"]:
        kept = fields["versions"].get(str(number))
        blob = None if kept is None else base64.b64decode(kept)
        # Only the trail needs the versions that are not kept any more.
        head = Head("" if blob is None else write_id, number)
        _check_alone(
            await store.write(
                fields["set"],
                head,
                blob=blob,
                thresholds={} if blob is None else thresholds_in(blob),
                record=record,
                expected=before,
            )
        )
        before = head


def _check_alone(succeeded: bool) -> None:
    if not succeeded:
        raise StoreUnavailableError("another program writes to the store: stop the services")


def _fields(line: bytes) -> dict[str, Any]:
    """The object of a line; {} if there is none."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
