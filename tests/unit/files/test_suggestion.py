"""The map that an error suggests works when it is pasted, and guesses no side by halves."""

import shlex
from typing import Any

import pytest

from app.core.errors import InvalidRequestError
from app.files.shapes import custom_shape
from app.files.suggestion import shape_for, suggested_map

Rows = list[dict[str, Any]]


def pasted(rows: Rows) -> str:
    """The map as a program gets it from a shell."""
    (text,) = shlex.split(suggested_map(rows, labelled=True))
    return text


def rows_of(columns: tuple[str, str, str, str], labels: tuple[Any, ...]) -> Rows:
    texts = {column: f"text of {column}" for column in columns[:3]}
    return [{**texts, columns[3]: label, "id": i} for i, label in enumerate(labels)]


@pytest.mark.parametrize(
    ("columns", "labels", "words"),
    [
        (("Frage", "Antwort 1", "Antwort 2", "Besser?"), ("Antwort 1", "Antwort 2", "gleich"), 3),
        (("prompt", "Output_1", "Output_2", "winner"), ("1", "2", ""), 2),
        (("Question", "Left text", "Right text", "Which is best, A or B?"), ("left", "Right"), 0),
        (("input", "answer of A", "answer of B", "choice"), ("A is better", "B is", "both"), 3),
        # No word of a known language: the two columns differ in their last word.
        (("Kysymys", "Vastaus 1", "Vastaus 2", "Parempi"), ("Vastaus 1", "Vastaus 2"), 2),
        (("question", "response_a", "response_b", "label"), ("it's 1", 'on "2"', "draw, no"), 3),
    ],
)
def test_a_pasted_map_reads_the_rows(
    columns: tuple[str, str, str, str], labels: tuple[Any, ...], words: int
) -> None:
    rows = rows_of(columns, labels)
    text = pasted(rows)
    shape = custom_shape(text)
    assert (*shape.texts, shape.label) == columns
    expected = ["A", "B", "tie"] if labels[2:] != ("",) else ["A", "B", None]
    assert [shape.label_in(row) for row in rows] == expected[: len(labels)]
    assert sum(text.count(f"{label}=") for label in ("A", "B", "tie")) >= words


def test_half_of_a_guess_is_no_guess() -> None:
    # 1 may be the first response, or mean "yes, the second one is better".
    rows = rows_of(("Frage", "Antwort 1", "Antwort 2", "Besser?"), ("0", "1", "1"))
    assert pasted(rows).endswith("label=Besser?,A=WORD,B=WORD")
    rows = rows_of(("Frage", "Antwort 1", "Antwort 2", "Besser?"), ("ja", "nein"))
    assert pasted(rows).endswith("label=Besser?,A=WORD,B=WORD")


def test_known_words_need_no_map_and_texts_are_not_taken_for_labels() -> None:
    rows = rows_of(("Prompt", "answer 1", "answer 2", "better"), ("A", "model_b", "tie"))
    assert pasted(rows) == "question=Prompt,response_a=answer 1,response_b=answer 2,label=better"
    many = [{"Prompt": "x", "answer 1": "y", "answer 2": "z", "better": f"{i}"} for i in range(20)]
    assert pasted(many).endswith("label=better")


def test_known_columns_stay_and_only_the_label_is_looked_for() -> None:
    shape = custom_shape("question=x,response_a=y,response_b=z")
    rows = [{"x": "?", "y": "a", "z": "b", "best": word} for word in ("y", "z")]
    text = suggested_map(rows, shape, labelled=True)
    assert text == "question=x,response_a=y,response_b=z,label=best,A=y,B=z"


def test_what_nobody_can_guess_is_a_word_to_replace() -> None:
    with pytest.raises(InvalidRequestError, match="--map question=COLUMN,response_a=COLUMN,resp"):
        shape_for({"x": 1, "y": 2})
    with pytest.raises(InvalidRequestError, match="question=prompt,response_a=chosen,response_b=C"):
        shape_for({"prompt": "x", "chosen": "y"})
