"""Writes rows in the format that a file's name asks for."""

import csv
import gzip
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from app.core.errors import InvalidRequestError

FORMATS = ("jsonl", "json", "csv", "tsv", "parquet")
_SAME = {"ndjson": "jsonl"}


def format_of(path: Path) -> str:
    """The format that a name asks for, e.g. "csv" for pairs.csv.gz; JSONL where it asks for none.

    Raises:
        InvalidRequestError: The name asks for an unknown compression or format.
    """
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    ending = name.rpartition(".")[2].lower() if "." in name else "jsonl"
    found = _SAME.get(ending, ending)
    if found not in FORMATS:
        raise InvalidRequestError(
            f"{path}: the name must end in .{', .'.join(FORMATS)}, or one of these with .gz or .zst"
        )
    return found


def write_rows(path: Path, name: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes all rows to a file.

    Lists and objects become JSON in CSV and TSV, and in Parquet if a column mixes types or has an
    object without fields.

    Args:
        path: The file that is written.
        name: The name that tells format and compression.
        rows: Columns may differ between rows; a missing value is null, or an empty cell.

    Raises:
        InvalidRequestError: The name asks for an unknown format.
        OSError: The file cannot be written.
    """
    kind = format_of(name)
    with path.open("wb") as raw, _compressed(raw, name.suffix) as file:
        if kind == "parquet":
            _write_parquet(file, rows)
            return
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        if kind in ("csv", "tsv"):
            _write_table(text, rows, "," if kind == "csv" else "\t")
        elif kind == "json":
            text.write("[\n" + ",\n".join(json_line(row) for row in rows) + "\n]\n")
        else:
            text.writelines(f"{json_line(row)}\n" for row in rows)
        text.flush()
        text.detach()


def replace_file(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes all rows to a file, which appears or is replaced as a whole; its mode stays.

    Raises:
        InvalidRequestError: The name asks for an unknown format.
        OSError: The file cannot be written; an earlier one is unchanged.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        write_rows(new, path, rows)
        if path.exists():
            new.chmod(path.stat().st_mode & 0o777)
        with new.open("rb") as written:
            os.fsync(written.fileno())
        new.replace(path)
    except OSError:
        # Do not leave a part of it on a full disk.
        new.unlink(missing_ok=True)
        raise


def json_line(row: Mapping[str, Any]) -> str:
    """A row as JSON; values that JSON has no type for, such as dates, are written as text."""
    text = json.dumps(row, ensure_ascii=False, default=str)
    # UTF-8 cannot encode half of a surrogate pair. It is written as the escape that was read.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


@contextmanager
def _compressed(raw: IO[bytes], suffix: str) -> Iterator[IO[bytes]]:
    if suffix == ".gz":
        # Without a time, the same rows make the same bytes.
        with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
            yield packed  # type: ignore[misc]
    elif suffix == ".zst":
        import pyarrow

        # Arrow's own stream would close the file below it.
        whole = io.BytesIO()
        yield whole
        raw.write(pyarrow.compress(whole.getvalue(), "zstd", asbytes=True))
    else:
        yield raw


def _columns(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    found: dict[str, None] = {}
    for row in rows:
        found |= dict.fromkeys(row)
    return list(found)


def _write_table(text: IO[str], rows: Sequence[Mapping[str, Any]], delimiter: str) -> None:
    writer = csv.DictWriter(text, _columns(rows), delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})


def _cell(value: Any) -> Any:
    if isinstance(value, bool | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value


def _write_parquet(file: IO[bytes], rows: Sequence[Mapping[str, Any]]) -> None:
    import pyarrow
    from pyarrow import parquet

    columns = {}
    for name in _columns(rows):
        values = [row.get(name) for row in rows]
        try:
            column = pyarrow.array(values)
            if _has_empty_object(column.type):
                raise pyarrow.ArrowTypeError
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
            texts = [None if value is None else json.dumps(value, default=str) for value in values]
            column = pyarrow.array(texts)
        columns[name] = column
    parquet.write_table(pyarrow.table(columns), file)


def _has_empty_object(kind: Any) -> bool:
    """Whether a type of Arrow has an object without fields, which Parquet cannot hold."""
    from pyarrow import types

    if types.is_struct(kind) and kind.num_fields == 0:
        return True
    return any(_has_empty_object(kind.field(i).type) for i in range(kind.num_fields))
