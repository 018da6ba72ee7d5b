"""Files for Label Studio and Argilla, and what both export, as their documentation shows it."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.core.errors import InvalidRequestError
from app.files.labelling_tools import TOOLS, ToolName, read_answers, settings_path, write_pairs
from app.service.labelling.pairs import BlindPair, left_side
from app.service.labelling.tickets import CANNOT, audit_row
from tests.unit.files.tool_exports import (
    Answers,
    annotation,
    argilla,
    json_min,
    label_studio,
    rows_of_json,
)

COUNT = 6
ANSWERS: dict[int, Answers] = {
    0: [("left", None)],
    1: [("right", None)],
    2: [("tie", None)],
    3: [(CANNOT, "the texts are cut")],
    4: [("left", None), ("right", None)],
}
Exporter = Callable[[Sequence[Mapping[str, Any]], Mapping[int, Answers]], list[dict[str, Any]]]
EXPORTS: list[tuple[ToolName, Exporter]] = [
    ("label-studio", label_studio),
    ("label-studio", json_min),
    ("argilla", argilla),
]
every_export = pytest.mark.parametrize(
    ("tool", "exported"), EXPORTS, ids=["label-studio", "json_min", "argilla"]
)


def pairs() -> list[BlindPair]:
    found = []
    for number in range(COUNT):
        audit = f"{number:032x}"
        fields = {
            "question": f"Question {number}:\n<b>which</b> & $left?",
            "response_a": f'first "{number}"',
            "response_b": "https://example.com/second",
        }
        found.append(BlindPair(key=audit, fields=fields, left=left_side(0, audit)))
    return found


def written(folder: Path, tool: ToolName) -> list[dict[str, Any]]:
    """The rows that a tool imports."""
    out = folder / "tasks.json"
    write_pairs(out, pairs(), TOOLS[tool])
    return rows_of_json(out)


def saved(folder: Path, rows: Sequence[Any]) -> Path:
    file = folder / "labelled.json"
    file.write_text(json.dumps(rows, indent=2), "utf-8")
    return file


def preferred(pair: BlindPair, word: str) -> str:
    """The label of the text that was shown on a side."""
    shown = pair.text.left if word == "left" else pair.text.right
    return "A" if shown == pair.fields["response_a"] else "B"


@every_export
def test_answers_become_the_labels_of_the_texts_that_were_shown(
    tool: ToolName, exported: Exporter, tmp_path: Path
) -> None:
    rows = written(tmp_path, tool)
    found = [audit_row(each) for each in read_answers(saved(tmp_path, exported(rows, ANSWERS)))]
    assert [row.problem for row in found] == [None] * len(found)
    told = [(int(row.audit, 16), row.label, row.reason) for row in found]
    shown = pairs()
    assert {each.left for each in shown} == {"A", "B"}
    assert told == [
        (0, preferred(shown[0], "left"), None),
        (1, preferred(shown[1], "right"), None),
        (2, "tie", None),
        (3, None, "the texts are cut"),
        (4, preferred(shown[4], "left"), None),
        (4, preferred(shown[4], "right"), None),
        (5, None, None),
    ]
    # The places tell rows and people apart.
    assert len({row.place for row in found}) == len(found)
    assert all("labelled.json, row" in row.place for row in found)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_file_for_a_tool_has_texts_and_tickets_alone(tool: ToolName, tmp_path: Path) -> None:
    rows = written(tmp_path, tool)
    shown = [row.get("data") or row["fields"] for row in rows]
    for pair, texts in zip(pairs(), shown, strict=True):
        assert (texts["question"], texts["left"], texts["right"]) == (
            pair.text.question,
            pair.text.left,
            pair.text.right,
        )
    columns = {name for texts in shown for name in texts}
    assert columns - {"audit"} == {"question", "left", "right"}


def test_the_configuration_shows_the_columns_of_the_tasks_and_asks_for_the_words(
    tmp_path: Path,
) -> None:
    (task, *_) = written(tmp_path, "label-studio")
    view = ElementTree.fromstring((tmp_path / "tasks.xml").read_text("utf-8"))
    values = [text.attrib["value"] for text in view.iter("Text")]
    assert {value.removeprefix("$") for value in values} == task["data"].keys() - {"audit"}
    # An address in a text must not be loaded.
    assert {text.attrib["valueType"] for text in view.iter("Text")} == {"text"}
    words = [choice.attrib["value"] for choice in view.iter("Choice")]
    assert words == ["left", "right", "tie", CANNOT]
    (choices,), (reason,) = list(view.iter("Choices")), list(view.iter("TextArea"))
    shown = {text.attrib["name"] for text in view.iter("Text")}
    assert {choices.attrib["toName"], reason.attrib["toName"]} <= shown
    assert reason.attrib["whenTagName"] == choices.attrib["name"]
    assert reason.attrib["whenChoiceValue"] in words


def test_the_settings_of_argilla_have_the_fields_of_the_records(tmp_path: Path) -> None:
    (record, *_) = written(tmp_path, "argilla")
    file = settings_path(tmp_path / "tasks.json", TOOLS["argilla"])
    found = json.loads(file.read_text("utf-8"))
    assert {field["name"] for field in found["fields"]} == record["fields"].keys()
    assert [question["name"] for question in found["questions"]] == ["preference", "reason"]
    options = found["questions"][0]["settings"]["options"]
    assert [option["value"] for option in options] == ["left", "right", "tie", CANNOT]
    assert {field["settings"]["use_markdown"] for field in found["fields"]} == {False}


def test_a_skipped_or_empty_annotation_and_a_draft_are_no_answers(tmp_path: Path) -> None:
    tasks = label_studio(written(tmp_path, "label-studio"), {0: [(None, None)]})
    tasks[1]["annotations"] = [annotation(0, None) | {"was_cancelled": False}]
    tasks[2]["drafts"] = [annotation(0, "left")]
    tasks[3]["predictions"] = [annotation(0, "left")]
    # An annotation after a skipped one counts.
    tasks[4]["annotations"] = [annotation(0, None), annotation(1, "tie")]
    found = [audit_row(each) for each in read_answers(saved(tmp_path, tasks))]
    assert [(row.answer, row.problem) for row in found] == [
        (None, None),
        (None, None),
        (None, None),
        (None, None),
        ("tie", None),
        (None, None),
    ]


def test_tasks_that_nobody_has_labelled_are_unlabelled(tmp_path: Path) -> None:
    for tool in TOOLS:
        found = [audit_row(each) for each in read_answers(saved(tmp_path, written(tmp_path, tool)))]
        assert [(row.answer, row.problem) for row in found] == [(None, None)] * COUNT


def test_drafts_and_discarded_responses_of_argilla_are_no_answers_where_it_says_so(
    tmp_path: Path,
) -> None:
    records = argilla(written(tmp_path, "argilla"), {0: [("left", None)], 1: [("left", None)]})
    records[0]["responses"]["preference"][0]["status"] = "draft"
    records[1]["responses"]["preference"][0]["status"] = "submitted"
    records[2]["responses"] = None
    found = [audit_row(each) for each in read_answers(saved(tmp_path, records))]
    assert [row.answer is not None for row in found] == [False, True] + [False] * 4


def test_a_configuration_may_ask_for_more(tmp_path: Path) -> None:
    tasks = label_studio(written(tmp_path, "label-studio"), {0: [("tie", None)]})
    stars = {"value": {"rating": 4}, "from_name": "stars", "to_name": "question", "type": "rating"}
    tasks[0]["annotations"][0]["result"].append(stars)
    assert audit_row(read_answers(saved(tmp_path, tasks))[0]).label == "tie"


def test_swapped_columns_in_an_export_are_no_labels(tmp_path: Path) -> None:
    for tool, exported in EXPORTS:
        rows = exported(written(tmp_path, tool), ANSWERS)
        for row in rows:
            texts = row.get("data") or row.get("fields") or row
            texts["left"], texts["right"] = texts["right"], texts["left"]
        found = [audit_row(each) for each in read_answers(saved(tmp_path, rows))]
        assert {row.label for row in found} == {None}
        assert all("not as it was exported" in str(row.problem) for row in found)


BROKEN: list[tuple[str, Any]] = [
    ("annotations", "x"),
    ("annotations", [5]),
    ("annotations", [{"result": 5}]),
    ("annotations", [{"result": [5]}]),
    ("annotations", [{"result": [{"from_name": "preference"}]}]),
    ("annotations", [{"result": [{"from_name": "preference", "value": []}]}]),
    ("annotations", [{"result": [{"from_name": "preference", "value": {"choices": "left"}}]}]),
    ("annotations", [annotation(0, "left") | {"result": annotation(0, "left")["result"] * 2}]),
    ("data", None),
    ("data", []),
    ("data", {}),
]


@pytest.mark.parametrize(("name", "value"), BROKEN)
def test_a_broken_task_has_a_problem_and_the_others_count(
    name: str, value: Any, tmp_path: Path
) -> None:
    tasks = label_studio(written(tmp_path, "label-studio"), ANSWERS)
    tasks[1][name] = value
    found = [audit_row(each) for each in read_answers(saved(tmp_path, tasks))]
    (bad,) = [row for row in found if row.problem is not None]
    assert "row 2" in bad.place
    assert (bad.label, bad.reason) == (None, None)
    assert len(found) == 7


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("responses", []),
        ("responses", {"preference": "left"}),
        ("responses", {"preference": ["left"]}),
        ("responses", {"preference": [{"value": "left"}]}),
        ("responses", {"preference": [{"value": ["left"], "user_id": "u"}]}),
        ("responses", {"preference": [{"value": {"value": "left"}, "user_id": "u"}]}),
        ("fields", None),
        ("fields", "x"),
        ("id", None),
        ("id", "c5a1a0a4-7d2c-4e8c-9d5e-0f2b8e4a5c7d"),
    ],
)
def test_a_broken_record_has_a_problem_or_no_answer_and_the_others_count(
    name: str, value: Any, tmp_path: Path
) -> None:
    records = argilla(written(tmp_path, "argilla"), ANSWERS)
    records[1][name] = value
    found = [audit_row(each) for each in read_answers(saved(tmp_path, records))]
    (bad,) = [row for row in found if "row 2" in row.place]
    assert (bad.label, bad.reason) == (None, None)
    assert (bad.problem is None) == (value == [])
    assert len(found) == 7


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "[1]", '[{"a": 1}]', "nonsense", '{"question": "Q?"}', "[[[", "\x00"]
)
def test_a_file_of_no_tool_is_refused_in_words(text: str, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(InvalidRequestError) as caught:
        read_answers(file)
    assert str(file) in caught.value.detail


# A value somewhere in an export -> another one.
_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.just([]), st.just({})
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_changed_value_makes_a_traceback_or_another_side(
    data: st.DataObject, tmp_path: Path
) -> None:
    tool, exported = data.draw(st.sampled_from(EXPORTS))
    rows = exported(written(tmp_path, tool), ANSWERS)
    right = {row.audit: row.answer for row in _labels(tmp_path, rows[:4])}
    changed = copy.deepcopy(rows[:4])
    place: Any = changed
    while isinstance(place, list | dict) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not (isinstance(place[key], list | dict) and place[key]) or data.draw(st.booleans()):
            place[key] = data.draw(_VALUES)
            break
        place = place[key]
    try:
        found = _labels(tmp_path, changed)
    except InvalidRequestError:
        return
    for row in found:
        if row.answer in ("A", "B"):
            assert row.answer == right[row.audit]


def _labels(folder: Path, rows: Sequence[Any]) -> list[Any]:
    return [audit_row(each) for each in read_answers(saved(folder, rows))]
