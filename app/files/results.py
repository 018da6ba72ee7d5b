"""Where the results of `scope-judge judge FILE` are among the columns of its rows.

They are one object under `judgment`, or flat: columns of their own, such as `verdict`, `p_bar` and
`calibration_name`. A name that the input had already was avoided: `judgment_2`, or `judgment_alpha`
and `judgment_alpha_2` for `alpha`.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

RESULT = "judgment"
# Field with an object -> the values of it that flat results have. Earlier releases wrote the
# object as JSON.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "calibration": ("name", "version", "n"),
    "audit": ("id", "rate"),
    "error": ("code", "detail"),
}
_OBJECTS = tuple(_PARTS)
_NUMBERS = (
    "p_fwd",
    "p_rev",
    "p_bar",
    "uncertainty",
    "confidence",
    "threshold",
    "alpha",
    "delta",
    "risk_level",
    "label_mass",
    "temperature",
)
_WHOLE = ("orders", "calibration_version", "calibration_n")
_PART_NUMBERS = ("audit_rate",)
_WORDS = ("verdict", "preferred", "reason", "threshold_of", "guarantee", "judge")
_FLAT_PARTS = tuple(f"{field}_{part}" for field, parts in _PARTS.items() for part in parts)
_FLAGS = ("cached", "bounded")
FIELDS = (*_WORDS, *_NUMBERS, "orders", *_FLAGS, *_OBJECTS, *_FLAT_PARTS)
_SETS: Mapping[str, tuple[str, ...]] = {
    "verdict": ("A", "B", "abstain"),
    "preferred": ("A", "B"),
    "reason": ("off_task", "no_preference", "suspended", "infeasible", "uncertain"),
    "guarantee": ("marginal", "pac"),
}
# Fields of which a judgment, or an error, has one at least.
_ESSENTIAL = ("verdict", "error")
_FLAT_ESSENTIAL = (*_ESSENTIAL, "error_code")


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultColumns:
    """The columns that hold results.

    Args:
        nested: The column with an object; None for flat results.
        flat: Field -> its column, for flat results.
    """

    nested: str | None
    flat: Mapping[str, str]

    def result(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a row without its nulls; {} if it has none."""
        if self.nested is not None:
            fields = _object(row.get(self.nested)) or {}
        else:
            fields = {field: row.get(column) for field, column in self.flat.items()}
        found = {name: _value(name, value) for name, value in fields.items() if value is not None}
        return found if self.nested is not None else _with_objects(found)

    def without(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row without its result."""
        own = {self.nested} if self.nested is not None else set(self.flat.values())
        return {name: value for name, value in row.items() if name not in own}


class OutputColumns:
    """Names the columns of results: none takes the name of a column of the input.

    Args:
        taken: Names of all columns of the input.
        flat: Write the fields of a result as columns, not as one object.
    """

    def __init__(self, taken: Collection[str], *, flat: bool) -> None:
        self._taken = taken
        self._flat = flat
        self._names: dict[str, str] = {}

    def row(self, kept: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
        """A row of the output: columns of the input, and the result."""
        if not self._flat:
            return {**kept, self._name(RESULT): dict(result)}
        return {**kept, **{self._name(name): value for name, value in _flat(result).items()}}

    def _name(self, wanted: str) -> str:
        """The name of a column that no row has, e.g. "judgment_alpha"."""
        if wanted not in self._names:
            name, number = wanted, 2
            if name in self._taken and self._flat:
                name = f"{RESULT}_{wanted}"
            base = name
            while name in self._taken:
                name, number = f"{base}_{number}", number + 1
            self._names[wanted] = name
        return self._names[wanted]


def _flat(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result whose objects are values of their own, such as `error_code`."""
    flat: dict[str, Any] = {}
    for name, value in result.items():
        if name in _PARTS:
            values = value or {}
            flat |= {f"{name}_{part}": values[part] for part in _PARTS[name] if part in values}
        else:
            flat[name] = value
    return flat


def _with_objects(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The result that was made flat; an object of which nothing is known is left out."""
    result = {name: value for name, value in flat.items() if name not in _FLAT_PARTS}
    for name, parts in _PARTS.items():
        values = {part: flat[f"{name}_{part}"] for part in parts if f"{name}_{part}" in flat}
        if values:
            result.setdefault(name, values)
    return result


def result_columns(rows: Iterable[Mapping[str, Any]]) -> ResultColumns | None:
    """Finds the columns with the results of `scope-judge judge`; None if there are none.

    Args:
        rows: All rows of a file: any of them may lack a column.
    """
    rows = list(rows)
    columns: dict[str, None] = {}
    nested: dict[str, None] = {}
    for row in rows:
        columns |= dict.fromkeys(row)
        for name in row:
            if name not in nested and re.fullmatch(rf"{RESULT}(_\d+)?", name):
                result = _object(row[name]) or {}
                if any(field in result for field in _ESSENTIAL):
                    nested[name] = None
    if nested:
        return ResultColumns(nested=max(nested, key=_number), flat={})
    names = {field: _flat_name(field, columns) for field in FIELDS}
    # A column that has other values is the input's own, and the result's one had no value.
    flat = {
        field: name
        for field, name in names.items()
        if name is not None and all(_fits(field, row.get(name)) for row in rows)
    }
    if not any(field in flat for field in _FLAT_ESSENTIAL):
        return None
    return ResultColumns(nested=None, flat=flat)


def _flat_name(field: str, columns: Mapping[str, None]) -> str | None:
    """The last name that a field can have: the earlier ones were taken by the input."""
    longer = [name for name in columns if re.fullmatch(rf"{RESULT}_{field}(_\d+)?", name)]
    return max(longer, key=_number) if longer else (field if field in columns else None)


def _fits(field: str, value: Any) -> bool:
    """Whether a field of a result can have this value."""
    if value is None:
        return True
    if field in _OBJECTS:
        return _object(value) is not None
    if field in _SETS:
        return value in _SETS[field]
    others = (*_NUMBERS, *_PART_NUMBERS, *_WHOLE, *_FLAGS)
    return field not in others or not isinstance(_value(field, value), str)


def _number(name: str) -> int:
    ending = re.search(r"_(\d+)$", name)
    return int(ending[1]) if ending else 1


def _object(value: Any) -> dict[str, Any] | None:
    """An object, or its JSON as CSV has it; None for anything else."""
    if isinstance(value, str) and value.startswith("{"):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    return value if isinstance(value, dict) else None


def _value(field: str, value: Any) -> Any:
    """A value as JSON would have it: the cells of CSV are texts."""
    if not isinstance(value, str):
        return value
    if field in _OBJECTS:
        return _object(value) or value
    if field in _FLAGS:
        return {"true": True, "false": False}.get(value.lower(), value)
    if field in _WHOLE:
        with suppress(ValueError):
            return int(value)
    elif field in (*_NUMBERS, *_PART_NUMBERS):
        with suppress(ValueError):
            # None of these numbers reaches a thousand: a comma is a decimal comma.
            return float(value.replace(",", "."))
    return value
