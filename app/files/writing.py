"""Writes rows in the format that a file's name asks for."""

import csv
import gzip
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from app.core.errors import InvalidRequestError
from app.core.printable import encodable, printable_json
from app.files.replacing import replacing
from app.files.workbook import write_workbook

FORMATS = ("jsonl", "json", "csv", "tsv", "xlsx", "parquet")
_SAME = {"ndjson": "jsonl"}


def format_of(path: Path) -> str:
    """The format that a name asks for, e.g. "csv" for pairs.csv.gz; JSONL where it asks for none.

    Raises:
        InvalidRequestError: The name asks for an unknown compression or format.
    """
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    ending = name.rpartition(".")[2].lower() if "." in name else "jsonl"
    kind = _SAME.get(ending, ending)
    if kind not in FORMATS:
        raise InvalidRequestError(
            f"{path}: the name must end in .{', .'.join(FORMATS)}, or one of these with .gz or .zst"
        )
    return kind


def replace_file(
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    *,
    delimiter: str | None = None,
) -> None:
    """Writes all rows to a file, atomically; its name tells format and compression.

    Columns may differ between rows; a missing value is null, or an empty cell. Lists and objects
    become JSON in CSV, TSV and workbooks, and in Parquet if a column mixes types or has an object
    without fields.

    Raises:
        InvalidRequestError: The name asks for an unknown format, or a text is too long for it.
        OSError: The file cannot be written; an earlier one is unchanged.
    """
    kind = format_of(path)
    with replacing(path) as raw, _compressed(raw, path.suffix) as file:
        if kind == "parquet":
            _write_parquet(file, rows)
            return
        if kind == "xlsx":
            write_workbook(file, _columns(rows), rows)
            return
        # UTF-8 cannot encode half of a surrogate pair: a table has its escape, as JSON has.
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
        if kind in ("csv", "tsv"):
            _write_table(text, rows, (delimiter or ",") if kind == "csv" else "\t")
        elif kind == "json":
            text.write("[\n" + ",\n".join(json_line(row) for row in rows) + "\n]\n")
        else:
            text.writelines(f"{json_line(row)}\n" for row in rows)
        text.flush()
        text.detach()


def json_line(row: Mapping[str, Any]) -> str:
    """A row as JSON; values that JSON has no type for, such as dates, are written as text."""
    # A line is also shown on a terminal, and UTF-8 cannot encode half of a surrogate pair.
    return printable_json(json.dumps(row, ensure_ascii=False, default=str))


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
    columns: dict[str, None] = {}
    for row in rows:
        columns |= dict.fromkeys(row)
    return list(columns)


def _write_table(text: IO[str], rows: Sequence[Mapping[str, Any]], delimiter: str) -> None:
    cells = [{name: _cell(value) for name, value in row.items()} for row in rows]
    # Python before 3.13 quotes a carriage return only if line ends have one. Without quotes it ends
    # the row.
    returns = any("\r" in str(part) for row in cells for item in row.items() for part in item)
    ends = "\r\n" if returns else "\n"
    writer = csv.DictWriter(text, _columns(rows), delimiter=delimiter, lineterminator=ends)
    writer.writeheader()
    writer.writerows(cells)


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
        except UnicodeEncodeError:
            column = pyarrow.array([None if value is None else _text(value) for value in values])
        columns[encodable(name)] = column
    parquet.write_table(pyarrow.table(columns), file)


def _text(value: Any) -> str:
    return encodable(value) if isinstance(value, str) else json.dumps(value, default=str)


def _has_empty_object(kind: Any) -> bool:
    """Whether a type of Arrow has an object without fields, which Parquet cannot hold."""
    from pyarrow import types

    if types.is_struct(kind) and kind.num_fields == 0:
        return True
    return any(_has_empty_object(kind.field(i).type) for i in range(kind.num_fields))
