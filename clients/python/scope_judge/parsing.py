"""Reads JSON into frozen dataclasses; fields that a dataclass does not have are ignored."""

import types
from collections.abc import Callable, Hashable
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from scope_judge.errors import AnswerError

T = TypeVar("T")
_Reader = Callable[[Any], Any]


class _MismatchError(Exception):
    """A value has another type than the dataclass; the message is the path of its field."""


def parse(cls: type[T], value: Any) -> T:
    """Reads a JSON object into a dataclass.

    Raises:
        AnswerError: A field is missing, or has another type.
    """
    try:
        parsed: T = _reader(cast(Hashable, cls))(value)
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


@cache
def _reader(hint: Any) -> _Reader:
    """The function that checks and converts a JSON value of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _of_union(arguments)
    if origin is Literal:
        return _of_values(arguments)
    if origin is tuple:
        return _of_list(_reader(arguments[0]))
    if origin is dict:
        return _of_mapping(_reader(arguments[1]))
    if hint is float:
        return _float
    if hint in (str, int, bool):
        return _of_type(hint)
    return _of_object(hint)


def _plain_types(hint: Any) -> frozenset[type]:
    """The types of JSON values that are those of a type as they are."""
    arguments = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return frozenset(each for each in arguments if each in (str, int, float, bool, type(None)))


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise _MismatchError


def _of_type(kind: type) -> _Reader:
    def read(value: Any) -> Any:
        if type(value) is kind:
            return value
        raise _MismatchError

    return read


def _of_values(values: tuple[Any, ...]) -> _Reader:
    def read(value: Any) -> Any:
        if type(value) is str and value in values:
            return value
        raise _MismatchError

    return read


def _of_union(arguments: tuple[Any, ...]) -> _Reader:
    nullable = type(None) in arguments
    readers = [_reader(each) for each in arguments if each is not type(None)]

    def read(value: Any) -> Any:
        if value is None and nullable:
            return None
        for reader in readers:
            try:
                return reader(value)
            except _MismatchError:
                continue
        raise _MismatchError

    return read


def _of_list(item: _Reader) -> _Reader:
    def read(value: Any) -> Any:
        if type(value) is not list:
            raise _MismatchError
        return tuple(map(item, value))

    return read


def _of_mapping(item: _Reader) -> _Reader:
    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _MismatchError
        return {name: item(each) for name, each in value.items()}

    return read


def _of_object(cls: Any) -> _Reader:
    hints = get_type_hints(cls)
    # Name, types that need no reader, reader, default; a field with a default came with a later
    # release of the service.
    read_as = [
        (each.name, _plain_types(hints[each.name]), _reader(hints[each.name]), each.default)
        for each in fields(cls)
    ]

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _MismatchError
        found = []
        for name, plain, reader, default in read_as:
            try:
                each = value[name]
                # Most values are checked here, which takes half the time of calls of readers.
                found.append(each if type(each) in plain else reader(each))
            except KeyError:
                if default is MISSING:
                    raise _MismatchError(name) from None
                found.append(default)
            except _MismatchError as exc:
                raise _MismatchError(f"{name}.{exc}".rstrip(".")) from None
        return cls(*found)

    return read
