"""Columns of battle files as arrays, with the place of each row for messages."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from app.core.errors import InvalidRequestError
from app.core.printable import encodable
from app.files.reading import files_of, read_rows
from app.ratings.bradley_terry import Bools, Floats, Ints

_OF_JUDGE = ("guarantee", "judge", "signature")
_TEXTS = ("model_a", "model_b", "winner", "reason", "error", *_OF_JUDGE)
_IDENTIFIERS = ("id", "question_id", "group", "human")
_NUMBERS = ("p_bar", "p_fwd", "p_rev", "alpha", "human_probability")
_NAMES = (*_TEXTS, *_IDENTIFIERS, *_NUMBERS, "accepted")


def _number(value: Any) -> float | None:
    """A number, also as a text; NaN for no value, and None for a value that is not a number."""
    try:
        return np.nan if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
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
        files = files_of(inputs)
        self._columns: dict[str, list[Any]] = {name: [] for name in _NAMES}
        self._places: list[str] = []
        for row in (row for file in files for row in read_rows(file, encoding)):
            self._places.append(row.place)
            for name, column in self._columns.items():
                column.append(row.fields.get(name))
        self.n = len(self._places)
        if not self.n:
            raise InvalidRequestError(f"{', '.join(map(str, files))}: there is no row")

    def __contains__(self, name: str) -> bool:
        return any(value is not None for value in self._columns[name])

    def is_null(self, name: str) -> Bools:
        """Shape (n,). Whether a row has no value."""
        return np.array([value is None for value in self._columns[name]])

    def numbers(self, name: str) -> Floats:
        """Shape (n,). A column of numbers; NaN where a row has none.

        Raises:
            InvalidRequestError: A value is not a finite number.
        """
        parsed = [_number(value) for value in self._columns[name]]
        self.check(np.array([n is not None for n in parsed]), f"{name} is not a number")
        values = np.array(parsed, dtype=np.float64)
        self.check(np.isfinite(values) | self.is_null(name), f"{name} is not a finite number")
        return values

    def flags(self, name: str) -> tuple[Bools, Bools]:
        """Shape (n,) each. The rows where a flag is true, and those where it is false."""
        texts = [str(value).lower() for value in self._columns[name]]
        true = np.array([text in ("true", "1") for text in texts])
        false = np.array([text in ("false", "0") for text in texts])
        self.check(true | false | self.is_null(name), f"{name} is not true or false")
        return true, false

    def codes(self, name: str) -> tuple[Ints, list[str]]:
        """A column of words as numbers, and the words in the order of their numbers.

        Returns:
            Shape (n,). -1 where a row has none; and the words.
        """
        codes: dict[str, int] = {}
        column = self._columns[name]
        numbers = [-1 if v is None else codes.setdefault(_word(v), len(codes)) for v in column]
        return np.array(numbers, dtype=np.int64), list(codes)

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
        """File, and line or row number of a row."""
        return self._places[index]


def _word(value: Any) -> str:
    return encodable(str(value))
