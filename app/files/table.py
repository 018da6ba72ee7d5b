"""Reads named columns of a file with Arrow, without a Python object for each field."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json

from app.core.printable import encodable
from app.files.reading import STDIN, is_parquet, is_plain_jsonl, open_parquet, read_rows

# Bytes of a file that Arrow parses at once; a line may not be longer.
_BLOCK_BYTES = 2**24


def read_table(
    path: Path, columns: Mapping[str, Any], encoding: str | None = None
) -> pyarrow.Table:
    """The named columns that a file has, in the order of its rows.

    Parquet, JSONL and CSV with commas are parsed by Arrow where they are plain and every column
    has one type. Every other file is read row by row, with the same result.

    Args:
        path: A file in a format of `app.files.reading`.
        columns: Name -> type of Arrow, or None for a column of texts or whole numbers.
        encoding: Encoding of text without a byte order mark; None for UTF-8.

    Returns:
        A table of the columns that have a value, with the types that the file gives them. Lists
        and objects are texts.

    Raises:
        InvalidRequestError: The file is empty, cannot be read, or is not what it seems to be.
    """
    try:
        if encoding is None and path != STDIN and path.is_file() and path.stat().st_size:
            table = _by_arrow(path, columns)
            if table is not None:
                return _flat(table)
    except (pyarrow.ArrowException, UnicodeError, KeyError, OSError):
        # The reader of rows finds the place of the fault, or reads what Arrow cannot.
        pass
    return _by_rows(path, list(columns), encoding)


def _by_arrow(path: Path, columns: Mapping[str, Any]) -> pyarrow.Table | None:
    if is_parquet(path):
        return _parquet(path, columns)
    if is_plain_jsonl(path):
        with path.open("rb") as file:
            return _jsonl(file, columns)
    return _csv(path, columns)


def _parquet(path: Path, columns: Mapping[str, Any]) -> pyarrow.Table:
    file = open_parquet(path, str(path))
    names = set(file.schema_arrow.names)
    table = file.read(columns=[name for name in columns if name in names])
    decoded = [
        column.cast(column.type.value_type) if pyarrow.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    return pyarrow.table(decoded, names=table.column_names)


def _jsonl(file: IO[bytes], columns: Mapping[str, Any]) -> pyarrow.Table:
    first = json.loads(next(line for line in file if line.strip()).decode("utf-8-sig"))
    file.seek(0)
    types = {
        name: kind if kind is not None else _identifier_type(first.get(name))
        for name, kind in columns.items()
    }
    return arrow_json.read_json(
        file,
        read_options=arrow_json.ReadOptions(block_size=_BLOCK_BYTES),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=pyarrow.schema(types.items()), unexpected_field_behavior="ignore"
        ),
    )


def _identifier_type(value: Any) -> Any:
    return pyarrow.int64() if isinstance(value, int) else pyarrow.string()


def _csv(path: Path, columns: Mapping[str, Any]) -> pyarrow.Table | None:
    with path.open("rb") as file:
        header = file.readline().decode("utf-8-sig").strip()
    names = header.split(",")
    if '"' in header or "\t" in header or ";" in header or len(set(names)) < len(names):
        return None
    return arrow_csv.read_csv(
        path,
        read_options=arrow_csv.ReadOptions(block_size=_BLOCK_BYTES),
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            include_columns=[name for name in columns if name in names],
            column_types={name: kind or pyarrow.string() for name, kind in columns.items()},
            null_values=[""],
            strings_can_be_null=True,
            true_values=["true", "True", "1"],
            false_values=["false", "False", "0"],
        ),
    )


def _by_rows(path: Path, columns: Sequence[str], encoding: str | None) -> pyarrow.Table:
    values: dict[str, list[Any]] = {name: [] for name in columns}
    for row in read_rows(path, encoding):
        for name, column in values.items():
            column.append(row.fields.get(name))
    return _flat(pyarrow.table({name: _column(column) for name, column in values.items()}))


def _flat(table: pyarrow.Table) -> pyarrow.Table:
    """Lists and objects become texts. Columns without a value go: Arrow makes absent ones, too."""
    columns = {
        name: _texts(column.to_pylist()) if pyarrow.types.is_nested(column.type) else column
        for name, column in zip(table.column_names, table.columns, strict=True)
        if column.null_count < len(table)
    }
    # Without columns a table would forget how many rows it has.
    return pyarrow.table(columns) if columns else table


def _column(values: list[Any]) -> pyarrow.Array:
    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, UnicodeEncodeError):
        return _texts(values)


def _texts(values: list[Any]) -> pyarrow.Array:
    return pyarrow.array([None if value is None else encodable(str(value)) for value in values])
