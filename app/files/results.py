"""The columns that `scope-judge judge FILE` adds to the columns of its input.

A result is one object in the column `judgment`, or flat: columns such as `verdict` and
`calibration_name`. Where the input has a column of that name, as after an earlier run, the new one
begins with `judgment_`. So the longest name is that of the last run.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

RESULT = "judgment"
# The answers of the judge that `curve` and `evaluate` read.
ANSWERS = ("p_fwd", "p_rev", "label_mass", "orders", "judge")
# Field with an object -> the values of it that flat results have.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "calibration": ("name", "version", "n"),
    "audit": ("id", "rate"),
    "error": ("code", "detail"),
}


def with_result(
    row: Mapping[str, Any], result: Mapping[str, Any], *, taken: Collection[str], flat: bool
) -> dict[str, Any]:
    """A row of the output: its columns, and the result.

    Args:
        row: Columns of the input.
        result: The judgment, or its error.
        taken: Names of all columns of the input.
        flat: Write the fields of the result as columns, not as one object.
    """
    new = _flat(result) if flat else {RESULT: dict(result)}
    return {**row, **{_free(name, taken): value for name, value in new.items()}}


def _free(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name = f"{RESULT}_{name}"
    return name


def _flat(result: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in result.items():
        if name in _PARTS:
            values = value or {}
            flat |= {f"{name}_{part}": values[part] for part in _PARTS[name] if part in values}
        else:
            flat[name] = value
    return flat


def with_answers(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a file, each with the judge's answers of the last run under their own names."""
    rows = list(rows)
    columns = {name for row in rows for name in row}
    names = {field: _last(field, columns) for field in (RESULT, *ANSWERS)}
    return [{**row, **_answers(row, names)} for row in rows]


def _last(name: str, columns: Iterable[str]) -> str:
    same = (column for column in columns if re.fullmatch(f"({RESULT}_)*{name}", column))
    return max(same, key=len, default=name)


def _answers(row: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    result = row.get(names[RESULT])
    if isinstance(result, str) and result.startswith("{"):
        # A table has objects as JSON.
        with suppress(ValueError, RecursionError):
            result = json.loads(result)
    if isinstance(result, dict) and {"error", *ANSWERS} & result.keys():
        return {field: result.get(field) for field in ANSWERS}
    return {field: row.get(names[field]) for field in ANSWERS}
