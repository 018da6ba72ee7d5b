"""Cuts bulk input into numbered parts; the same input always gives the same parts."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.core.errors import InvalidRequestError, RequestError, StartupError, UnavailableError
from app.files.columns import check_object, json_object
from app.files.shapes import shape_of
from app.fleet.sources import InputFile


@dataclass(frozen=True, kw_only=True, slots=True)
class PartRow:
    """One comparison as it was read.

    Args:
        place: Row number in the shard, from 0; blank lines do not count.
        value: Fields of the comparison, or any other JSON.
        error: The reason why the row has no comparison; None if it may have one.
    """

    place: int
    value: Any
    error: RequestError | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """One file of the input.

    Args:
        source: The file.
        sha256: SHA-256 of the file's bytes, in hexadecimal digits.
        rows: Number of rows.
    """

    source: InputFile
    sha256: str
    rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Consecutive lines of a JSONL file, which are judged together.

    Args:
        source: The file.
        first: Number of the part's first row in the shard.
        rows: Number of lines that are not blank.
        offset: Start of the part in the file, in bytes.
        size: Size of the part, in bytes.
        sha256: SHA-256 of the part's bytes, in hexadecimal digits.
    """

    source: InputFile
    first: int
    rows: int
    offset: int
    size: int
    sha256: str

    @property
    def shard(self) -> str:
        """Name of the shard."""
        return self.source.name

    def read(self) -> list[PartRow]:
        """Reads the lines and checks their digest; may run on any machine.

        Raises:
            StartupError: The file has changed since it was cut.
            UnavailableError: The file cannot be read now.
        """
        path = self.source.path
        try:
            with path.open("rb") as file:
                file.seek(self.offset)
                text = file.read(self.size)
        except OSError as exc:
            raise UnavailableError(f"{path} cannot be read: {exc.strerror}") from exc
        if hashlib.sha256(text).hexdigest() != self.sha256:
            raise StartupError(f"{path} has changed, or is another file on this machine")
        lines = (line for line in text.split(b"\n") if line.strip())
        return [_line(self.first + i, line, self.source.shape) for i, line in enumerate(lines)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """The whole input; the number of a part is its index."""

    shards: list[Shard]
    parts: list[Part]


def _line(place: int, line: bytes, shape: str) -> PartRow:
    try:
        value = json.loads(line, object_pairs_hook=json_object)
        check_object(value, "this line")
    except InvalidRequestError as exc:
        return PartRow(place=place, value=None, error=exc)
    except (ValueError, RecursionError):
        return PartRow(place=place, value=None, error=InvalidRequestError("this line is not JSON"))
    return (
        _row(place, value, shape) if isinstance(value, dict) else PartRow(place=place, value=value)
    )


def _row(place: int, value: dict[str, Any], shape: str) -> PartRow:
    """Takes the comparison out of the row's columns; other columns are the user's own."""
    row_id = {"id": value["id"]} if "id" in value else {}
    try:
        return PartRow(place=place, value={**shape_of(shape).fields(value), **row_id})
    except RequestError as exc:
        return PartRow(place=place, value=row_id, error=exc)


def cut(sources: Sequence[InputFile], *, rows_per_part: int) -> Cut:
    """Cuts files into parts; reads every byte once.

    Args:
        sources: The files.
        rows_per_part: Largest number of rows in one part.

    Raises:
        StartupError: A file cannot be read.
    """
    shards: list[Shard] = []
    parts: list[Part] = []
    for source in sources:
        try:
            shard, its_parts = _cut_lines(source, rows_per_part)
        except OSError as exc:
            raise StartupError(f"{source.path} cannot be read: {exc.strerror}") from exc
        shards.append(shard)
        parts += its_parts
    return Cut(shards=shards, parts=parts)


def _cut_lines(source: InputFile, rows_per_part: int) -> tuple[Shard, list[Part]]:
    whole, parts, first = hashlib.sha256(), list[Part](), 0
    rows = offset = size = 0
    part = hashlib.sha256()

    def close() -> None:
        nonlocal first, rows, offset, size, part
        if rows:
            parts.append(
                Part(
                    source=source,
                    first=first,
                    rows=rows,
                    offset=offset,
                    size=size,
                    sha256=part.hexdigest(),
                )
            )
        first, rows, offset, size, part = first + rows, 0, offset + size, 0, hashlib.sha256()

    with source.path.open("rb") as lines:
        for line in lines:
            whole.update(line)
            part.update(line)
            size += len(line)
            rows += bool(line.strip())
            if rows == rows_per_part:
                close()
    close()
    return Shard(source=source, sha256=whole.hexdigest(), rows=first), parts
