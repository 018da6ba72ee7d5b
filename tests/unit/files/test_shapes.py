"""The shapes in which people keep comparisons become the fields of one, or a clear error."""

import shlex
from typing import Any

import pytest

from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.files.shapes import ComparisonShape, custom_shape, known_shape, label_of, suggested_map

USER = {"role": "user", "content": "Which?"}
TALK = [USER, {"role": "assistant", "content": "a1"}, {"role": "user", "content": "And?"}]


def shape_of(row: dict[str, Any]) -> ComparisonShape:
    shape = known_shape(row)
    assert shape is not None
    return shape


def says(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


AB = {"response_a": "good", "response_b": "bad"}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "our own": (
        {"question": "Which?", **AB, "label": "B", "id": 7, "calibration": "mine", "alpha": 0.2},
        {"question": "Which?", **AB, "label": "B", "calibration": "mine"},
    ),
    "our own in CSV": (
        {"question": "Which?", **AB, "label": "model_b"},
        {"question": "Which?", **AB, "label": "B"},
    ),
    "OpenAI's messages": (
        {
            "question": [
                {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
                *TALK,
            ],
            "response_a": says("good"),
            "response_b": [{"role": "assistant", "content": [{"type": "text", "text": "bad"}]}],
        },
        {"question": [{"role": "system", "content": "Be kind."}, *TALK], **AB},
    ),
    "TRL, standard": (
        {"prompt": "Which?", "chosen": "good", "rejected": "bad"},
        {"question": "Which?", **AB, "label": "A"},
    ),
    "TRL, conversational": (
        {"prompt": [USER], "chosen": [says("good")], "rejected": [says("bad")]},
        {"question": [USER], **AB, "label": "A"},
    ),
    "TRL, implicit prompt": (
        {"chosen": [*TALK, says("good")], "rejected": [*TALK, says("bad")]},
        {"question": TALK, **AB, "label": "A"},
    ),
    "RewardBench": (
        {"prompt": "Which?", "chosen": "good", "rejected": "bad", "subset": "x", "id": 3},
        {"question": "Which?", **AB, "label": "A"},
    ),
    "ShareGPT's messages": (
        {
            "question": [{"from": "human", "value": "Which?"}],
            "response_a": {"from": "gpt", "value": "good"},
            "response_b": "bad",
        },
        {"question": [USER], **AB},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_known_shape_is_recognized_and_read(case: str) -> None:
    row, fields = CASES[case]
    shape = shape_of(row)
    if "label" in fields:
        assert shape.label_in(row) == fields["label"]
    assert shape.fields(row) == {k: v for k, v in fields.items() if k != "label"}


def test_a_map_names_columns() -> None:
    shape = custom_shape("question=q, response_a=x,response_b=y,label=best")
    row = {"q": "Which?", "x": "good", "y": "bad", "best": "[[A]]", "id": "9", "question": "no"}
    assert (shape.fields(row), shape.label_in(row)) == ({"question": "Which?", **AB}, "A")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "FIELD=COLUMN") for text in ("question", "question=", "prompt=x", "")),
        ("question=a;response_a=b,", "FIELD=COLUMN"),
        ("response_a=y,response_b=y", "response_a and response_b cannot both be the column 'y'"),
        ("response_a=response_b", "response_a and response_b cannot both be the column"),
        ("response_a=x,response_b=y,label=x", "response_a and label cannot both be the column"),
        ("question=q,A=1,A=2,question=p", "question cannot be two columns"),
    ],
)
def test_a_wrong_map_says_why(text: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"--map: .*{message}"):
        custom_shape(text)


TOOL_CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "x", "response_a": "y"}, "response_b is missing"),
        ({"question": True, **AB}, "neither a text nor a list of messages"),
        ({"question": None, **AB}, "question is empty"),
        ({"question": [], **AB}, "neither a text nor a list of messages"),
        ({"question": [USER, TOOL_CALL], **AB}, "calls a tool"),
        ({"question": [{"role": "tool", "content": "1"}], **AB}, "calls a tool"),
        ({"question": [{"role": "judge", "content": "1"}], **AB}, "unknown role 'judge'"),
        ({"question": [{"role": "user"}], **AB}, "has no content"),
        (
            {"question": [{"role": "user", "content": [{"type": "image_url"}]}], **AB},
            "type 'image_url'",
        ),
        ({"question": "x", "response_a": [says("y"), says("z")], "response_b": "w"}, "2 messages"),
        ({"question": "x", "response_a": USER, "response_b": "w"}, "one message of the assistant"),
        ({"chosen": "good", "rejected": "bad"}, "prompt is missing, and chosen is not a list"),
        ({"chosen": [USER, says("x")], "rejected": [says("y")]}, "equal except for their last"),
        ({"chosen": [USER, USER], "rejected": [USER, USER]}, "end with the assistant"),
    ],
)
def test_a_row_without_a_comparison_says_why(row: dict[str, Any], message: str) -> None:
    shape = custom_shape("question=question") if "question" in row else shape_of(row)
    with pytest.raises(InvalidComparisonError, match=message):
        shape.fields(row)


