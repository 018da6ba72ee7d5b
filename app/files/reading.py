"""Reads the rows of a file; its content, not its name, tells the format and the compression.

Formats: JSONL, JSON (an array of objects), CSV and TSV with a header, the first sheet of an Excel
workbook, and Parquet; each of them as it is, or compressed with gzip or zstd. Text has a byte order
mark, or the encoding that is named, or else UTF-8.
"""

import codecs
import csv
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from glob import glob, has_magic
from itertools import chain
from pathlib import Path
from typing import Any

from app.core.errors import InvalidRequestError
from app.files.shapes import ComparisonShape
from app.files.workbook import sheet_rows

STDIN = Path("-")
# End of the name of a file with the pairs that were drawn for audits, beside the output of a run.
DRAWN_ENDING = ".audits.jsonl"
ENDINGS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".xlsx", ".parquet")

_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_PARQUET = b"PAR1"
_ZIP = b"PK\x03\x04"
# Beginning of a file that is no table -> what it is, and what to do.
_NO_TABLES = {
    b"%PDF": "a PDF: save its table as CSV or as an Excel workbook",
    b"\xd0\xcf\x11\xe0": "an Excel workbook in the old format, or one with a password: save it as "
    ".xlsx without a password, or as CSV",
    b"<": "a web page or XML, whatever its name is: open it in a spreadsheet, and save it as .xlsx",
}
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# In the order in which they win where a header has as many of each.
_DELIMITERS = ("\t", ",", ";")
WRONG_HEADER = (
    "delete the rows above your header (in a workbook, its sheet must be the first), or name each "
    "column"
)
# The beginning of a list of messages, or of one, as JSON or as Python prints it.
_MESSAGES = re.compile(r"""\[?\s*\{\s*["'](role|content|from|value|messages)["']\s*:""")
# Few, because a row may have long lists of texts, which are measured in memory.
_ROWS_PER_BATCH = 100
# Cells of a CSV file; the service takes no larger comparison.
_LARGEST_CELL = 2**27


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRow:
    """One row of a file.

    Args:
        place: File and line or row number, for messages.
        fields: Column name -> value; None for an empty cell. The values of CSV and TSV are texts
            and lists of messages.
        delimiter: Delimiter of a table.
    """

    place: str
    fields: dict[str, Any]
    delimiter: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class InputFormat:
    """How the rows of files are written, as far as it is named.

    Without a shape, that of each file is recognized. Text without a byte order mark has the
    encoding, or UTF-8.
    """

    shape: ComparisonShape | None = None
    encoding: str | None = None


def files_of(inputs: Sequence[Path]) -> list[Path]:
    """Expands folders and patterns; the files of a folder are sorted by path.

    The pairs that a run drew for audits are left out of folders: they have been judged.

    Raises:
        InvalidRequestError: There is no such file, or a folder has none that ends like a known
            format.
    """
    files: list[Path] = []
    for path in inputs:
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.is_file() and _is_read(file))
            if not inside:
                raise InvalidRequestError(
                    f"{path} has no file that ends in {', '.join(ENDINGS)}, or one of these with "
                    ".gz or .zst"
                )
            files += inside
        elif path != STDIN and not path.exists() and has_magic(str(path)):
            matching = sorted(Path(name) for name in glob(str(path), recursive=True))
            if not matching:
                raise InvalidRequestError(f"no file matches {path}")
            files += files_of(matching)
        elif "=" in path.name and not path.exists():
            raise InvalidRequestError(f"there is no file {path}: put the value of --map in quotes")
        else:
            # A named pipe and a device are read, too.
            files.append(path)
    return files


def _is_read(path: Path) -> bool:
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    return name.endswith(ENDINGS) and not name.startswith(".") and not name.endswith(DRAWN_ENDING)


