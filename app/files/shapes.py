"""Turns a row of a data set into the fields of a comparison.

A shape says which columns hold what. There are shapes for common data sets, and `custom_shape`
makes one of a map such as `question=prompt,response_a=chosen,response_b=rejected`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.core.comparison import Label
from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.core.messages import Fields, messages_of, question_of, response_of
from app.files.labels import KNOWN_WORDS, NamedColumns, is_empty, label_of, named_columns

REQUIRED = ("question", "response_a", "response_b")
# A row may name its own calibration set.
CALIBRATION = "calibration"
LABEL = "label"
# Name of the shape of our own columns.
PAIRS = "pairs"
# Name of the shape of the battles that `scope-judge battles` reads and writes.
BATTLES = "battles"
_OF_BATTLE = ("model_a", "model_b", "human")


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonShape:
    """One way to keep comparisons in columns.

    Args:
        name: Name of the shape.
        columns: Columns that a row must have.
        convert: Row -> fields of the comparison; raises InvalidComparisonError.
        texts: Columns that hold the question and the responses.
        label: Column of the label; "" for preference data, in which the label is always A.
        words: Word of the label in lower case -> label.
    """

    name: str
    columns: tuple[str, ...]
    convert: Callable[[Mapping[str, Any]], Fields]
    texts: tuple[str, ...] = ()
    label: str = LABEL
    words: Mapping[str, Label] = field(default_factory=lambda: KNOWN_WORDS)

    def label_in(self, row: Mapping[str, Any]) -> Label | None:
        """The label of a row; None if it is empty.

        Raises:
            InvalidComparisonError: The label is not a known word.
        """
        if not self.label:
            return "A"
        value = row.get(self.label)
        return None if is_empty(value) else label_of(value, self.words)

    def fields(self, row: Mapping[str, Any]) -> Fields:
        """The fields of the comparison, without the label.

        Raises:
            InvalidComparisonError: The row has no comparison of this shape.
        """
        missing = [column for column in self.columns if row.get(column) is None]
        if missing:
            # Excel writes such rows below a table.
            if all(value is None for value in row.values()):
                raise InvalidComparisonError("the row is empty")
            absent = [column for column in missing if column not in row]
            if absent:
                raise InvalidComparisonError(f"{_named(absent)} missing; there is {listed(row)}")
            raise InvalidComparisonError(f"{_named(missing)} empty")
        # A spreadsheet has numbers where a response is one.
        return self.convert(
            {
                name: str(value) if type(value) in (int, float) and name in self.texts else value
                for name, value in row.items()
                if value is not None
            }
        )


def known_shape(row: Mapping[str, Any]) -> ComparisonShape | None:
    """The shape whose columns the row has, battles first; None if none fits."""
    if is_battle(row) and all(column in row for column in REQUIRED):
        return SHAPES[BATTLES]
    return next(
        (s for s in SHAPES.values() if all(column in row for column in s.columns)),
        None,
    )


def custom_shape(text: str) -> ComparisonShape:
    """Makes a shape of a map: FIELD=COLUMN and LABEL=WORD, separated by commas.

    Raises:
        InvalidRequestError: The text is not such a map.
    """
    return shape_of_columns(named_columns(text, (*REQUIRED, LABEL, CALIBRATION)))


def shape_of_columns(named: NamedColumns) -> ComparisonShape:
    """Makes a shape of the column of each field of a comparison.

    Raises:
        InvalidRequestError: One column is to be two of the question, the responses and the label.
    """
    columns = named.columns
    fields: dict[str, str] = {}
    for name in (*REQUIRED, LABEL):
        other = fields.setdefault(columns[name], name)
        if other != name:
            raise InvalidRequestError(
                f"--map: {other} and {name} cannot both be the column {columns[name]!r}"
            )
    own = {name: columns[name] for name in (*REQUIRED, CALIBRATION)}

    def convert(row: Mapping[str, Any]) -> Fields:
        return _pair({name: row[column] for name, column in own.items() if column in row})

    needed = tuple(columns[name] for name in REQUIRED)
    return ComparisonShape(
        name="map",
        columns=needed,
        convert=convert,
        texts=needed,
        label=columns[LABEL],
        words=named.words,
    )


def _pair(row: Mapping[str, Any]) -> Fields:
    return {
        "question": question_of(row["question"], "question"),
        "response_a": response_of(row["response_a"], "response_a"),
        "response_b": response_of(row["response_b"], "response_b"),
        **({CALIBRATION: row[CALIBRATION]} if CALIBRATION in row else {}),
    }


def _preference(row: Mapping[str, Any]) -> Fields:
    """TRL's preference data, standard or conversational, and RewardBench."""
    chosen, rejected = row["chosen"], row["rejected"]
    if "prompt" in row:
        question = question_of(row["prompt"], "prompt")
        a, b = response_of(chosen, "chosen"), response_of(rejected, "rejected")
    elif isinstance(chosen, str):
        raise InvalidComparisonError("prompt is missing, and chosen is not a list of messages")
    else:
        question, a, b = _implicit_prompt(
            messages_of(chosen, "chosen"), messages_of(rejected, "rejected")
        )
    return {"question": question, "response_a": a, "response_b": b}


