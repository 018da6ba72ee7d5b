"""Turns a row of a data set into the fields of a comparison.

A shape says which columns hold what. There are shapes for common data sets, and `custom_shape`
makes one of a map such as `question=prompt,response_a=chosen,response_b=rejected`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from app.core.comparison import Label
from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.core.messages import Fields, messages_of, question_of, response_of

REQUIRED = ("question", "response_a", "response_b")
# A row may override the criterion of the command line. Its id stays with the row.
OPTIONAL = ("alpha", "guarantee", "delta", "delta_for", "calibration")
LABEL = "label"
_NUMBERS = ("alpha", "delta")
_LABELS: Mapping[str, Label] = {
    **dict.fromkeys(("a", "model_a", "response_a", "left", "[[a]]"), "A"),
    **dict.fromkeys(("b", "model_b", "response_b", "right", "[[b]]"), "B"),
    **dict.fromkeys(("tie", "draw", "both_bad", "tie (bothbad)", "bothbad"), "tie"),
}
DELTA_FOR = "delta_for"
_MOST_TURNS = 10**6
_CONVERSATIONS = ("conversation_a", "conversation_b")
_TRANSCRIPT_TURN = re.compile(r"(?:\A|\n\n)(Human|Assistant): ?")


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonShape:
    """One way to keep comparisons in columns.

    Args:
        name: Name of the shape on the command line.
        columns: Columns that a row must have.
        convert: Row -> fields of the comparison; raises InvalidComparisonError.
        texts: Columns that hold the question and the responses.
        label: Column of the label; "" for preference data, in which the label is always A.
    """

    name: str
    columns: tuple[str, ...]
    convert: Callable[[Mapping[str, Any]], Fields]
    texts: tuple[str, ...] = ()
    label: str = LABEL

    @property
    def is_battle(self) -> bool:
        """Whether the two responses are whole conversations, of which only a label prefers one."""
        return self.columns == _CONVERSATIONS

    def labelled(self, row: Mapping[str, Any]) -> Fields:
        """The fields of the comparison, and its `label`.

        Raises:
            InvalidComparisonError: The row has no comparison of this shape, or no known label.
        """
        fields = self._fields(row)
        if LABEL not in fields:
            where = "label, or --map label=COLUMN" if self.label == LABEL else self.label
            raise InvalidComparisonError(
                f"there is no label: the columns are {listed(row)}; A, B or tie is expected in "
                f"{where}"
            )
        # An example has no criterion.
        kept = {name: fields[name] for name in REQUIRED}
        return {**kept, LABEL: label_of(fields[LABEL])}

    def fields(self, row: Mapping[str, Any]) -> Fields:
        """The fields of the comparison; a label, known or not, is left out.

        Raises:
            InvalidComparisonError: The row has no comparison of this shape.
        """
        fields = self._fields(row)
        fields.pop(LABEL, None)
        return fields

    def _fields(self, row: Mapping[str, Any]) -> Fields:
        missing = [column for column in self.columns if column not in row]
        if missing:
            raise InvalidComparisonError(f"{_named(missing)} missing; there is {listed(row)}")
        fields = self.convert(row)
        for name in _NUMBERS:
            if isinstance(fields.get(name), str):
                fields[name] = _number(fields[name], name)
        if DELTA_FOR in fields:
            fields[DELTA_FOR] = _whole(fields[DELTA_FOR], DELTA_FOR)
        return fields


def shape_for(row: Mapping[str, Any]) -> ComparisonShape:
    """The first shape whose columns the row has.

    Raises:
        InvalidRequestError: None fits. The message names the columns and a map that may fit.
    """
    for shape in SHAPES.values():
        if all(column in row for column in shape.columns):
            return shape
    raise InvalidRequestError(
        f"the columns are {listed(row)}, and a comparison needs question, response_a and "
        f"response_b: name the columns with --map {suggested_map(row)}, or a known data set with "
        f"--shape ({', '.join(SHAPES)})"
    )


@lru_cache(maxsize=16)
def shape_of(text: str) -> ComparisonShape:
    """The shape of a name, or of a map.

    Raises:
        InvalidRequestError: The text is neither.
    """
    return SHAPES.get(text) or custom_shape(text)


def custom_shape(text: str) -> ComparisonShape:
    """Makes a shape of a map: FIELD=COLUMN, separated by commas; other fields keep their names.

    Raises:
        InvalidRequestError: The text is not such a map.
    """
    return shape_of_columns(columns_of(text, (*REQUIRED, LABEL, *OPTIONAL)))


def columns_of(text: str, fields: Sequence[str]) -> dict[str, str]:
    """The column of each field by a map; a field that is not in the map has its own name.

    Raises:
        InvalidRequestError: The text is not a map of these fields.
    """
    columns = {name: name for name in fields}
    for part in text.split(","):
        field, equals, column = (piece.strip() for piece in part.partition("="))
        if not equals or not column or field not in columns:
            raise InvalidRequestError(
                f"--map: {part.strip()!r} is not FIELD=COLUMN with one of the fields "
                f"{', '.join(columns)}"
            )
        columns[field] = column
    return columns


def shape_of_columns(columns: Mapping[str, str]) -> ComparisonShape:
    """Makes a shape of the column of each field of a comparison."""

    def convert(row: Mapping[str, Any]) -> Fields:
        return _pair({field: row[name] for field, name in columns.items() if name in row})

    needed = tuple(columns[field] for field in REQUIRED)
    return ComparisonShape(
        name="map", columns=needed, convert=convert, texts=needed, label=columns[LABEL]
    )


def _pair(row: Mapping[str, Any]) -> Fields:
    fields = {name: row[name] for name in (LABEL, *OPTIONAL) if name in row}
    return {
        "question": question_of(row["question"], "question"),
        "response_a": response_of(row["response_a"], "response_a"),
        "response_b": response_of(row["response_b"], "response_b"),
        **fields,
    }


def _preference(row: Mapping[str, Any]) -> Fields:
    """TRL's preference data, standard or conversational, and RewardBench."""
    chosen, rejected = row["chosen"], row["rejected"]
    if "prompt" in row:
        question = question_of(row["prompt"], "prompt")
        a, b = response_of(chosen, "chosen"), response_of(rejected, "rejected")
    elif isinstance(chosen, str) and isinstance(rejected, str):
        question, a, b = _transcripts(chosen, rejected)
    else:
        question, a, b = _implicit_prompt(
            messages_of(chosen, "chosen"), messages_of(rejected, "rejected")
        )
    return {"question": question, "response_a": a, "response_b": b, LABEL: "A"}