def read_rows(path: Path, encoding: str | None = None) -> Iterator[FileRow]:
    """Yields the rows of a file, or of standard input (`-`); see `InputFormat`.

    Raises:
        InvalidRequestError: The file is empty, cannot be read, or is not what it seems to be. The
            message names the file and the line.
    """
    name = "standard input" if path == STDIN else str(path)
    try:
        with ExitStack() as stack:
            file = _decompressed(path, name, stack)
            beginning = file.peek(4)[:4]
            for mark, what in _NO_TABLES.items():
                if beginning.startswith(mark):
                    raise InvalidRequestError(f"{name} is {what}")
            if beginning == _PARQUET:
                yield from _parquet_rows(file, name)
            elif beginning == _ZIP:
                yield from _sheet_rows(file, name)
            else:
                yield from _text_rows(file, name, stack, encoding)
    except UnicodeError as exc:
        raise InvalidRequestError(
            f"{name} cannot be read as {(encoding or 'UTF-8').upper()} ({exc}): save it as UTF-8, "
            "or name another encoding, such as --encoding cp1252 for CSV from Excel"
        ) from None
    except OSError as exc:
        raise InvalidRequestError(f"{name} cannot be read: {exc.strerror or exc}") from None


def _decompressed(path: Path, name: str, stack: ExitStack) -> io.BufferedReader:
    raw: Any = sys.stdin.buffer if path == STDIN else stack.enter_context(path.open("rb"))
    file = io.BufferedReader(raw)
    beginning = file.peek(4)
    if not beginning:
        raise InvalidRequestError(f"{name} is empty")
    for mark, compression in _COMPRESSIONS.items():
        if beginning.startswith(mark):
            import pyarrow

            packed = pyarrow.PythonFile(file, mode="r")
            unpacked = pyarrow.CompressedInputStream(packed, compression)
            return io.BufferedReader(stack.enter_context(unpacked))
    return file


def _parquet_rows(file: io.BufferedReader, name: str) -> Iterator[FileRow]:
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        # Parquet begins at its end, so that a pipe or a compressed file is read as a whole.
        table = parquet.ParquetFile(file if file.seekable() else io.BytesIO(file.read()))
        _check_columns(table.schema_arrow.names, name)
        # A column of objects is several leaves.
        leaves = range(len(table.schema.names))
        _check_columns([table.schema.column(leaf).path for leaf in leaves], name)
        for batch in table.iter_batches(_ROWS_PER_BATCH):
            for fields in batch.to_pylist():
                number += 1
                yield FileRow(place=f"{name}, row {number}", fields=fields)
    except pyarrow.ArrowException as exc:
        raise InvalidRequestError(f"{name} looks like Parquet but cannot be read: {exc}") from None


def _sheet_rows(file: io.BufferedReader, name: str) -> Iterator[FileRow]:
    # A workbook ends with the list of its parts, so that a pipe or a compressed file is read whole.
    rows = sheet_rows(file if file.seekable() else io.BytesIO(file.read()), name)
    _, cells = next(rows, ("", ()))
    if not cells:
        raise InvalidRequestError(
            f"the first sheet of {name} is empty, and no other is read: move yours to the front"
        )
    header = ["" if cell is None else str(cell).strip() for cell in cells]
    # Cells of a format only make a sheet wider than its table.
    while not header[-1]:
        header.pop()
    _check_columns(header, name)
    for place, cells in rows:
        if any(cell is not None for cell in cells[len(header) :]):
            raise InvalidRequestError(
                f"{place}: a cell stands right of the columns of the header "
                f"({', '.join(header)}): {WRONG_HEADER}"
            )
        full = (*cells, *[None] * len(header))
        fields = {
            column: _cell(cell, column, place) if isinstance(cell, str) else cell
            for column, cell in zip(header, full, strict=False)
        }
        yield FileRow(place=place, fields=fields)


def _text_rows(
    file: io.BufferedReader, name: str, stack: ExitStack, named: str | None
) -> Iterator[FileRow]:
    beginning = file.peek(4)
    marked = next((name for mark, name in _BYTE_ORDER_MARKS if beginning.startswith(mark)), None)
    # Lines end with a line feed only: a text may hold every other line end.
    text = stack.enter_context(
        io.TextIOWrapper(file, encoding=marked or named or "utf-8", newline="\n")
    )
    lines = iter(text) if marked or named is None else _in_encoding(text, named, name)
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    number, first = next(numbered, (0, ""))
    if not number:
        raise InvalidRequestError(f"{name} is empty")
    match first.lstrip()[0]:
        case "[":
            yield from _array_rows(first + "".join(lines), name)
        case "{":
            for line_number, line in chain([(number, first)], numbered):
                place = f"{name}, line {line_number}"
                yield FileRow(place=place, fields=_row(_json(line, place), place))
        case _:
            yield from _table_rows(first, lines, name, number)


