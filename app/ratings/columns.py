"""Columns of battle files as arrays, with the place of each row for messages."""

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow
import pyarrow.compute as pc

from app.core.errors import InvalidRequestError
from app.files.reading import files_of
from app.files.table import read_table
from app.ratings.bradley_terry import Bools, Floats, Ints

_OF_JUDGE = ("guarantee", "judge", "signature")
_TEXTS = ("model_a", "model_b", "winner", "reason", "error", *_OF_JUDGE)
_IDENTIFIERS = ("id", "question_id", "group", "human")
_NUMBERS = ("p_bar", "p_fwd", "p_rev", "alpha", "human_probability")
_TYPES = {
    **dict.fromkeys(_TEXTS, pyarrow.string()),
    **dict.fromkeys(_IDENTIFIERS),
    **dict.fromkeys(_NUMBERS, pyarrow.float64()),
    "accepted": pyarrow.bool_(),
}


def _number(value: str | None) -> float | None:
    try:
        return np.nan if value is None else float(value)
    except ValueError:
        return None


class Columns:
    """The columns of one or several files, one after the other.

    Args:
        inputs: Files, folders or patterns, as `app.files.reading.files_of` takes them.
        encoding: Encoding of text without a byte order mark; None for UTF-8.

    Raises:
        InvalidRequestError: A file cannot be read, or there is no row.
    """

    def __init__(self, inputs: Sequence[Path], encoding: str | None = None) -> None:
        self._files = files_of(inputs)
        tables = [read_table(path, _TYPES, encoding) for path in self._files]
        self._ends = np.cumsum([len(table) for table in tables])
        self.n = int(self._ends[-1])
        if not self.n:
            raise InvalidRequestError(f"{', '.join(map(str, self._files))}: there is no row")
        self._columns = {name: self._joined(tables, name) for name in _TYPES}

    def __contains__(self, name: str) -> bool:
        return self._columns[name] is not None

    def is_null(self, name: str) -> Bools:
        """Shape (n,). Whether a row has no value."""
        column = self._columns[name]
        if column is None:
            return np.ones(self.n, dtype=bool)
        return np.asarray(column.is_null().to_numpy(zero_copy_only=False), dtype=bool)

    def numbers(self, name: str) -> Floats:
        """Shape (n,). A column of numbers; NaN where a row has none.

        Raises:
            InvalidRequestError: A value is not a finite number.
        """
        column = self._columns[name]
        if column is None:
            return np.full(self.n, np.nan)
        try:
            parsed = pc.cast(column, pyarrow.float64()).to_numpy(zero_copy_only=False)
        except pyarrow.ArrowInvalid:
            parsed = [_number(value) for value in column.to_pylist()]
            is_number = np.array([number is not None for number in parsed])
            self.check(is_number, f"{name} is not a number")
        values = np.asarray(parsed, dtype=np.float64)
        self.check(np.isfinite(values) | self.is_null(name), f"{name} is not a finite number")
        return values

    def flags(self, name: str) -> tuple[Bools, Bools]:
        """Shape (n,) each. The rows where a flag is true, and those where it is false."""
        column = self._columns[name]
        if column is None:
            return np.zeros(self.n, dtype=bool), np.zeros(self.n, dtype=bool)
        texts = pc.utf8_lower(pc.cast(column, pyarrow.string()))
        true = self._mask(pc.is_in(texts, pyarrow.array(["true", "1"])))
        false = self._mask(pc.is_in(texts, pyarrow.array(["false", "0"])))
        self.check(true | false | self.is_null(name), f"{name} is not true or false")
        return true, false

    def codes(self, name: str) -> tuple[Ints, list[str]]:
        """A column of words as numbers, and the words in the order of their numbers.

        Returns:
            Shape (n,). -1 where a row has none; and the words.
        """
        column = self._columns[name]
        if column is None:
            return np.full(self.n, -1), []
        encoded = pc.cast(column, pyarrow.string()).combine_chunks().dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return np.asarray(codes, dtype=np.int64), encoded.dictionary.to_pylist()

    def check(self, fine: Bools, message: str) -> None:
        """Refuses the files if a row is not fine; the message names the first such row."""
        if not fine.all():
            self.refuse(~fine, message)

    def refuse(self, wrong: Bools, message: str) -> NoReturn:
        """Raises InvalidRequestError with the first of the wrong rows and their number."""
        first, count = int(np.argmax(wrong)), int(wrong.sum())
        more = f" (and {count - 1} more such rows)" if count > 1 else ""
        raise InvalidRequestError(f"{self.place(first)}: {message}{more}")

    def place(self, index: int) -> str:
        """File and row number of a row, from 1."""
        number = int(np.searchsorted(self._ends, index, side="right"))
        begin = int(self._ends[number - 1]) if number else 0
        return f"{self._files[number]}, row {index - begin + 1}"

    def _mask(self, flags: pyarrow.ChunkedArray) -> Bools:
        filled = flags.fill_null(False).to_numpy(zero_copy_only=False)
        return np.asarray(filled, dtype=bool)

    def _joined(self, tables: list[pyarrow.Table], name: str) -> pyarrow.ChunkedArray | None:
        columns = [table[name] if name in table.column_names else None for table in tables]
        kinds = {column.type for column in columns if column is not None}
        if not kinds:
            return None
        # Numbers in one file and texts in another are all taken as texts.
        kind = kinds.pop() if len(kinds) == 1 else pyarrow.string()
        chunks = [
            pyarrow.nulls(len(table), kind) if column is None else pc.cast(column, kind)
            for table, column in zip(tables, columns, strict=True)
        ]
        flat = [
            chunk
            for part in chunks
            for chunk in (part.chunks if isinstance(part, pyarrow.ChunkedArray) else [part])
        ]
        return pyarrow.chunked_array(flat, type=kind)
