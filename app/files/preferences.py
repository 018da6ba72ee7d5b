"""Preference pairs for training: the preferred response of a row, and the row turned round."""

from collections.abc import Mapping
from typing import Any

from app.core.comparison import Label
from app.core.errors import InvalidComparisonError
from app.files.shapes import ComparisonShape, label_in

_OPPOSITES = (
    ("a", "b"),
    ("model_a", "model_b"),
    ("response_a", "response_b"),
    ("left", "right"),
    ("[[a]]", "[[b]]"),
)


def preferred_of(row: Mapping[str, Any], shape: ComparisonShape) -> Label:
    """The label of a row; without a label, the first response is the preferred one.

    Raises:
        InvalidComparisonError: The label is not a known word.
    """
    label = label_in(row, shape)
    if label is not None:
        return label
    if row.get(shape.label) is not None:
        raise InvalidComparisonError(f"there is no label in {shape.label}")
    return "A"


def turned_round(row: Mapping[str, Any], shape: ComparisonShape) -> dict[str, Any]:
    """The row with the other response preferred.

    The label becomes its opposite. Without a label, the two responses change places.

    Raises:
        InvalidComparisonError: The label has no opposite.
    """
    if shape.label and row.get(shape.label) is not None:
        return {**row, shape.label: _opposite(row[shape.label])}
    first, second = _responses(shape)
    return {**row, first: row[second], second: row[first]}


def _responses(shape: ComparisonShape) -> tuple[str, str]:
    """The columns of the preferred and of the other response."""
    first, second = shape.columns[-2:]
    return first, second


def _opposite(label: Any) -> Any:
    word = str(label).strip().lower()
    for pair in _OPPOSITES:
        if word in pair:
            other = pair[1 - pair.index(word)]
            return other.upper() if str(label).strip().isupper() else other
    raise InvalidComparisonError(f"the label {str(label)[:40]!r} has no opposite")
