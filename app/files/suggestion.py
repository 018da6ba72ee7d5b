"""A map to start from, for messages: the columns of a file whose names are nearest to the fields.

Nothing is read by it before a person has used it.
"""

import csv
import difflib
import io
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from app.core.errors import InvalidRequestError
from app.files.shapes import LABEL, REQUIRED, ComparisonShape, known_shape, listed

Row = Mapping[str, Any]

# Likeness of names from which on one is suggested, as `difflib` measures it.
_LIKE = 0.75


def shape_for(row: Row) -> ComparisonShape:
    """The first shape whose columns a row has.

    Raises:
        InvalidRequestError: None fits. The message names the columns and the nearest names.
    """
    shape = known_shape(row)
    if shape is not None:
        return shape
    raise InvalidRequestError(
        f"the columns are {listed(row)}, and a comparison needs question, response_a and "
        f"response_b: name the columns with --map {suggested_map(row)}"
    )


def suggested_map(
    row: Row,
    shape: ComparisonShape | None = None,
    more: Sequence[str] = (),
    *,
    labelled: bool = False,
) -> str:
    """A map with the nearest column of each field, or COLUMN, quoted for a shell.

    Args:
        row: A row, whose columns are those of the file.
        shape: The columns that are known; None if none is.
        more: Further fields of the map.
        labelled: Whether the map is for the label, which needs no texts.
    """
    fields = (*REQUIRED, *more, *((LABEL,) if labelled else ()))
    columns = {} if shape is None else dict(zip(REQUIRED, shape.texts, strict=True))
    for field in fields:
        others = [str(name) for name in row if name not in columns.values()]
        if field not in columns and (column := _nearest(field, others)) is not None:
            columns[field] = column
    parts = [
        f"{field}={columns.get(field, 'COLUMN')}"
        for field in fields
        if field in columns or field == LABEL or not labelled
    ]
    return shlex.quote(joined_map([*parts, *(("A=WORD", "B=WORD") if labelled else ())]))


def joined_map(parts: Sequence[str]) -> str:
    """A map of its parts, quoted where a part has a comma."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(parts)
    return text.getvalue()


def _nearest(field: str, names: Sequence[str]) -> str | None:
    """The name that is most like a field, the first of equal ones; None if none is."""
    likeness = {name: _likeness(field, name) for name in names}
    best = max(likeness, key=likeness.__getitem__, default=None)
    return best if best is not None and likeness[best] >= _LIKE else None


def _likeness(field: str, name: str) -> float:
    spelled = name.lower().replace(" ", "_").replace("-", "_")
    return difflib.SequenceMatcher(None, spelled, field).ratio()
