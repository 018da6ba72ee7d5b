"""Bulk input, cut into numbered parts: the same input is always cut in the same way."""

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
# Empty cells of a table: what its row says nothing about. Only JSON can tell null from nothing.
_NO_NULLS = _FIELDS - {"question", "response_a", "response_b"}


class Row(NamedTuple):
    """One comparison as it was read.

    Args:
        place: Its row in the shard, counted from 0; blank lines do not count.
        value: What was read; an InvalidRequestError where that is no JSON.
    """

    place: int
    value: Any


class Part(Protocol):
    """Neighbouring rows of one shard, which are judged together."""

    @property
    def shard(self) -> str:
        """The shard's name."""

    @property
    def rows(self) -> int:
        """How many."""

    def read(self) -> list[Row]:
        """Reads the rows, on whatever machine.

        Raises:
            StartupError: They are not what was cut.
            UnavailableError: They cannot be read now.
        """


class Shard(NamedTuple):
    """One file of the input.

    Args:
        name: What results call it: its path below the folder that was given.
        path: Absolute, the same on every machine.
        sha256: Of its bytes.
        rows: How many there are.
    """

    name: str
    path: Path
    sha256: str
    rows: int


class Cut(NamedTuple):
    """The whole input; a part's number is its place."""

    shards: list[Shard]
    parts: list[Part]


@dataclass(frozen=True, slots=True)
class LinesPart:
    """Lines of a JSONL file.

    Args:
        shard: Its name.
        path: The file.
        first: Row of the shard that the part begins with.
        rows: Lines that are not blank.
        offset: Where they begin, in bytes.
        size: How many bytes they are.
        sha256: Of these bytes.
    """

    shard: str
    path: Path
    first: int
    rows: int
    offset: int
    size: int
    sha256: str

    def read(self) -> list[Row]:
        """Reads the lines, if they are still those that were cut."""
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
        return InvalidRequestError("this line is no JSON")
    # Further columns are the caller's own, as for a file that is judged by a running service.
    return {k: v for k, v in value.items() if k in _FIELDS} if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True)
class TablePart:
    """Rows of one row group of a Parquet file.

    Args:
        shard: Its name.
        path: The file.
        first: Row of the shard that the part begins with.
        rows: How many.
        group: The row group.
        skipped: Rows of the group before them.
        file_bytes: Size of the whole file.
    """

    shard: str
    path: Path
    first: int
    rows: int
    group: int
    skipped: int
    file_bytes: int

    def read(self) -> list[Row]:
        """Reads the rows, if the file has still the size that it was cut with."""
        try:
            if self.path.stat().st_size != self.file_bytes:
                raise StartupError(f"{self.path} has changed, or is another file on this machine")
            group = _row_group(self.path, self.group)
        except OSError as exc:
            raise UnavailableError(_unreadable(self.path, exc)) from exc
        values = group.slice(self.skipped, self.rows).to_pylist()
        return [Row(self.first + i, _without_nulls(value)) for i, value in enumerate(values)]


# Parts come in order: the next ones are of the same row group.
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

    Raises:
        StartupError: There is nothing to read, or it cannot be read.
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
        raise StartupError("two shards have the same name: results could not tell them apart")
    return Cut(shards, parts)


def _files(inputs: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Names and absolute paths, the files of a folder in the order of their names."""
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
        raise StartupError(f"{path} is no Parquet file") from exc
    parts, first, size = list[Part](), 0, path.stat().st_size
    for group in range(groups.num_row_groups):
        in_group = groups.row_group(group).num_rows
        for skipped in range(0, in_group, rows_per_part):
            rows = min(rows_per_part, in_group - skipped)
            parts.append(TablePart(name, path, first, rows, group, skipped, size))
            first += rows
    return Shard(name, path, sha256, first), parts


def _unreadable(path: Path, exc: OSError) -> str:
    # What pyarrow raises has no strerror.
    return f"{path} cannot be read: {exc.strerror or type(exc).__name__}"
