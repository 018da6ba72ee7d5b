"""Makes records of the objects that have their fields, and JSON of records."""

import dataclasses
import json
from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter

from app.core.errors import InternalError

R = TypeVar("R")


def made(kind: type[R], /, *sources: object, **given: Any) -> R:
    """A record with the given fields; each other one is that of the first source that has it.

    So the order of the sources decides. A field that no source has keeps its default. A source has
    the fields and properties that its class declares.
    """
    for name, place in _places(cast(Hashable, kind), tuple(map(type, sources))):
        if name not in given:
            given[name] = getattr(sources[place], name)
    return kind(**given)


@cache
def _places(kind: Hashable, sources: tuple[type, ...]) -> list[tuple[str, int]]:
    """The place of the first source that has a field, for each field of a record."""
    return [
        (field.name, place)
        for field in dataclasses.fields(cast(Any, kind))
        for place in [i for i, each in enumerate(sources) if _declares(each, field.name)][:1]
    ]


def _declares(source: type, name: str) -> bool:
    return hasattr(source, name) or name in getattr(source, "__dataclass_fields__", ())


def to_json(record: Any) -> bytes:
    """The JSON of a record.

    Raises:
        InternalError: A number is NaN or infinite. pydantic's own writer makes it null, which has
            a meaning in answers.
    """
    value = _adapter(cast(Hashable, type(record))).dump_python(record, mode="json")
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except ValueError as exc:
        raise InternalError(f"a {type(record).__name__} has a number that is not finite") from exc
    return text.encode()


# Making one takes a few milliseconds.
@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, kind))
