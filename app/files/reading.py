"""Reads the rows of a file; its content, not its name, tells the format and the compression.

Formats: JSONL, JSON (an array of objects, or one object), CSV and TSV with a header, and Parquet;
each of them as it is, or compressed with gzip or zstd. Text has a byte order mark, or the encoding
that is named, or else UTF-8.
"""

import ast
import codecs
import csv
import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from glob import glob, has_magic
from itertools import chain
from pathlib import Path
from typing import IO, Any

from app.core.errors import InvalidRequestError
from app.files.columns import check_columns, check_object, json_object
from app.files.shapes import ComparisonShape

STDIN = Path("-")
# End of the name of a file with the pairs that were drawn for audits, beside the output of a run.
DRAWN_ENDING = ".audits.jsonl"
ENDINGS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")

_GZIP, _ZSTD, _PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# In the order in which they win where a header has as many of each.
_DELIMITERS = ("\t", ",", ";")
# The beginning of a list of messages, or of one, as JSON or as Python prints it.
_MESSAGES = re.compile(r"""\[?\s*\{\s*["'](role|content|from|value|messages|tools)["']\s*:""")
# Few, because a row may have long lists of texts, which are measured in memory.
_ROWS_PER_BATCH = 100
# The encoding of "CSV" in an Excel of Western Europe and America.
_ANSI = "cp1252"
# Cells of a CSV file; the service takes no larger comparison.
_LARGEST_CELL = 2**27
# Python takes up to 550 bytes of memory for each character of a literal, such as of `{},`.
_LONGEST_LITERAL = 2**20
# One decoder, because `json.loads` makes a new one for each call with a hook.
_DECODER = json.JSONDecoder(object_pairs_hook=json_object)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRow:
    """One row of a file.

    Args:
        place: File and line or row number, for messages.
        fields: Column name -> value. The values of CSV and TSV are texts and lists of messages;
            empty cells are missing.
        delimiter: Delimiter of a table; None for other formats.
    """

    place: str
    fields: dict[str, Any]
    delimiter: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class InputFormat:
    """How the rows of files are written, as far as it is named.

    Args:
        shape: How a row holds its comparison; None to recognise it for each file.
        encoding: Encoding of text without a byte order mark; None for UTF-8.
    """

    shape: ComparisonShape | None = None
    encoding: str | None = None


def files_of(inputs: Sequence[Path]) -> list[Path]:
    """Expands folders and patterns; the files of a folder are sorted by path.

    The pairs that a run drew for audits are left out of folders: they have been judged.

    Args:
        inputs: Files, folders, patterns such as `data/*.jsonl`, or `-` for standard input.

    Raises:
        InvalidRequestError: There is no such file, or a folder has none that ends like a known
            format.
    """
    files: list[Path] = []
    for path in inputs:
        if path == STDIN or path.is_file():
            files.append(path)
        elif path.is_dir():
            inside = _inside(path, drawn=False)
            if not inside:
                raise InvalidRequestError(
                    f"{path} has no file that ends in {', '.join(ENDINGS)}, or one of these with "
                    ".gz or .zst"
                )
            files += inside
        elif has_magic(str(path)):
            matching = sorted(Path(name) for name in glob(str(path), recursive=True))
            if not matching:
                raise InvalidRequestError(f"no file matches {path}")
            files += files_of(matching)
        else:
            # A named pipe and a device are read, too.
            files.append(path)
    return files


def drawn_inside(inputs: Sequence[Path]) -> list[Path]:
    """The files of drawn pairs that `files_of` leaves out."""
    folders = (path for path in inputs if path.is_dir())
    return [file for folder in folders for file in _inside(folder, drawn=True)]


def _inside(folder: Path, *, drawn: bool) -> list[Path]:
    return sorted(
        file
        for file in folder.rglob("*")
        if file.is_file() and _is_known(file) and file.name.endswith(DRAWN_ENDING) == drawn
    )


def _is_known(path: Path) -> bool:
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    return not path.name.startswith(".") and name.endswith(ENDINGS)


