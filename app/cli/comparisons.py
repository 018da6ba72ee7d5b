"""The comparisons in the files that a command is given."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from app.cli.console import failure
from app.core.errors import RequestError, ScopeJudgeError
from app.files.reading import Row, files_of, read_rows
from app.files.shapes import SHAPES, Shape, custom_shape, shape_for

Inputs = Annotated[
    list[Path],
    typer.Argument(
        help="JSONL, JSON, CSV, TSV or Parquet, also as .gz or .zst; folders and patterns; - is "
        "stdin."
    ),
]
ShapeName = Annotated[
    str | None,
    typer.Option(
        "--shape",
        help="Data set whose columns the rows have, instead of recognising it: "
        + ", ".join(SHAPES),
    ),
]
ColumnMap = Annotated[
    str | None,
    typer.Option(
        "--map", help="Names of columns: question=prompt,response_a=chosen,response_b=rejected."
    ),
]


class Item(NamedTuple):
    """One row and the comparison that it holds.

    Args:
        row: The row of the file.
        shape: The shape of its file.
        fields: Fields of the comparison, or the reason why there is none.
        key: Digest of the fields, so that equal comparisons are judged once; the place of a row
            without a comparison.
    """

    row: Row
    shape: Shape
    fields: dict[str, Any] | ScopeJudgeError
    key: str


def read_items(inputs: Sequence[Path], shape: Shape | None, *, labelled: bool) -> list[Item]:
    """Reads all rows of files.

    Args:
        inputs: Files, folders and patterns.
        shape: How the rows hold their comparison; None to recognise it for each file.
        labelled: Whether each comparison must have a label.

    Returns:
        The rows in order; a row without a comparison has its error.

    Raises:
        InvalidRequestError: A file cannot be read.
        typer.Exit: The first row has no comparison.
    """
    items: list[Item] = []
    for path in files_of(inputs):
        its_shape = shape
        for row in read_rows(path):
            its_shape = its_shape or _recognised(row)
            items.append(_item(row, its_shape, labelled=labelled))
    first = items[0]
    if isinstance(first.fields, ScopeJudgeError):
        # The other rows will hardly be better, and a wrong map would fail thousands of them.
        raise failure(f"{first.row.place}: {first.fields.detail}")
    return items


def given_shape(name: str | None, columns: str | None) -> Shape | None:
    """The shape that the options name; None if they name none.

    Raises:
        typer.Exit: The options contradict each other, or name no shape.
    """
    if name is not None and columns is not None:
        raise failure("give --shape or --map, not both")
    if name is not None and name not in SHAPES:
        raise failure(f"--shape {name} is unknown; there are {', '.join(SHAPES)}")
    try:
        return custom_shape(columns) if columns is not None else SHAPES.get(name or "")
    except RequestError as exc:
        raise failure(exc.detail) from None


def _recognised(row: Row) -> Shape:
    try:
        return shape_for(row.fields)
    except RequestError as exc:
        raise failure(f"{row.place}: {exc.detail}") from None


def _item(row: Row, shape: Shape, *, labelled: bool) -> Item:
    try:
        fields = shape.labelled(row.fields) if labelled else shape.fields(row.fields)
    except RequestError as exc:
        return Item(row, shape, exc, row.place)
    return Item(row, shape, fields, comparison_key(fields))


def comparison_key(fields: Mapping[str, Any]) -> str:
    """Digest of the fields of a comparison, so that equal comparisons are judged once."""
    # With NaN: the service reports it.
    text = json.dumps(fields, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
