"""Records are made of the fields of objects, and a broken property is not a missing field."""

from dataclasses import dataclass
from typing import Any

import pytest

from app.api.answers.making import made


@dataclass
class Record:
    name: str = "default"
    n: int = 0


@dataclass
class Named:
    name: str


@dataclass
class Counted:
    name: str
    n: int


class Broken:
    @property
    def name(self) -> str:
        of_nothing: Any = None
        return str(of_nothing.name)


def test_the_first_source_that_has_a_field_decides_and_a_broken_property_is_an_error() -> None:
    sources = Named("first"), Counted("second", 3)
    assert made(Record, *sources) == Record("first", 3)
    assert made(Record, *reversed(sources), n=4) == Record("second", 4)
    assert made(Record, None, object()) == Record()
    with pytest.raises(AttributeError, match="no attribute 'name'"):
        made(Record, Broken(), *sources)
