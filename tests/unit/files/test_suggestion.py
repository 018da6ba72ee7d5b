"""The map in a message names the nearest columns, and guesses nothing else."""

import shlex
from typing import Any

import pytest

from app.core.errors import InvalidRequestError
from app.files.shapes import custom_shape
from app.files.suggestion import shape_for, suggested_map


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (("Question", "Response A", "Response B"), "Question,Response A,Response B"),
        (("questions", "response-b", "response-a"), "questions,response-a,response-b"),
        (("Frage", "Antwort 1", "Antwort 2"), "COLUMN,COLUMN,COLUMN"),
    ],
)
def test_the_nearest_names_are_suggested(columns: tuple[str, ...], found: str) -> None:
    (text,) = shlex.split(suggested_map(dict.fromkeys(columns, "x")))
    names = ("question", "response_a", "response_b")
    pairs = zip(names, found.split(","), strict=True)
    assert text == ",".join(f"{name}={column}" for name, column in pairs)


def test_a_pasted_map_reads_the_rows() -> None:
    row: dict[str, Any] = {"Question": "?", "Response A": "a", "Response B": "b", "Label": "1"}
    (text,) = shlex.split(suggested_map(row, labelled=True))
    assert text.endswith(",label=Label,A=WORD,B=WORD")
    shape = custom_shape(text.replace("A=WORD", "A=1").replace("B=WORD", "B=2"))
    assert (shape.fields(row)["response_a"], shape.label_in(row)) == ("a", "A")


def test_known_columns_stay_and_only_the_label_is_looked_for() -> None:
    shape = custom_shape("question=x,response_a=y,response_b=z")
    text = suggested_map({"x": "?", "y": "a", "z": "b", "labels": "y"}, shape, labelled=True)
    assert text == "question=x,response_a=y,response_b=z,label=labels,A=WORD,B=WORD"


def test_a_message_names_the_columns_and_what_is_missing() -> None:
    with pytest.raises(InvalidRequestError, match="--map question=COLUMN,response_a=COLUMN,resp"):
        shape_for({"x": 1, "y": 2})
    with pytest.raises(InvalidRequestError, match="the columns are prompt, chosen, and a compar"):
        shape_for({"prompt": "x", "chosen": "y"})