def read_rows(path: Path, encoding: str | None = None) -> Iterator[FileRow]:
    """Yields the rows of a file.

    Args:
        path: The file; `-` is standard input.
        encoding: Encoding of text without a byte order mark; None for UTF-8.

    Raises:
        InvalidRequestError: The file is empty, cannot be read, or is not what it seems to be. The
            message names the file and the line.
    """
    name = _shown(path)
    try:
        with ExitStack() as stack:
            file = _decompressed(path, stack)
            if file.peek(4)[:4] == _PARQUET:
                yield from _parquet_rows(file, name)
            else:
                yield from _text_rows(file, name, stack, encoding)
    except UnicodeDecodeError as exc:
        raise InvalidRequestError(
            f"{name} is not {exc.encoding.upper()}: byte {exc.start} of a block cannot be read; "
            f"{_advice(exc.object) if encoding is None else 'name another --encoding'}"
        ) from None
    except UnicodeError as exc:
        raise InvalidRequestError(
            f"{name} cannot be read as {encoding}: {exc}; name another --encoding"
        ) from None
    except (OSError, EOFError, zlib.error) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        raise InvalidRequestError(f"{name} cannot be read: {reason}") from None


def _advice(block: bytes) -> str:
    # Text in UTF-8 with one damaged byte has whole letters outside ASCII, too.
    letters = set(block.decode("utf-8", "ignore"))
    is_utf8 = any(letter > "\x7f" for letter in letters)
    has_controls = any(letter < " " and letter not in "\t\r\n" for letter in letters)
    if is_utf8 or has_controls:
        return "save it as UTF-8"
    return f"this looks like Excel's ANSI: add --encoding {_ANSI}, or save as CSV UTF-8"


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, which can be read from any row group.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        return file.read(len(_PARQUET)) == _PARQUET