def _transcripts(chosen: str, rejected: str) -> tuple[list[Fields], str, str]:
    """HH-RLHF: two transcripts that differ in their last answer."""
    both = [_turns_of_transcript(text) for text in (chosen, rejected)]
    return _implicit_prompt(*both)


def _turns_of_transcript(text: str) -> list[Fields]:
    _, *parts = _TRANSCRIPT_TURN.split(text)
    if not parts:
        raise InvalidComparisonError(
            'there is no prompt, and the texts are not transcripts with "Human:" and "Assistant:"'
        )
    roles = {"Human": "user", "Assistant": "assistant"}
    return [
        {"role": roles[role], "content": content.strip()}
        for role, content in zip(parts[::2], parts[1::2], strict=True)
    ]


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


def _battle(row: Mapping[str, Any]) -> Fields:
    """Chatbot Arena and MT-Bench: two whole conversations with the same questions."""
    a, b = (messages_of(row[name], name) for name in _CONVERSATIONS)
    turns = _turns(row.get("turn"))
    a, b = a[:turns], b[:turns]
    asked = [message for message in a if message["role"] != "assistant"]
    if asked != [message for message in b if message["role"] != "assistant"]:
        raise InvalidComparisonError("the two conversations have different questions")
    answers = [[m["content"] for m in side if m["role"] == "assistant"] for side in (a, b)]
    users = sum(message["role"] == "user" for message in asked)
    if users == 0 or any(len(side) != users for side in answers):
        raise InvalidComparisonError("a conversation needs one answer to each question")
    response_a, response_b = answers if users > 1 else (side[0] for side in answers)
    fields = {"question": asked, "response_a": response_a, "response_b": response_b}
    if row.get("winner") is not None:
        fields[LABEL] = row["winner"]
    return fields


def _turns(turn: Any) -> int | None:
    """The number of messages up to a turn of the conversation; None for all.

    Raises:
        InvalidComparisonError: The turn is not a whole number from 1.
    """
    if turn is None:
        return None
    # A table has texts, and pandas makes floats of integers if one is missing.
    number = _number(turn, "turn") if isinstance(turn, str) else turn
    if not isinstance(number, int | float) or not 1 <= number < _MOST_TURNS or number % 1:
        raise InvalidComparisonError(f"turn is not a whole number from 1: {str(turn)[:40]!r}")
    return 2 * int(number)


