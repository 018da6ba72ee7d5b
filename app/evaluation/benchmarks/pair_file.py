"""Labelled pairs in a user's file."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from app.core.comparison import Turn
from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.evaluation.benchmarks.rows import LeftOut, RawPair, digest_of, user_turn
from app.files.reading import Row, read_rows
from app.files.shapes import Shape, label_in, shape_for


def file_pairs(path: Path, shape: Shape | None = None) -> Iterator[RawPair | LeftOut]:
    """Reads the rows of a file of any format that `app.files.reading` knows.

    Args:
        path: The file.
        shape: How the rows hold their comparison; None to recognise it from the first row.

    Raises:
        InvalidRequestError: The file cannot be read, its shape is unknown, or a label is no known
            word. The message names the file and the line.
    """
    for row in read_rows(path):
        try:
            shape = shape or shape_for(row.fields)
            label = label_in(row.fields, shape)
        except (InvalidComparisonError, InvalidRequestError) as exc:
            raise InvalidRequestError(f"{row.place}: {exc.detail}") from None
        yield _pair(row, shape, label)


def _pair(row: Row, shape: Shape, label: str | None) -> RawPair | LeftOut:
    for column in shape.columns:
        if row.fields.get(column) is None:
            return LeftOut(f"no {column}")
    if label is None:
        return LeftOut("no label")
    if not _is_encodable(row.fields):
        return LeftOut("half of a surrogate pair")
    try:
        fields = shape.fields(row.fields)
    except InvalidComparisonError as exc:
        return LeftOut(exc.detail)
    turns = _turns(fields["question"])
    a, b = (_texts(fields[name]) for name in ("response_a", "response_b"))
    pair_id, group = (
        None if row.fields.get(key) is None else str(row.fields[key]) for key in ("id", "group")
    )
    # "line-7" or "row-7".
    place = "-".join(row.place.split()[-2:])
    return RawPair(pair_id or place, group or digest_of(turns), turns, a, b, label)


def _is_encodable(row: Mapping[str, Any]) -> bool:
    """Whether UTF-8 can encode all texts: JSON can carry a lone surrogate."""
    try:
        json.dumps(row, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return False
    return True


def _turns(value: Any) -> tuple[Turn, ...]:
    if isinstance(value, str):
        return user_turn(value)
    return tuple(Turn(turn["role"], turn["content"]) for turn in value)


def _texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