def _implicit_prompt(a: list[Fields], b: list[Fields]) -> tuple[list[Fields], str, str]:
    """The common beginning is the question; each last message is a response."""
    if not a or not b or a[:-1] != b[:-1] or not a[:-1]:
        raise InvalidComparisonError(
            "the two conversations must be equal except for their last message"
        )
    for messages in (a, b):
        if messages[-1]["role"] != "assistant":
            raise InvalidComparisonError("a conversation does not end with the assistant")
    return a[:-1], a[-1]["content"], b[-1]["content"]


def _texts_of(row: Mapping[str, Any]) -> Fields:
    """A battle of `scope-judge battles`; its other columns are of the judgment that it has."""
    return _pair({name: row[name] for name in REQUIRED})


# Name -> shape. The first that fits a row is taken where none is named.
SHAPES: Mapping[str, ComparisonShape] = {
    shape.name: shape
    for shape in (
        ComparisonShape(name=PAIRS, columns=REQUIRED, convert=_pair, texts=REQUIRED),
        ComparisonShape(
            name=BATTLES,
            columns=REQUIRED,
            convert=_texts_of,
            texts=REQUIRED,
            label="human",
        ),
        ComparisonShape(
            name="preference",
            columns=("chosen", "rejected"),
            convert=_preference,
            texts=("prompt", "chosen", "rejected"),
            label="",
        ),
    )
}


def label_in(row: Mapping[str, Any], shape: ComparisonShape | None = None) -> Label | None:
    """The label of a row, which need not have the texts any more; None without one.

    Args:
        row: The row.
        shape: The shape of its file; None to look for the label of any shape.

    Raises:
        InvalidComparisonError: The label is not a known word.
    """
    if shape is not None:
        return shape.label_in(row) if _may_be_labeled(row, shape) else None
    if is_battle(row):
        # Its `winner` is the judge's verdict.
        return SHAPES[BATTLES].label_in(row)
    labels = (
        s.label_in(row) for s in SHAPES.values() if s.name != BATTLES and _may_be_labeled(row, s)
    )
    return next((label for label in labels if label is not None), None)


def is_battle(row: Mapping[str, Any]) -> bool:
    """Whether a row is a battle with a column for the label of a person, with texts or without."""
    return all(column in row for column in _OF_BATTLE)


def _may_be_labeled(row: Mapping[str, Any], shape: ComparisonShape) -> bool:
    return bool(shape.label) or all(column in row for column in shape.columns)


def listed(row: Mapping[str, Any]) -> str:
    """The names of a row's columns, for messages."""
    names = [str(name) for name in row]
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "") if names else "no column"


def _named(columns: list[str]) -> str:
    return f"{', '.join(columns)} {'is' if len(columns) == 1 else 'are'}"
