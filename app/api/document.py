"""Describes the answers in the OpenAPI document by the docstrings of their dataclasses."""

import dataclasses
import inspect
import re
from typing import Any

from app.api.answers import decisions, judgments
from app.api.problems import STATUS
from scope_judge import records

_DECLARED = {**vars(decisions), **vars(judgments), **vars(records)}


def describe_answers(schemas: dict[str, Any]) -> None:
    """Adds the docstrings of answers, and the codes of STATUS to those of a problem."""
    for name, schema in schemas.items():
        record = _DECLARED.get(name)
        if isinstance(record, type) and dataclasses.is_dataclass(record):
            about, _, _ = inspect.cleandoc(record.__doc__ or "").partition("\n\nArgs:\n")
            schema["description"] = _in_json(about)
            for field, meaning in record_meanings(record).items():
                if field in schema["properties"]:
                    schema["properties"][field]["description"] = meaning
    schemas["Problem"]["properties"]["code"]["enum"] = [error.code for error in STATUS]


def record_meanings(record: type) -> dict[str, str]:
    """The meaning of each field of a record, from its docstring or those of its bases."""
    names = (field.name for field in dataclasses.fields(record))
    meanings = {
        name: _in_json(records.MEANINGS[name]) for name in names if name in records.MEANINGS
    }
    for kind in reversed(record.__mro__[:-1]):
        _, _, arguments = inspect.cleandoc(kind.__doc__ or "").partition("Args:\n")
        section, _, _ = arguments.partition("\n\n")
        for name, meaning in re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE):
            meanings[name] = _in_json(meaning)
    return meanings


def _in_json(text: str) -> str:
    """The text in one line, with the word that JSON has for None."""
    return re.sub(r"\bNone\b", "null", re.sub(r"\s+", " ", text))
