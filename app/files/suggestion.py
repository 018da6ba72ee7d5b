"""A map that may fit the columns of a file and the words of its labels, for messages.

It is a guess that a person reads before it is used: nothing is read by a guess.
"""

import csv
import io
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from app.core.comparison import Label
from app.core.errors import InvalidRequestError
from app.files.labels import KNOWN_WORDS, LABELS, is_empty, spelled
from app.files.shapes import LABEL, REQUIRED, SHAPES, ComparisonShape, known_shape, listed

Row = Mapping[str, Any]

# More different words cannot be labels, and a few rows show them all.
_MOST_WORDS = 12
_ROWS_READ = 1000
_RESPONSES = ("response", "answer", "output", "completion", "antwort", "ausgabe", "text")
# Words that people use for the fields of a comparison, in lower case with underscores.
_USUAL: Mapping[str, tuple[str, ...]] = {
    "question": (
        "prompt",
        "instruction",
        "input",
        "query",
        "user",
        "text",
        "frage",
        "aufgabe",
        "anfrage",
        "eingabe",
        "question_text",
        "pregunta",
    ),
    "response_a": ("chosen", *(f"{name}_{side}" for side in "a1" for name in _RESPONSES), "a"),
    "response_b": ("rejected", *(f"{name}_{side}" for side in "b2" for name in _RESPONSES), "b"),
    LABEL: (
        "winner",
        "preference",
        "preferred",
        "better",
        "best",
        "choice",
        "verdict",
        "human",
        "besser",
        "bessere_antwort",
        "gewinner",
        "bewertung",
        "urteil",
        "praeferenz",
        "auswahl",
    ),
}
# A word in the name of a response's column, and words within a label.
_FIRST = ("a", "1", "one", "first", "left", "links", "linke", "erste", "eins")
_SECOND = ("b", "2", "two", "second", "right", "rechts", "rechte", "zweite", "zwei")
_EQUAL = (
    "tie",
    "draw",
    "equal",
    "same",
    "both",
    "neither",
    "gleich",
    "gleichwertig",
    "unentschieden",
    "beide",
)


def shape_for(row: Row, rows: Sequence[Row] = ()) -> ComparisonShape:
    """The first shape whose columns a row has.

    Args:
        row: The row.
        rows: All rows of its file, which show the words of the labels.

    Raises:
        InvalidRequestError: None fits. The message names the columns and a map that may fit.
    """
    shape = known_shape(row)
    if shape is not None:
        return shape
    raise InvalidRequestError(
        f"the columns are {listed(row)}, and a comparison needs question, response_a and "
        f"response_b: name the columns with --map {suggested_map(rows or [row])}, or a known data "
        f"set with --shape ({', '.join(SHAPES)})"
    )


def suggested_map(
    rows: Sequence[Row],
    shape: ComparisonShape | None = None,
    more: Mapping[str, Sequence[str]] = MappingProxyType({}),
    *,
    labelled: bool = False,
) -> str:
    """A map that may fit, quoted for a shell.

    Args:
        rows: Rows of the file.
        shape: The columns that are known; None if none is.
        more: Field -> words that other data sets use for it, for fields beside the comparison's.
        labelled: Whether the map is for the label, which needs no texts.
    """
    rows = rows[:_ROWS_READ]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    others = {name: _by_words(columns, (name, *words)) for name, words in more.items()}
    # The first row has texts, and may have no label.
    free = [column for column in rows[0] if column not in others.values()]
    fields: dict[str, str | None] = {}
    for number, name in enumerate(REQUIRED):
        known = None if shape is None else shape.texts[number]
        fields[name] = known or _by_words(free, (name, *_USUAL[name]))
    if fields["response_a"] is None and fields["response_b"] is None:
        free = [column for column in free if column != fields["question"]]
        fields["response_a"], fields["response_b"] = _numbered(free)
    fields |= others
    label = _label_column(rows, columns, fields, shape)
    if fields["question"] is None:
        fields["question"] = _only_text(rows, columns, [*fields.values(), label])
    named = [
        f"{name}={column or 'COLUMN'}"
        for name, column in fields.items()
        if column is not None or not labelled
    ]
    if label != LABEL and (label is not None or labelled):
        named.append(f"{LABEL}={label or 'COLUMN'}")
    if label is not None:
        named += _named_words(words_in(rows, label), fields)
    return shlex.quote(joined_map(named))


