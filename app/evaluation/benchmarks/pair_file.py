"""Labelled pairs in a user's file of any format."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from app.core.comparison import Turn
from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.evaluation.benchmarks.rows import LeftOut, RawPair, digest_of, user_turn
from app.files.reading import FileRow, read_rows
from app.files.shapes import ComparisonShape, shape_for


def file_pairs(path: Path, shape: ComparisonShape | None = None) -> Iterator[RawPair | LeftOut]:
    """Reads the rows of a file; `app.files` describes formats and shapes.

    Args:
        path: The file.
        shape: Columns that hold the comparison; None to recognise them by the first row.

    Raises:
        InvalidRequestError: The file cannot be read, or its first row is no labelled comparison.
            The message names the file and the line.
    """
    for number, row in enumerate(read_rows(path)):
        try:
            shape = shape or shape_for(row.fields)
            yield _pair(row, shape.labelled(row.fields))
        except InvalidRequestError as exc:
            raise InvalidRequestError(f"{row.place}: {exc.detail}") from None
        except InvalidComparisonError as exc:
            if number == 0:
                # The other rows will hardly be better.
                raise InvalidRequestError(f"{row.place}: {exc.detail}") from None
            yield LeftOut(reason=exc.detail)


def _pair(row: FileRow, fields: Mapping[str, Any]) -> RawPair | LeftOut:
    if not _is_encodable(fields):
        return LeftOut(reason="half of a surrogate pair")
    turns = _turns(fields["question"])
    pair_id, group = (
        None if row.fields.get(key) is None else str(row.fields[key]) for key in ("id", "group")
    )
    return RawPair(
        # "pairs.jsonl, line 7" -> "line-7".
        id=pair_id or row.place.rpartition(", ")[2].replace(" ", "-"),
        group=group or digest_of(turns),
        question=turns,
        response_a=_texts(fields["response_a"]),
        response_b=_texts(fields["response_b"]),
        label=fields["label"],
    )


def _is_encodable(fields: Mapping[str, Any]) -> bool:
    """Whether UTF-8 can encode all texts: JSON can carry a lone surrogate."""
    try:
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _turns(question: str | list[dict[str, Any]]) -> tuple[Turn, ...]:
    if isinstance(question, str):
        return user_turn(question)
    return tuple(Turn(turn["role"], turn["content"]) for turn in question)


def _texts(response: str | list[str]) -> tuple[str, ...]:
    return (response,) if isinstance(response, str) else tuple(response)
