"""Makes records of the objects that have their fields, and the responses with their JSON."""

import dataclasses
import json
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, cast

from fastapi import Response
from pydantic import TypeAdapter

from app.core.comparison import Judgment
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


# Seconds since the store last confirmed the thresholds of an answer, while the store is away.
AGE_HEADER = "Scope-Calibration-Age"
AGED: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            AGE_HEADER: {
                "description": "Age of the thresholds: seconds since the calibration store last "
                "confirmed them. Sent only while the store does not answer.",
                "schema": {"type": "integer"},
            }
        }
    }
}


def age_headers(judgments: Iterable[Judgment]) -> dict[str, str]:
    """The header with the age of the oldest calibration, if the store has not confirmed one."""
    ages = (judgment.age_s for judgment in judgments)
    oldest = max(ages, default=0.0)
    return {AGE_HEADER: str(math.ceil(oldest))} if oldest > 0 else {}


def as_json(make: Callable[[], object], *, headers: Mapping[str, str] | None = None) -> Response:
    """The response with the JSON of a record.

    A large one is made in a thread: `await off_loop(as_json, make)`.
    """
    return Response(to_json(make()), media_type="application/json", headers=headers)
