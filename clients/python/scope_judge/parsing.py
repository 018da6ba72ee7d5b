"""Reads JSON into frozen dataclasses; fields that a dataclass does not have are ignored."""

import types
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from scope_judge.errors import AnswerError

T = TypeVar("T")
_PLAIN = (str, int, float, bool, type(None))


class _MismatchError(Exception):
    """A value does not fit the dataclass; the message is the path of its field."""


def parse(cls: type[T], value: Any) -> T:
    """Reads a JSON object into a dataclass."""
    try:
        hint: Any = cls
        parsed: T = _Reader.of(hint).read(value)
    except _MismatchError as exc:
        field = str(exc)
    else:
        return parsed
    where = f"`{field}` of {cls.__name__}" if field else cls.__name__
    raise AnswerError(
        f"the answer does not fit this client at {where}: check that the address is that of a "
        "scope-judge service, and install the client of the service's version",
        code="unexpected_answer",
    )


class _Reader:
    """Checks and converts JSON values of one type, or of one of a union's types.

    Args:
        hint: A union has at most one list, and one dataclass or dict with texts as keys, among its
            types. The items of a list have one type.
    """

    def __init__(self, hint: Any) -> None:
        kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        self.plain = frozenset(kind for kind in kinds if kind in _PLAIN)
        self._words = {
            word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)
        }
        items = [get_args(kind) for kind in kinds if get_origin(kind) is tuple]
        self._item = _Reader.of(items[0][0]) if items else None
        self._length = len(items[0]) if items and items[0][-1] is not Ellipsis else None
        values = [get_args(kind)[1] for kind in kinds if get_origin(kind) is dict]
        self._value = _Reader.of(values[0]) if values else None
        self._object = next(filter(is_dataclass, kinds), None)

    @staticmethod
    @cache
    def of(hint: Any) -> "_Reader":
        """The reader of a type; each type has one."""
        return _Reader(hint)

    def read(self, value: Any) -> Any:
        kind = type(value)
        if kind in self.plain or (kind is str and value in self._words):
            return value
        if kind is int and float in self.plain:
            try:
                return float(value)
            except OverflowError:
                raise _MismatchError from None
        if kind is list and self._item is not None and self._length in (None, len(value)):
            return tuple(map(self._item.read, value))
        if kind is dict and self._object is not None:
            return _read_object(self._object, value)
        if kind is dict and self._value is not None:
            return {name: self._value.read(each) for name, each in value.items()}
        raise _MismatchError


@cache
def _fields_of(cls: Any) -> list[tuple[str, _Reader, Any]]:
    """Name, reader and default of each field; one with a default came with a later release."""
    hints = get_type_hints(cls)
    return [(field.name, _Reader.of(hints[field.name]), field.default) for field in fields(cls)]


def _read_object(cls: Any, given: dict[str, Any]) -> Any:
    values = {}
    for name, reader, default in _fields_of(cls):
        value = given.get(name, default)
        if value is MISSING:
            raise _MismatchError(name)
        try:
            # Most values are checked here, which takes half the time of calls of readers.
            values[name] = value if type(value) in reader.plain else reader.read(value)
        except _MismatchError as exc:
            raise _MismatchError(f"{name}.{exc}".rstrip(".")) from None
    return cls(**values)
