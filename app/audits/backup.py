"""The file of a backup: a line for each set with its versions and trail, lines of audits, an end.

All lines are JSON in ASCII. The first has the number of the format, the release and the time, the
last one the SHA-256 of all lines before it, so that a file that was cut off is refused.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from app.core.errors import InvalidRequestError, StoreUnavailableError
from app.ports import KEPT_VERSIONS, Entry, Head, RowsChange, Store, StoredRow
from app.sets.codec import thresholds_in

_MARK, _FORMAT = "scope_judge_backup", 5
_AT_ONCE = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(kw_only=True, slots=True)
class Backup:
    """Summary of a backup: its release, its time (UTC), and its numbers of sets and audit rows."""

    release: str
    at: str
    sets: int = 0
    audits: int = 0

    @property
    def amount(self) -> str:
        """The content of the backup in words."""
        return f"calibration sets: {self.sets:,}, rows of audits: {self.audits:,}"


async def write_backup(store: Store, file: IO[bytes], *, release: str, at: str) -> Backup:
    """Writes all that a store had when this began, and perhaps later changes, too.

    The audits are read last: their draws know all versions that the sets have.
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
    states = await store.audit_states()
    if states:
        put({"secret": (await store.secret()).hex()})
    for name in states:
        await _put_audits(store, name, put, backup)
    put({"sha256": digest.hexdigest()})
    return backup


async def _put_audits(
    store: Store, name: str, put: Callable[[dict[str, Any]], None], backup: Backup
) -> None:
    """Writes the audits of a set. A row that changes meanwhile is written twice: the later counts.

    The texts of open audits stay out of a backup.
    """
    after = 0
    while rows := await store.audits(name, after=after, limit=_AT_ONCE):
        put({"of": name, "audits": [row._replace(text=_without_texts(row.text)) for row in rows]})
        backup.audits += len(rows)
        after = rows[-1].position


def _without_texts(row: str) -> str:
    fields = json.loads(row)
    if "has_texts" in fields:
        fields["has_texts"] = False
    return json.dumps(fields, separators=(",", ":"))


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
    return not (await store.names(deleted=True) or await store.audit_states())


async def restore_backup(store: Store, file: IO[bytes]) -> None:
    """Fills an empty store from a file that passed `check_backup`, by ordinary writes.

    Raises:
        StoreUnavailableError: Another program wrote to the store meanwhile.
    """
    # Key -> position, of the rows of each set.
    known = dict[str, dict[str, int]]()
    for fields in map(_fields, file):
        if "set" in fields:
            await _restore_set(store, fields)
        elif "secret" in fields:
            await store.put_secret(bytes.fromhex(fields["secret"]))
        elif "audits" in fields:
            name, rows = fields["of"], [StoredRow(*row) for row in fields["audits"]]
            places = known.setdefault(name, {})
            change = RowsChange(rows=rows, expected=places)
            _check_alone(await store.write_audits(name, change) is not None)
            places |= {row.key: row.position for row in rows}


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