def _in_encoding(lines: Iterable[str], encoding: str, name: str) -> Iterator[str]:
    """Yields lines; refuses UTF-8 that is read in another encoding, as "Ã©" instead of "é"."""
    checked = codecs.lookup(encoding).name.startswith("utf")
    for line in lines:
        if not checked and not line.isascii():
            checked = True
            with suppress(UnicodeError):
                line.encode(encoding).decode()
                raise InvalidRequestError(f"{name} is UTF-8: leave --encoding {encoding} out")
        yield line


def _array_rows(text: str, name: str) -> Iterator[FileRow]:
    values = _json(text, name)
    if not values:
        raise InvalidRequestError(f"{name} is an empty array")
    for number, value in enumerate(values, start=1):
        place = f"{name}, row {number}"
        yield FileRow(place=place, fields=_row(value, place))


def _json(text: str, place: str) -> Any:
    """The value of a JSON text, in which no object has a name twice."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except InvalidRequestError as exc:
        raise InvalidRequestError(f"{place}: {exc.detail}") from None
    except json.JSONDecodeError as exc:
        where = f"column {exc.colno}" if exc.lineno == 1 else f"line {exc.lineno} of it"
        raise InvalidRequestError(f"{place}: this is not JSON ({exc.msg}, {where})") from None
    except (ValueError, RecursionError) as exc:
        raise InvalidRequestError(f"{place}: this is not JSON ({exc})") from None


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    _check_columns([name for name, _ in pairs])
    return dict(pairs)


def _row(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{place}: this is not a JSON object")
    return value


def _check_columns(names: Sequence[str], place: str | None = None) -> None:
    """Refuses a name that occurs twice, of which only the last value would be read."""
    if len(set(names)) < len(names):
        [(repeated, _)] = Counter(names).most_common(1)
        where = "" if place is None else f"{place}: "
        what = f"the column {repeated!r} occurs twice"
        if not repeated:
            title = ", ".join(filter(None, names))
            what = f"the header ({title}) has blank cells: {WRONG_HEADER}"
        raise InvalidRequestError(f"{where}{what}")


def _table_rows(first: str, rest: Iterator[str], name: str, number: int) -> Iterator[FileRow]:
    csv.field_size_limit(_LARGEST_CELL)
    delimiter = max(_DELIMITERS, key=first.count)
    reader = csv.reader(chain([first], rest), delimiter=delimiter, strict=True)
    try:
        header = [column.strip() for column in next(reader)]
        _check_columns(header, name)
        line = number + reader.line_num
        for cells in reader:
            # A row may have several lines: its first one is its place.
            place, line = f"{name}, line {line}", number + reader.line_num
            # Excel keeps empty rows below a table.
            if not any(map(str.strip, cells)):
                continue
            if len(cells) != len(header):
                raise InvalidRequestError(
                    f"{place}: {len(cells)} cells, but the header has {len(header)} "
                    f"({', '.join(header)}): put a text with a separator or a line end into "
                    f"quotes, or {WRONG_HEADER}"
                )
            yield FileRow(
                place=place,
                fields={
                    column: _cell(cell, column, place) if cell else None
                    for column, cell in zip(header, cells, strict=True)
                },
                delimiter=delimiter,
            )
    except csv.Error as exc:
        raise InvalidRequestError(
            f"{name}, line {number + reader.line_num - 1}: this is not CSV ({exc})"
        ) from None


def _cell(text: str, column: str, place: str) -> Any:
    """A cell of a table: a message or a list of messages if the text is one, or else the text."""
    if not _MESSAGES.match(text):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        if text.startswith("{"):
            return text
        raise InvalidRequestError(
            f"{place}: {column} has messages that are not JSON: save the data as JSONL or Parquet"
        ) from None
    return value if _is_message(value) else text


def _is_message(value: Any) -> bool:
    """Whether a value is a message, a list of messages, or an object with such a list."""
    if isinstance(value, list):
        return all(map(_is_message, value))
    names = value.keys() if isinstance(value, dict) else set()
    return any(wanted <= names for wanted in ({"role"}, {"from", "value"}, {"messages"}))
