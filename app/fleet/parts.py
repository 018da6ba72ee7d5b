"""Cuts bulk input into numbered parts; the same input always gives the same parts."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from app.core.errors import InvalidRequestError, RequestError, StartupError, UnavailableError
from app.files.reading import is_parquet
from app.files.shapes import shape_of
from app.fleet.sources import Source
from app.wire.requests import JudgeIn

_FIELDS = frozenset(JudgeIn.model_fields)
# A null in these columns of a table means that the field is missing; JSON can tell them apart.
_NO_NULLS = _FIELDS - {"question", "response_a", "response_b"}
# The shape whose columns are the fields themselves.
_OWN_NAMES = "pairs"


class Row(NamedTuple):
    """One comparison as it was read.

    Args:
        place: Row number in the shard, from 0; blank lines do not count.
        value: Fields of the comparison, or any other JSON.
        error: The reason why the row has no comparison; None if it may have one.
    """

    place: int
    value: Any
    error: RequestError | None = None


class Part(Protocol):
    """Consecutive rows of one shard, which are judged together."""

    @property
    def shard(self) -> str:
        """Name of the shard."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    def read(self) -> list[Row]:
        """Reads the rows; may run on any machine.

        Raises:
            StartupError: The file has changed since it was cut.
            UnavailableError: The file cannot be read now.
        """


class Shard(NamedTuple):
    """One file of the input.

    Args:
        source: The file.
        sha256: SHA-256 of the file's bytes, in hexadecimal digits.
        rows: Number of rows.
    """

    source: Source
    sha256: str
    rows: int


class Cut(NamedTuple):
    """The whole input; the number of a part is its index."""

    shards: list[Shard]
    parts: list[Part]


@dataclass(frozen=True, slots=True)
class LinesPart:
    """Consecutive lines of a JSONL file.

    Args:
        source: The file.
        first: Number of the part's first row in the shard.
        rows: Number of lines that are not blank.
        offset: Start of the part in the file, in bytes.
        size: Size of the part, in bytes.
        sha256: SHA-256 of the part's bytes, in hexadecimal digits.
    """

    source: Source
    first: int
    rows: int
    offset: int
    size: int
    sha256: str

    @property
    def shard(self) -> str:
        """Name of the shard."""
        return self.source.name

    def read(self) -> list[Row]:
        """Reads the lines and checks their digest."""
        path = self.source.path
        try:
            with path.open("rb") as file:
                file.seek(self.offset)
                text = file.read(self.size)
        except OSError as exc:
            raise UnavailableError(_unreadable(path, exc)) from exc
        if hashlib.sha256(text).hexdigest() != self.sha256:
            raise StartupError(f"{path} has changed, or is another file on this machine")
        lines = (line for line in text.split(b"\n") if line.strip())
        return [_line(self.first + i, line, self.source.shape) for i, line in enumerate(lines)]


def _line(place: int, line: bytes, shape: str) -> Row:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return Row(place, None, InvalidRequestError("this line is not JSON"))
    return _row(place, value, shape) if isinstance(value, dict) else Row(place, value)


def _row(place: int, value: dict[str, Any], shape: str) -> Row:
    """Takes the comparison out of the row's columns; other columns are the user's own."""
    given = {"id": value["id"]} if "id" in value else {}
    try:
        return Row(place, {**shape_of(shape).fields(value), **given})
    except RequestError as exc:
        return Row(place, given, exc)


@dataclass(frozen=True, slots=True)
class TablePart:
    """Consecutive rows of one row group of a Parquet file.

    Args:
        source: The file.
        first: Number of the part's first row in the shard.
        rows: Number of rows.
        group: Index of the row group.
        skipped: Rows of the group before the part.
        file_bytes: Size of the whole file, in bytes.
    """

    source: Source
    first: int
    rows: int
    group: int
    skipped: int
    file_bytes: int

    @property
    def shard(self) -> str:
        """Name of the shard."""
        return self.source.name

    def read(self) -> list[Row]:
        """Reads the rows and checks the size of the file."""
        path, shape = self.source.path, self.source.shape
        try:
            if path.stat().st_size != self.file_bytes:
                raise StartupError(f"{path} has changed, or is another file on this machine")
            group = _row_group(path, shape, self.group)
        except OSError as exc:
            raise UnavailableError(_unreadable(path, exc)) from exc
        values = group.slice(self.skipped, self.rows).to_pylist()
        return [
            _row(self.first + i, _without_nulls(value), shape) for i, value in enumerate(values)
        ]


# Parts are read in order, so the next part is usually in the same row group.
@lru_cache(maxsize=1)
def _row_group(path: Path, shape: str, group: int) -> Any:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        names = file.schema_arrow.names
        # A shape may look at any column.
        wanted = [name for name in names if name in _FIELDS] if shape == _OWN_NAMES else names
        return file.read_row_group(group, columns=wanted)


def _without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in row.items() if not (v is None and k in _NO_NULLS)}


def cut(sources: Sequence[Source], *, rows_per_part: int) -> Cut:
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
            cutter = _cut_table if is_parquet(source.path) else _cut_lines
            shard, its_parts = cutter(source, rows_per_part)
        except OSError as exc:
            raise StartupError(_unreadable(source.path, exc)) from exc
        shards.append(shard)
        parts += its_parts
    return Cut(shards, parts)


def _cut_lines(source: Source, rows_per_part: int) -> tuple[Shard, list[Part]]:
    whole, parts, first = hashlib.sha256(), list[Part](), 0
    rows = offset = size = 0
    part = hashlib.sha256()

    def close() -> None:
        nonlocal first, rows, offset, size, part
        if rows:
            parts.append(LinesPart(source, first, rows, offset, size, part.hexdigest()))
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
    return Shard(source, whole.hexdigest(), first), parts


def _cut_table(source: Source, rows_per_part: int) -> tuple[Shard, list[Part]]:
    import pyarrow
    from pyarrow import parquet

    path = source.path
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        groups = parquet.read_metadata(path)
    except pyarrow.ArrowInvalid as exc:
        raise StartupError(f"{path} is not a Parquet file") from exc
    parts, first, size = list[Part](), 0, path.stat().st_size
    for group in range(groups.num_row_groups):
        in_group = groups.row_group(group).num_rows
        for skipped in range(0, in_group, rows_per_part):
            rows = min(rows_per_part, in_group - skipped)
            parts.append(TablePart(source, first, rows, group, skipped, size))
            first += rows
    return Shard(source, sha256, first), parts


def _unreadable(path: Path, exc: OSError) -> str:
    # The errors of pyarrow have no strerror.
    return f"{path} cannot be read: {exc.strerror or type(exc).__name__}"
