"""Cuts bulk input into numbered parts; the same input always gives the same parts."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from app.core.errors import InvalidRequestError, StartupError, UnavailableError
from app.wire.requests import JudgeIn

_FIELDS = frozenset(JudgeIn.model_fields)
# A null in these columns of a table means that the field is missing; JSON can tell them apart.
_NO_NULLS = _FIELDS - {"question", "response_a", "response_b"}


class Row(NamedTuple):
    """One comparison as it was read.

    Args:
        place: Row number in the shard, from 0; blank lines do not count.
        value: Parsed JSON or row of a table; an InvalidRequestError if the line is not JSON.
    """

    place: int
    value: Any


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
        name: Name in the results: the path below the given folder, or the file's name.
        path: Absolute path, the same on every machine.
        sha256: SHA-256 of the file's bytes, in hexadecimal digits.
        rows: Number of rows.
    """

    name: str
    path: Path
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
        shard: Name of the shard.
        path: Absolute path of the file.
        first: Number of the part's first row in the shard.
        rows: Number of lines that are not blank.
        offset: Start of the part in the file, in bytes.
        size: Size of the part, in bytes.
        sha256: SHA-256 of the part's bytes, in hexadecimal digits.
    """

    shard: str
    path: Path
    first: int
    rows: int
    offset: int
    size: int
    sha256: str

    def read(self) -> list[Row]:
        """Reads the lines and checks their digest."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                text = file.read(self.size)
        except OSError as exc:
            raise UnavailableError(_unreadable(self.path, exc)) from exc
        if hashlib.sha256(text).hexdigest() != self.sha256:
            raise StartupError(f"{self.path} has changed, or is another file on this machine")
        lines = (line for line in text.split(b"\n") if line.strip())
        return [Row(self.first + i, _parsed(line)) for i, line in enumerate(lines)]


def _parsed(line: bytes) -> Any | InvalidRequestError:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return InvalidRequestError("this line is not JSON")
    # Other columns are the user's own and are ignored, as `judge` does with a running service.
    return {k: v for k, v in value.items() if k in _FIELDS} if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True)
class TablePart:
    """Consecutive rows of one row group of a Parquet file.

    Args:
        shard: Name of the shard.
        path: Absolute path of the file.
        first: Number of the part's first row in the shard.
        rows: Number of rows.
        group: Index of the row group.
        skipped: Rows of the group before the part.
        file_bytes: Size of the whole file, in bytes.
    """

    shard: str
    path: Path
    first: int
    rows: int
    group: int
    skipped: int
    file_bytes: int

    def read(self) -> list[Row]:
        """Reads the rows and checks the size of the file."""
        try:
            if self.path.stat().st_size != self.file_bytes:
                raise StartupError(f"{self.path} has changed, or is another file on this machine")
            group = _row_group(self.path, self.group)
        except OSError as exc:
            raise UnavailableError(_unreadable(self.path, exc)) from exc
        values = group.slice(self.skipped, self.rows).to_pylist()
        return [Row(self.first + i, _without_nulls(value)) for i, value in enumerate(values)]


# Parts are read in order, so the next part is usually in the same row group.
@lru_cache(maxsize=1)
def _row_group(path: Path, group: int) -> Any:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        columns = [name for name in file.schema_arrow.names if name in _FIELDS]
        return file.read_row_group(group, columns=columns)


def _without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in row.items() if not (v is None and k in _NO_NULLS)}


def cut(inputs: Sequence[Path], *, rows_per_part: int) -> Cut:
    """Cuts files, and all files of folders, into parts; reads every byte once.

    Args:
        inputs: JSONL or Parquet files, or folders of them.
        rows_per_part: Largest number of rows in one part.

    Raises:
        StartupError: A folder has no such file, a file cannot be read, or two have one name.
    """
    shards: list[Shard] = []
    parts: list[Part] = []
    for name, path in _files(inputs):
        try:
            cutter = _cut_table if path.suffix == ".parquet" else _cut_lines
            shard, its_parts = cutter(name, path, rows_per_part)
        except OSError as exc:
            raise StartupError(_unreadable(path, exc)) from exc
        shards.append(shard)
        parts += its_parts
    if len({shard.name for shard in shards}) < len(shards):
        raise StartupError(
            "two input files have the same name, so the results could not tell them apart: rename "
            "one"
        )
    return Cut(shards, parts)


def _files(inputs: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yields names and absolute paths; the files of a folder are sorted by path."""
    for given in inputs:
        path = given.absolute()
        if not path.is_dir():
            yield path.name, path
            continue
        found = [each for each in path.rglob("*") if each.suffix in (".jsonl", ".parquet")]
        if not found:
            raise StartupError(f"{given} has no file that ends in .jsonl or .parquet")
        yield from ((each.relative_to(path).as_posix(), each) for each in sorted(found))


def _cut_lines(name: str, path: Path, rows_per_part: int) -> tuple[Shard, list[Part]]:
    whole, parts, first = hashlib.sha256(), list[Part](), 0
    rows = offset = size = 0
    part = hashlib.sha256()

    def close() -> None:
        nonlocal first, rows, offset, size, part
        if rows:
            parts.append(LinesPart(name, path, first, rows, offset, size, part.hexdigest()))
        first, rows, offset, size, part = first + rows, 0, offset + size, 0, hashlib.sha256()

    with path.open("rb") as lines:
        for line in lines:
            whole.update(line)
            part.update(line)
            size += len(line)
            rows += bool(line.strip())
            if rows == rows_per_part:
                close()
    close()
    return Shard(name, path, whole.hexdigest(), first), parts


def _cut_table(name: str, path: Path, rows_per_part: int) -> tuple[Shard, list[Part]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as exc:
        raise StartupError("Parquet needs pyarrow: install scope-judge[ray]") from exc
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
            parts.append(TablePart(name, path, first, rows, group, skipped, size))
            first += rows
    return Shard(name, path, sha256, first), parts


def _unreadable(path: Path, exc: OSError) -> str:
    # The errors of pyarrow have no strerror.
    return f"{path} cannot be read: {exc.strerror or type(exc).__name__}"
