"""Describes the fields of the OpenAPI document whose models do not."""

import tomllib
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("fields.toml")


def describe_fields(document: dict[str, Any]) -> None:
    """Adds the meanings of `fields.toml` to an OpenAPI document.

    Raises:
        KeyError: A field or a parameter has no description anywhere.
    """
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
