"""Refuses rows with two columns of one name, of which only the last would be read."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from app.core.errors import InvalidRequestError


class RepeatingObject(dict[str, Any]):
    """A JSON object in which a name occurs twice; it has the last value of each name.

    Attributes:
        names: The names as they are written.
    """

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.names = [name for name, _ in pairs]


def json_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object of its names and values, for `object_pairs_hook` of `json`."""
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else RepeatingObject(pairs)


def check_object(value: Any, place: str) -> None:
    """Refuses a row that `json_object` has made of repeated names.

    Objects within the row may repeat names: they are the user's own.

    Raises:
        InvalidRequestError: A name occurs twice.
    """
    if isinstance(value, RepeatingObject):
        check_columns(value.names, place)


def check_columns(names: Sequence[str], place: str) -> None:
    """Refuses names of columns of which one is repeated.

    Raises:
        InvalidRequestError: A column occurs twice.
    """
    if len(set(names)) < len(names):
        [(repeated, _)] = Counter(names).most_common(1)
        raise InvalidRequestError(f"{place}: the column {repeated!r} occurs twice")
