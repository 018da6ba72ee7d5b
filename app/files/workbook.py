"""Excel workbooks (.xlsx): the rows of the first sheet, and a workbook of rows."""

import io
import json
import math
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from typing import IO, Any

from app.core.errors import InvalidRequestError
from app.core.printable import encodable

# Excel's own limit; openpyxl would cut the text without a word.
LONGEST_TEXT = 32_767
# Characters that XML changes or cannot hold, and what looks like their escape.
_ESCAPED = re.compile(r"[\x00-\x08\x0b-\x1f]|_(?=x[0-9A-Fa-f]{4}_)")
_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")


def sheet_rows(file: IO[bytes], name: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yields the place and the cells of each row of the first sheet that is not blank.

    Formulas have the value that Excel last saved.

    Raises:
        InvalidRequestError: The file is no workbook, or an encrypted or damaged one.
    """
    import openpyxl

    try:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        sheet = book.worksheets[0]
        # Some programs write a wrong size, and rows beyond it would be left out.
        sheet.reset_dimensions()
        where = "" if len(book.worksheets) == 1 else f" of {sheet.title!r}, the only sheet read"
        for number, cells in enumerate(sheet.iter_rows(values_only=True), start=1):
            if any(cell is not None and str(cell).strip() for cell in cells):
                yield f"{name}, row {number}{where}", tuple(map(_read, cells))
    except (OSError, ValueError, KeyError, SyntaxError, zipfile.BadZipFile) as exc:
        raise InvalidRequestError(
            f"{name} is a zip archive, and not a workbook of Excel that can be read ({exc})"
        ) from None


def write_workbook(
    file: IO[bytes], columns: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Writes rows as the only sheet of a workbook. No text becomes a formula.

    Raises:
        InvalidRequestError: A text is longer than a cell can be.
    """
    import openpyxl
    from openpyxl.cell import WriteOnlyCell

    # Before the workbook is begun, because openpyxl leaves an unfinished one open.
    cells = [
        [_written(row.get(column), column, number) for column in columns]
        for number, row in enumerate(rows, start=2)
    ]
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("scope-judge")
    for values in [[_escaped(column) for column in columns], *cells]:
        line = [WriteOnlyCell(sheet, value) for value in values]
        for cell in line:
            if isinstance(cell.value, str):
                cell.data_type = "s"
        sheet.append(line)
    # openpyxl closes its file.
    whole = io.BytesIO()
    book.save(whole)
    file.write(whole.getvalue())


def _read(value: Any) -> Any:
    if isinstance(value, str):
        return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), value)
    return value.isoformat() if isinstance(value, date | datetime | time) else value


def _written(value: Any, column: str, number: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float) and math.isfinite(value) and abs(value) < 2**53:
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(escaped := _escaped(text)) > LONGEST_TEXT:
        raise InvalidRequestError(
            f"row {number}: {column} has {len(text):,} characters, and a cell of a workbook holds "
            f"{LONGEST_TEXT:,}: write CSV, JSON Lines or Parquet"
        )
    return escaped


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"_x{ord(match[0]):04X}_", encodable(text))