def words_in(rows: Iterable[Row], column: str) -> list[str]:
    """The different words of a column of labels, as they are written."""
    words: dict[str, str] = {}
    for row in rows:
        value = row.get(column)
        if not is_empty(value):
            words.setdefault(spelled(value), str(value).strip())
    return list(words.values())


def joined_map(parts: Sequence[str]) -> str:
    """A map of its parts, quoted where a part has a comma."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(parts)
    return text.getvalue()


def _simple(name: str) -> str:
    """A name in lower case, with underscores between its words."""
    return "_".join(re.findall(r"[^\W_]+", name.lower()))


def _by_words(columns: Sequence[str], words: Sequence[str]) -> str | None:
    known = {_simple(column): column for column in reversed(columns)}
    return next((known[word] for word in words if word in known), None)


def _numbered(columns: Sequence[str]) -> tuple[str | None, str | None]:
    """Two columns whose names differ in one word only, such as "Text 1" and "Text 2"."""
    for first in columns:
        for second in columns:
            pairs = list(zip(_split(first), _split(second), strict=False))
            differing = [pair for pair in pairs if pair[0] != pair[1]]
            if len(differing) == 1 and differing[0] in zip(_FIRST, _SECOND, strict=True):
                return first, second
    return None, None


def _split(name: str) -> list[str]:
    """The words of a name; a number at the end of a word is its own word."""
    return re.findall(r"[^\W\d_]+|\d+", name.lower()) or [""]


def _label_column(
    rows: Sequence[Row],
    columns: Sequence[str],
    fields: Mapping[str, str | None],
    shape: ComparisonShape | None,
) -> str | None:
    if shape is not None and shape.label in columns:
        return shape.label
    free = [column for column in columns if column not in fields.values()]
    named = _by_words(free, (LABEL, *_USUAL[LABEL]))
    return named or next((c for c in free if _has_both_sides(rows, c, fields)), None)


def _has_both_sides(rows: Sequence[Row], column: str, fields: Mapping[str, str | None]) -> bool:
    words = words_in(rows, column)
    sides = {_meant(word, fields) for word in words} if len(words) <= _MOST_WORDS else set()
    return {"A", "B"} <= sides and None not in sides


def _only_text(
    rows: Sequence[Row], columns: Sequence[str], taken: Sequence[str | None]
) -> str | None:
    """The column of texts that no field has, if there is one only."""
    texts = [
        column
        for column in columns
        if column not in taken
        and _simple(column) != "id"
        and not all(_is_number(row.get(column, "0")) for row in rows)
    ]
    return texts[0] if len(texts) == 1 else None


def _is_number(value: Any) -> bool:
    return re.fullmatch(r"[+-]?[\d.,]+", str(value)) is not None


def _named_words(words: Sequence[str], fields: Mapping[str, str | None]) -> list[str]:
    """The parts of a map for the words of the labels; none if all of them are known."""
    if all(spelled(word) in KNOWN_WORDS for word in words) or len(words) > _MOST_WORDS:
        return []
    meant: dict[Label, list[str]] = {label: [] for label in LABELS}
    for word in words:
        label = KNOWN_WORDS.get(spelled(word)) or _meant(word, fields)
        if label is not None:
            meant[label].append(word)
    if not meant["A"] or not meant["B"]:
        # Half of a guess may be wrong: 1 may be the first response, or mean "yes".
        meant = {"A": ["WORD"], "B": ["WORD"], "tie": []}
    return [f"{label}={word}" for label, its_words in meant.items() for word in its_words]


def _meant(word: str, fields: Mapping[str, str | None]) -> Label | None:
    """The label that a word may mean; None if it may mean several, or nothing."""
    responses: tuple[tuple[Label, str], ...] = (("A", "response_a"), ("B", "response_b"))
    for label, name in responses:
        if _simple(fields.get(name) or "") == _simple(word):
            return label
    parts = set(_split(word))
    if parts & set(_EQUAL):
        return "tie"
    is_a, is_b = bool(parts & set(_FIRST)), bool(parts & set(_SECOND))
    if is_a == is_b:
        return None
    return "A" if is_a else "B"
