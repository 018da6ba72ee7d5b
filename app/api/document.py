"""Describes the fields of the OpenAPI document whose models do not."""

import dataclasses
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

from app.api.answers.problems import STATUS
from scope_judge import records

_FILE = Path(__file__).with_name("fields.toml")


def describe_fields(document: dict[str, Any]) -> None:
    """Adds the meanings of `fields.toml` to an OpenAPI document.

    Raises:
        KeyError: A field or a parameter has no description anywhere.
    """
    _describe_records(document["components"]["schemas"])
    meanings = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    for name, schema in document["components"]["schemas"].items():
        base = meanings["extends"].get(name)
        own = {**meanings["any"], **meanings.get(base, {}), **meanings.get(name, {})}
        for field, about in schema["properties"].items():
            about.setdefault("description", own.get(field))
            if about["description"] is None:
                raise KeyError(f"describe {field} of {name} in app/api/fields.toml")
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                _describe_parameter(parameter, meanings)


def _describe_parameter(parameter: dict[str, Any], meanings: dict[str, dict[str, str]]) -> None:
    if "description" in parameter:
        return
    name = parameter["name"]
    parameter["description"] = meanings["parameters"].get(name) or meanings["any"][name]


def _describe_records(schemas: dict[str, Any]) -> None:
    """Adds the docstrings of records, and the codes of STATUS to those of a problem."""
    for name, schema in schemas.items():
        record = getattr(records, name, None)
        if isinstance(record, type) and dataclasses.is_dataclass(record):
            about, _, _ = inspect.cleandoc(record.__doc__ or "").partition("\n\nArgs:\n")
            schema["description"] = _in_json(about)
            meanings = record_meanings(record)
            for field, described in schema["properties"].items():
                if field in meanings:
                    described["description"] = meanings[field]
    if "Problem" in schemas:
        schemas["Problem"]["properties"]["code"]["enum"] = [error.code for error in STATUS]


def record_meanings(record: type) -> dict[str, str]:
    """The meaning of each field of a record, from its docstring and those of its bases."""
    meanings = dict[str, str]()
    for kind in reversed(record.__mro__[:-1]):
        _, _, arguments = inspect.cleandoc(kind.__doc__ or "").partition("Args:\n")
        section, _, _ = arguments.partition("\n\n")
        for name, meaning in re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE):
            meanings[name] = _in_json(re.sub(r"\s+", " ", meaning))
    return meanings


def _in_json(text: str) -> str:
    """The text with the word that JSON has for None."""
    return re.sub(r"\bNone\b", "null", re.sub(r"\s+", " ", text))