def _openai_preference(row: Mapping[str, Any]) -> Fields:
    """OpenAI's data for preference fine-tuning."""
    prompt = row["input"]
    if not isinstance(prompt, Mapping) or "messages" not in prompt:
        raise InvalidComparisonError("input has no messages")
    return {
        "question": question_of(prompt["messages"], "input"),
        "response_a": response_of(row["preferred_output"], "preferred_output"),
        "response_b": response_of(row["non_preferred_output"], "non_preferred_output"),
        LABEL: "A",
    }


# Name -> shape. The first that fits a row is taken where none is named.
SHAPES: Mapping[str, ComparisonShape] = {
    shape.name: shape
    for shape in (
        ComparisonShape(name="pairs", columns=REQUIRED, convert=_pair, texts=REQUIRED),
        ComparisonShape(
            name="arena",
            columns=_CONVERSATIONS,
            convert=_battle,
            texts=_CONVERSATIONS,
            label="winner",
        ),
        ComparisonShape(
            name="preference",
            columns=("chosen", "rejected"),
            convert=_preference,
            texts=("prompt", "chosen", "rejected"),
            label="",
        ),
        ComparisonShape(
            name="openai-preference",
            columns=("input", "preferred_output", "non_preferred_output"),
            convert=_openai_preference,
            texts=("input", "preferred_output", "non_preferred_output"),
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
    for candidate in SHAPES.values() if shape is None else (shape,):
        if candidate.label and row.get(candidate.label) is not None:
            return label_of(row[candidate.label])
        if not candidate.label and all(column in row for column in candidate.columns):
            return "A"
    return None


def label_of(value: Any) -> Label:
    """The label that a data set's word for the better side means: "A", "B" or "tie".

    Raises:
        InvalidComparisonError: The word is not known. Nothing else is ever taken for a tie.
    """
    label = _LABELS.get(value.strip().lower()) if isinstance(value, str) else None
    if label is None:
        raise InvalidComparisonError(
            f"the label {str(value)[:40]!r} is not A, B or tie (or model_a, model_b, both_bad)"
        )
    return label


def _number(text: str, field: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidComparisonError(f"{field} is not a number: {text[:40]!r}") from None


def _whole(value: Any, field: str) -> Any:
    """An integer: a table has texts, and pandas makes floats of integers if one is missing."""
    number = _number(value, field) if isinstance(value, str) else value
    return int(number) if isinstance(number, float) and number.is_integer() else number


def listed(row: Mapping[str, Any]) -> str:
    """The names of a row's columns, for messages."""
    names = [str(name) for name in row]
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "") if names else "no column"


def _named(columns: list[str]) -> str:
    return f"{', '.join(columns)} {'is' if len(columns) == 1 else 'are'}"


# Words that other data sets use for the fields of a comparison, in lower case with underscores.
_USUAL: Mapping[str, tuple[str, ...]] = {
    "question": ("prompt", "instruction", "input", "query", "user", "text"),
    "response_a": (
        "chosen",
        "answer_a",
        "output_a",
        "completion_a",
        "a",
        "response_1",
        "answer_1",
        "output_1",
        "completion_1",
    ),
    "response_b": (
        "rejected",
        "answer_b",
        "output_b",
        "completion_b",
        "b",
        "response_2",
        "answer_2",
        "output_2",
        "completion_2",
    ),
    LABEL: ("winner", "preference", "preferred", "better", "choice"),
}


def suggested_map(
    row: Mapping[str, Any], more: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> str:
    """A map that may fit the columns, as it is typed in a shell.

    Args:
        row: A row of the file.
        more: Field -> words that other data sets use for it, for fields beside the comparison's.
    """
    known = {str(name).lower().replace(" ", "_"): str(name) for name in row}
    parts = []
    for field, words in {**_USUAL, **more}.items():
        column = next((known[word] for word in (field, *words) if word in known), None)
        if (field in REQUIRED or field in more) or column not in (None, field):
            parts.append(f"{field}={column or 'COLUMN'}")
    text = ",".join(parts)
    return f"'{text}'" if " " in text else text