def is_plain_jsonl(path: Path) -> bool:
    """Whether a file is JSONL in UTF-8 without compression, which can be read from any line.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"")
    try:
        return isinstance(_parsed(first.decode("utf-8-sig")), dict)
    except UnicodeDecodeError:
        return False


def _decompressed(path: Path, stack: ExitStack) -> io.BufferedReader:
    raw: Any = sys.stdin.buffer if path == STDIN else stack.enter_context(path.open("rb"))
    file = io.BufferedReader(raw)
    beginning = file.peek(4)
    if not beginning:
        raise InvalidRequestError(f"{_shown(path)} is empty")
    if beginning.startswith(_GZIP):
        # Typed as a stream of bytes, which it is; it buffers itself.
        unpacked: Any = stack.enter_context(gzip.GzipFile(fileobj=file))
        return io.BufferedReader(unpacked)
    if beginning.startswith(_ZSTD):
        import pyarrow

        packed = pyarrow.PythonFile(file, mode="r")
        return io.BufferedReader(stack.enter_context(pyarrow.CompressedInputStream(packed, "zstd")))
    return file


def _shown(path: Path) -> str:
    return "standard input" if path == STDIN else str(path)


def _parquet_rows(file: IO[bytes], name: str) -> Iterator[FileRow]:
    import pyarrow

    try:
        # Parquet begins at its end, so that a pipe or a compressed file is read as a whole.
        source = file if _is_seekable_itself(file) else io.BytesIO(file.read())
        number = 0
        for batch in open_parquet(source, name).iter_batches(_ROWS_PER_BATCH):
            for fields in batch.to_pylist():
                number += 1
                present = {key: value for key, value in fields.items() if value is not None}
                yield FileRow(place=f"{name}, row {number}", fields=present)
    except pyarrow.ArrowException as exc:
        raise InvalidRequestError(f"{name} looks like Parquet but cannot be read: {exc}") from None


def open_parquet(source: Any, name: str) -> Any:
    """Opens a Parquet file, from a path or a seekable stream.

    Raises:
        InvalidRequestError: The file has a column twice.
    """
    from pyarrow import parquet

    file = parquet.ParquetFile(source)
    # A column of objects is several leaves.
    check_columns(file.schema_arrow.names, name)
    check_columns([file.schema.column(i).path for i in range(len(file.schema.names))], name)
    return file


def _is_seekable_itself(file: IO[bytes]) -> bool:
    return isinstance(getattr(file, "raw", None), io.BufferedReader) and file.seekable()


def _text_rows(
    file: io.BufferedReader, name: str, stack: ExitStack, named: str | None
) -> Iterator[FileRow]:
    beginning = file.peek(4)
    marked = next((name for mark, name in _BYTE_ORDER_MARKS if beginning.startswith(mark)), None)
    encoding = marked or named or "utf-8"
    # Lines end with a line feed only: a text may hold every other line end.
    text = stack.enter_context(io.TextIOWrapper(file, encoding=encoding, newline="\n"))
    first, number = "", 0
    lines = iter(text)
    for line in lines:
        number += 1
        if line.strip():
            first = line
            break
    else:
        raise InvalidRequestError(f"{name} is empty")
    if first.lstrip().startswith("["):
        yield from _array_rows(first + text.read(), name)
    elif not first.lstrip().startswith("{"):
        yield from _table_rows(first, lines, name, number)
    elif _parsed(first) is not None:
        yield from _line_rows(first, lines, name, number)
    else:
        whole = _parsed(first + text.read())
        if not isinstance(whole, dict):
            raise InvalidRequestError(f"{name}, line {number}: this is not JSON")
        place = f"{name}, line {number}"
        yield FileRow(place=place, fields=_object(whole, place))


def _parsed(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def _line_rows(first: str, rest: Iterator[str], name: str, number: int) -> Iterator[FileRow]:
    place = f"{name}, line {number}"
    yield FileRow(place=place, fields=_object(_parsed(first), place))
    for line in rest:
        number += 1
        if line.strip():
            place = f"{name}, line {number}"
            yield FileRow(place=place, fields=_object(_parsed(line), place))


def _array_rows(text: str, name: str) -> Iterator[FileRow]:
    try:
        values = _DECODER.decode(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidRequestError(f"{name} looks like a JSON array but is not one: {exc}") from None
    if not values:
        raise InvalidRequestError(f"{name} is an empty array")
    for number, value in enumerate(values, start=1):
        place = f"{name}, row {number}"
        yield FileRow(place=place, fields=_object(value, place))


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{place}: this is not a JSON object")
    check_object(value, place)
    return value


def _table_rows(first: str, rest: Iterator[str], name: str, number: int) -> Iterator[FileRow]:
    csv.field_size_limit(_LARGEST_CELL)
    delimiter = max(_DELIMITERS, key=first.count)
    reader = csv.reader(chain([first], rest), delimiter=delimiter, strict=True)
    try:
        header = [column.strip() for column in next(reader)]
        check_columns(header, name)
        line = number + reader.line_num
        for cells in reader:
            # A row may have several lines: its first one is its place.
            place, line = f"{name}, line {line}", number + reader.line_num
            if not cells:
                continue
            if len(cells) != len(header):
                raise InvalidRequestError(
                    f"{place}: {len(cells)} cells, but the header has {len(header)}; put a text "
                    "with a separator or a line end into quotes"
                )
            yield FileRow(
                place=place,
                fields={
                    column: _cell(cell, column, place)
                    for column, cell in zip(header, cells, strict=True)
                    if cell
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
    value = _parsed(text)
    if value is None:
        value = _literal(text)
    if value is None:
        if text.startswith("{"):
            return text
        raise InvalidRequestError(
            f"{place}: {column} has messages in a form that cannot be read back: save the data as "
            "JSONL or Parquet"
        )
    return value if _is_message(value) else text


def _literal(text: str) -> Any:
    """A list or an object as Python prints it, as pandas writes it; None if the text is none."""
    if len(text) > _LONGEST_LITERAL:
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _is_message(value: Any) -> bool:
    """Whether a value is a message, a list of messages, or an object with such a list."""
    if isinstance(value, list):
        return all(map(_is_message, value))
    names = value.keys() if isinstance(value, dict) else set()
    return any(wanted <= names for wanted in ({"role"}, {"from", "value"}, {"messages"}))
