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

    So the order of the sources decides. A field that no source has keeps its default.
    """
    for name in _names(cast(Hashable, kind)):
        source = next((each for each in sources if _has(each, name)), None)
        if source is not None and name not in given:
            given[name] = getattr(source, name)
    return kind(**given)


def _has(source: object, name: str) -> bool:
    # `hasattr` calls a property, and would take an AttributeError within it for a missing one.
    return hasattr(type(source), name) or name in getattr(source, "__dict__", ())


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cast(Any, kind)))


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
