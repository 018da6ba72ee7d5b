"""The words that data sets use for the better response, and the columns and words of a map."""

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.comparison import Label
from app.core.errors import InvalidComparisonError, InvalidRequestError

LABELS: tuple[Label, ...] = ("A", "B", "tie")
# Word in lower case -> label.
KNOWN_WORDS: Mapping[str, Label] = {
    **dict.fromkeys(("a", "model_a", "response_a", "left", "[[a]]"), "A"),
    **dict.fromkeys(("b", "model_b", "response_b", "right", "[[b]]"), "B"),
    **dict.fromkeys(("tie", "draw", "both_bad", "tie (bothbad)", "bothbad"), "tie"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedColumns:
    """The columns and the words that a map names.

    Args:
        columns: Field -> its column; a field that the map leaves out has its own name.
        words: Word of the label in lower case -> label. A label that the map names has only the
            words of the map.
    """

    columns: Mapping[str, str]
    words: Mapping[str, Label]


def named_columns(text: str | None, fields: Sequence[str]) -> NamedColumns:
    """Reads a map such as `label=Better?,A=Answer 1,B=Answer 2,tie=equal`.

    A part with a comma is quoted as in CSV. Fields have one column each; a label may have several
    words. Without a text, all columns and words have their usual names.

    Raises:
        InvalidRequestError: The text is not a map of these fields and of labels.
    """
    columns = {name: name for name in fields}
    words: dict[Label, list[str]] = defaultdict(list)
    for part in () if text is None else _parts(text):
        field, equals, value = (piece.strip() for piece in part.partition("="))
        label = next((label for label in LABELS if label == field), None)
        if not equals or not value or (field not in columns and label is None):
            raise InvalidRequestError(
                f"--map: {part.strip()!r} is not FIELD=COLUMN with one of the fields "
                f"{', '.join(columns)}, nor A=WORD, B=WORD or tie=WORD for the words of the label"
            )
        if label is None:
            columns[field] = value
        else:
            words[label].append(spelled(value))
    return NamedColumns(columns=columns, words=_words_of(words))


def _parts(text: str) -> list[str]:
    try:
        return next(csv.reader([text], skipinitialspace=True, strict=True), [""]) or [""]
    except csv.Error as exc:
        raise InvalidRequestError(f"--map: {text!r} cannot be read: {exc}") from None


def _words_of(named: Mapping[Label, Sequence[str]]) -> Mapping[str, Label]:
    if not named:
        return KNOWN_WORDS
    words = {word: label for word, label in KNOWN_WORDS.items() if label not in named}
    own: dict[str, Label] = {}
    for label, its_words in named.items():
        for word in its_words:
            if own.setdefault(word, label) != label:
                raise InvalidRequestError(
                    f"--map: {word!r} cannot mean both {own[word]} and {label}"
                )
    return {**words, **own}


def is_empty(value: Any) -> bool:
    """Whether a label is missing, as JSON, CSV and pandas write it."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and value != value)


def spelled(value: Any) -> str:
    """A label as a word of a map: in lower case, and whole numbers without decimals."""
    # pandas makes floats of integers if one is missing.
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value).strip().lower()


def label_of(value: Any, words: Mapping[str, Label] = KNOWN_WORDS) -> Label:
    """The label that a word means: "A", "B" or "tie".

    Raises:
        InvalidComparisonError: The word is not known. Nothing else is ever taken for a tie.
    """
    is_word = isinstance(value, str | int | float)
    label = words.get(spelled(value)) if is_word else None
    if label is None:
        raise InvalidComparisonError(
            f"the label {str(value)[:40]!r} is not A, B or tie (or model_a, model_b, both_bad)"
            if words is KNOWN_WORDS
            else f"the label {str(value)[:40]!r} is not a word of the map"
        )
    return label
