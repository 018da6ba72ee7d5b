"""A record's field that an object fails to compute is an error, and not a missing field."""

from dataclasses import dataclass
from typing import Any

import pytest

from app.api.answers.making import made


@dataclass
class Record:
    name: str = "default"


class Broken:
    @property
    def name(self) -> str:
        of_nothing: Any = None
        return str(of_nothing.name)


def test_a_broken_property_is_no_missing_field() -> None:
    assert made(Record, object()) == Record("default")
    with pytest.raises(AttributeError, match="no attribute 'name'"):
        made(Record, Broken())
