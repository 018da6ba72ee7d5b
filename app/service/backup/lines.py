"""The file of a backup: a line that describes it, a line for each part, and a line that closes it.

All lines are JSON in ASCII. The first one has the number of the format, the release and the time,
the last one has counts and the SHA-256 of all lines before it. So a file that was cut off or
changed is refused. The texts of the store are not parsed: a later release reads them as it reads
the store itself.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import IO, Any

from app.core.errors import InvalidRequestError
from app.ports import (
    AuditsPart,
    ChangePart,
    SecretPart,
    SetPart,
    StoredCalibration,
    StoredChange,
    StorePart,
    Version,
)

# The first field of the first line, with the version of the format.
MARK = "scope_judge_backup"
_FORMAT = 1
_READ_BYTES = 2**20


@dataclass(slots=True)
class Counts:
    """Numbers of sets, of changes in their trails, and of entries of the log of audits."""

    sets: int = 0
    changes: int = 0
    audits: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is no set, no trail and no audit."""
        return not (self.sets or self.changes or self.audits)

    @property
    def entries(self) -> int:
        """Number of changes and audits."""
        return self.changes + self.audits

    def add(self, part: StorePart) -> int:
        """Counts one part; returns how many entries it holds."""
        before = self.entries
        match part:
            case SetPart():
                self.sets += 1
            case ChangePart():
                self.changes += 1
            case AuditsPart():
                self.audits += len(part.entries)
        return self.entries - before


@dataclass(frozen=True, kw_only=True, slots=True)
class Described:
    """A complete backup, as its first and its last line describe it.

    Args:
        release: Release that wrote the backup.
        at: Time at which the backup began, in UTC.
        counts: Numbers of its parts.
    """

    release: str
    at: str
    counts: Counts


class BackupWriter:
    """Writes the lines of a backup.

    Args:
        file: The file, which is empty.
        release: Release of this program.
        at: Time at which the backup begins, in UTC.
    """

    def __init__(self, file: IO[bytes], *, release: str, at: str) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.counts = Counts()
        self._write({MARK: _FORMAT, "release": release, "at": at})

    def add(self, part: StorePart) -> int:
        """Writes one part; returns how many entries it holds."""
        self._write(_fields_of(part))
        return self.counts.add(part)

    def close(self) -> None:
        """Writes the last line, without which the file is not a backup."""
        counts = {field.name: getattr(self.counts, field.name) for field in fields(Counts)}
        self._write({"end": counts, "sha256": self._digest.hexdigest()})

    def _write(self, described: Mapping[str, Any]) -> None:
        line = json.dumps(described, separators=(",", ":")).encode("ascii") + b"\n"
        self._digest.update(line)
        self._file.write(line)


def check(file: IO[bytes], name: str) -> Described:
    """Reads a file to its end and checks that it is a complete backup.

    Args:
        file: The file, at its beginning.
        name: Name of the file, for the errors.

    Raises:
        InvalidRequestError: The file is not a backup, has another format, or is not complete.
    """
    first = file.readline(_READ_BYTES)
    described = _object(first)
    if MARK not in described:
        raise InvalidRequestError(
            f"{name} is not a backup of a store, which `scope-judge backup` writes. "
            "`scope-judge sets import` reads exported sets"
        )
    if described[MARK] != _FORMAT:
        raise InvalidRequestError(
            f"{name} is a backup of format {described[MARK]}, and this release reads format "
            f"{_FORMAT}: use the release that wrote it ({described.get('release')})"
        )
    digest, last = hashlib.sha256(), first
    for line in file:
        digest.update(last)
        last = line
    end = _object(last)
    if end.get("sha256") != digest.hexdigest() or not isinstance(end.get("end"), dict):
        raise InvalidRequestError(
            f"{name} was cut off or changed: its last line does not match the lines before it. "
            "Use another backup"
        )
    return Described(
        release=str(described["release"]), at=str(described["at"]), counts=Counts(**end["end"])
    )


def parts_in(file: Iterable[bytes]) -> Iterator[StorePart]:
    """Yields the parts of a backup, whose lines passed `check`.

    Raises:
        InvalidRequestError: A line is not a part that this release knows.
    """
    for number, line in enumerate(file, 1):
        described = _object(line)
        if MARK in described or "end" in described:
            continue
        try:
            part = _part_of(described)
        except (KeyError, TypeError, ValueError) as exc:
            raise InvalidRequestError(
                f"line {number} of the backup is not a part that this release knows"
            ) from exc
        yield part


def _object(line: bytes) -> dict[str, Any]:
    """Returns the object of a line; {} if there is none."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _fields_of(part: StorePart) -> dict[str, Any]:
    match part:
        case ChangePart(name=name, change=change):
            own = {"number": change.number, "record": change.record, "undo": change.undo}
            return {"part": "change", "name": name, **own}
        case SetPart(name=name, state=state):
            return {
                "part": "set",
                "name": name,
                "write_id": state.version.write_id,
                "version": state.version.number,
                "meta": dict(state.meta),
                "thresholds": dict(state.thresholds),
                "examples": dict(state.examples),
            }
        case SecretPart(secret=secret):
            return {"part": "secret", "secret": secret.hex()}
        case AuditsPart(entries=entries):
            return {"part": "audits", "entries": list(entries)}


def _part_of(described: Mapping[str, Any]) -> StorePart:
    match described["part"]:
        case "change":
            change = StoredChange(
                number=described["number"], record=described["record"], undo=described["undo"]
            )
            return ChangePart(name=described["name"], change=change)
        case "set":
            state = StoredCalibration(
                version=Version(described["write_id"], described["version"]),
                meta=described["meta"],
                examples=described["examples"],
                thresholds=described["thresholds"],
            )
            return SetPart(name=described["name"], state=state)
        case "secret":
            return SecretPart(secret=bytes.fromhex(described["secret"]))
        case "audits":
            entries = [(position, text) for position, text in described["entries"]]
            return AuditsPart(entries=entries)
    raise ValueError(described["part"])