@pytest.mark.parametrize("label", [1, "maybe", [1], 0.5])
def test_a_row_is_judged_whatever_its_label_and_id_are(label: Any) -> None:
    row = {"question": "x", **AB, "label": label, "id": 1.5}
    assert shape_of(row).fields(row) == {"question": "x", **AB}


@pytest.mark.parametrize("label", [None, "", "  ", float("nan")])
def test_an_empty_label_is_no_label(label: Any) -> None:
    for row in ({"label": label}, {"winner": "A"}, {}):
        assert custom_shape("question=question").label_in(row) is None


def test_a_map_names_the_words_of_labels() -> None:
    shape = custom_shape("label=Besser?, A=Antwort 1,A=links,B=2,tie=gleich")
    words = {"antwort 1": "A", "LINKS ": "A", 2: "B", "2": "B", "Gleich": "tie"}
    for word, label in words.items():
        assert shape.label_in({"Besser?": word}) == label
    assert shape.label_in({"Besser?": 2.0}) == "B"
    # The words that everybody uses stay.
    assert [shape.label_in({"Besser?": word}) for word in ("A", "tie")] == ["A", "tie"]
    for word in ("?", True, 2.5):
        with pytest.raises(InvalidComparisonError, match="is not a word of the map"):
            shape.label_in({"Besser?": word})
    named = custom_shape("tie=equal")
    assert [named.label_in({"label": word}) for word in ("A", "b", "equal")] == ["A", "B", "tie"]
    assert custom_shape("A=B,B=A").label_in({"label": "a"}) == "B"
    # The map of a battle is one of its comparison, too.
    assert custom_shape("human=Vote,model_a=x").label_in({"Vote": "model_b"}) == "B"
    with pytest.raises(InvalidRequestError, match="'x' cannot mean both A and tie"):
        custom_shape("A=x,tie=X")


def test_a_part_of_a_map_with_a_comma_is_quoted_as_in_csv() -> None:
    shape = custom_shape('question=Q,"label=Which is better, A or B?","tie=same, or ""equal"""')
    assert shape.label_in({"Which is better, A or B?": 'same, or "equal"'}) == "tie"


@pytest.mark.parametrize("value", ["", "C", "abstain", "unknown", None, 1, [1], True, 0.5])
def test_no_unknown_word_becomes_a_label(value: Any) -> None:
    with pytest.raises(InvalidComparisonError):
        label_of(value)


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (("Question", "Response A", "Response B"), "Question,Response A,Response B"),
        (("questions", "response-b", "response-a"), "questions,response-a,response-b"),
        (("Frage", "Antwort 1", "Antwort 2"), "COLUMN,COLUMN,COLUMN"),
    ],
)
def test_the_nearest_names_are_suggested(columns: tuple[str, ...], found: str) -> None:
    (text,) = shlex.split(suggested_map([dict.fromkeys(columns, "x")]))
    names = ("question", "response_a", "response_b")
    pairs = zip(names, found.split(","), strict=True)
    assert text == ",".join(f"{name}={column}" for name, column in pairs)


def test_a_pasted_map_reads_the_rows() -> None:
    row: dict[str, Any] = {"Question": "?", "Response A": "a", "Response B": "b", "Label": "1"}
    (text,) = shlex.split(suggested_map([row], labelled=True))
    assert text.endswith(",label=Label,A=WORD,B=WORD,tie=WORD")
    (known,) = shlex.split(suggested_map([{**row, "Label": "A"}], labelled=True))
    assert known.endswith(",label=Label")
    rows = [{**row, "Label": label} for label in ("Left", "lefft", "right")]
    (typo,) = shlex.split(suggested_map(rows, custom_shape("B=other,label=Label"), labelled=True))
    assert typo.endswith(",label=Label,B=other,A=WORD,B=WORD,tie=WORD")
    shape = custom_shape(text.replace("A=WORD", "A=1").replace("B=WORD", "B=2"))
    assert (shape.fields(row)["response_a"], shape.label_in(row)) == ("a", "A")


def test_known_columns_stay_and_only_the_label_is_looked_for() -> None:
    shape = custom_shape("question=x,response_a=y,response_b=z")
    text = suggested_map([{"x": "?", "y": "a", "z": "b", "labels": "y"}], shape, labelled=True)
    assert text == "question=x,response_a=y,response_b=z,label=labels,A=WORD,B=WORD,tie=WORD"
