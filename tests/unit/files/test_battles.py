"""Battles in files: models, ids and labels."""

import math
from typing import Any

import pytest

from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.files.battles import Battle, battle_rows, battle_shape
from scope_judge.parsing import parse
from scope_judge.records import Info
from tests.unit.clients import planned

ROW = {
    "question": "What is 2 + 2?",
    "model_a": "small",
    "model_b": "large",
    "response_a": "5",
    "response_b": "4",
}
_CHANGED = {"judge": "demo", "fingerprint": "f" * 64, "template": "c" * 64, "version": "1.2.0"}
INFO = parse(Info, {**planned.INFO, **_CHANGED})
JUDGMENT: dict[str, Any] = {
    "verdict": "B",
    "preferred": "B",
    "reason": None,
    "p_fwd": 0.1,
    "p_rev": 0.3,
    "p_bar": 0.2,
    "uncertainty": 0.5,
    "threshold": 0.6,
    "alpha": 0.1,
    "guarantee": "pac",
    "delta": 0.05,
    "risk_level": 0.08,
    "label_mass": 0.99,
    "calibration": {"name": "default", "version": 3, "n": 600},
    "judge": "demo",
    "timestamp": "2026-11-22T10:00:00+00:00",
}


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def battle(**changes: Any) -> Battle:
    row = {**ROW, **changes}
    return battle_shape(row).battle(row)


def row_of(result: dict[str, Any], **changes: Any) -> dict[str, Any]:
    (row,) = battle_rows([("f.jsonl, line 1", battle(**changes), result)], INFO)
    return row


def test_a_row_without_an_id_is_named_by_its_content() -> None:
    first, other = battle(), battle(response_a="6")
    assert first.id == battle().id != other.id
    assert first.question_id == other.question_id != battle(question="?").question_id
    named = battle(id=17, question_id="q1", group="arithmetic")
    assert (named.id, named.question_id, named.group) == ("17", "q1", "arithmetic")


def test_columns_may_have_other_names() -> None:
    row = {
        "prompt": "?",
        "left model": "small",
        "right": "large",
        "text 1": "5",
        "text_2": "4",
        "vote": "left",
        "key": 5,
    }
    given = (
        "question=prompt,model_a=left model,model_b=right,response_a=text 1,response_b=text_2,"
        "human=vote,id=key"
    )
    found = battle_shape(row, given).battle(row)
    assert (found.id, found.model_a, found.model_b) == ("5", "small", "large")
    assert found.fields == {"question": "?", "response_a": "5", "response_b": "4"}
    assert found.human == "A"


@pytest.mark.parametrize(
    ("row", "columns", "message"),
    [
        (
            {"prompt": "?", "model_1": "x", "model_2": "y", "answer_1": "5", "output_b": "4"},
            None,
            "--map question=COLUMN,response_a=COLUMN,response_b=COLUMN,model_a=model_1,"
            "model_b=model_2",
        ),
        (
            {"question": "?", "response_a": "5", "response_b": "4", "Model A": "x"},
            None,
            "--map 'question=question,response_a=response_a,response_b=response_b,"
            "model_a=Model A,model_b=COLUMN'",
        ),
        ({**ROW, "signature": "s", "p_bar": 0.5}, None, "their battles have been judged"),
        ({"prompt": "?", "chosen": "a", "rejected": "b"}, None, "a battle needs question"),
        (ROW, "model_a", "'model_a' is not FIELD=COLUMN"),
        (ROW, "judge=x", "with one of the fields question, response_a"),
        (ROW, "model_a=nobody", "nobody is missing; there is question"),
    ],
)
def test_columns_that_hold_no_battle_are_named_with_a_map_that_may_fit(
    row: dict[str, Any], columns: str | None, message: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        battle_shape(row, columns)
    assert message in caught.value.detail


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_b": "small"}, "the same model"),
        ({"model_a": " "}, "model_a is not the name of a model"),
        ({"model_a": None}, "model_a is missing"),
        ({"model_a": math.nan}, "model_a is not the name of a model"),
        ({"model_b": 7}, "model_b is not the name of a model"),
        ({"human": "draw?"}, "'draw?' is not model_a, model_b or tie"),
        ({"human": "abstain"}, "'abstain' is not model_a, model_b or tie"),
        ({"label": 1}, "'1' is not model_a, model_b or tie"),
        ({"human": "tie", "human_probability": 0}, "must be above 0 and at most 1"),
        ({"human_probability": 1.1}, "must be above 0 and at most 1"),
        ({"human_probability": "often"}, "'often', and must be above 0"),
        ({"response_a": [said("user", "5")]}, "response_a must be a text"),
    ],
)
def test_a_value_that_cannot_be_used_is_an_error_of_its_row(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidComparisonError) as caught:
        battle(**changes)
    assert message in caught.value.detail


@pytest.mark.parametrize("missing", [None, "", math.nan])
def test_a_missing_label_is_no_label(missing: Any) -> None:
    found = battle(human=missing, human_probability=missing, label=missing, id=missing)
    assert (found.human, found.human_probability) == (None, None)
    assert found.id == battle().id


def test_a_label_keeps_the_probability_of_its_draw() -> None:
    found = battle(human="A", human_probability="0.05")
    assert (found.human, found.human_probability) == ("A", 0.05)


def test_a_row_has_all_that_a_leaderboard_reads() -> None:
    row = row_of(JUDGMENT, id="b1", human="tie", human_probability=0.1)
    assert {name: row[name] for name in ("id", "human", "human_probability")} == {
        "id": "b1",
        "human": "tie",
        "human_probability": 0.1,
    }
    assert (row["judge"], row["calibration"], row["version"]) == ("demo", "default", 3)
    assert (row["threshold"], row["alpha"], row["label_mass"]) == (0.6, 0.1, 0.99)
    assert row["error"] is None
    assert "group" not in row
    assert row_of(JUDGMENT, group="g")["group"] == "g"
    assert "category" not in row
    assert row_of(JUDGMENT, category="sums")["category"] == "sums"


def test_a_signature_is_one_line_with_all_that_a_judgment_depends_on() -> None:
    assert row_of(JUDGMENT)["signature"] == (
        "scope-judge 1.2.0; judge demo (fingerprint ffffffffffff); template cccccccccccc; "
        "calibration default, version 3, n 600; pac, alpha 0.1, delta 0.05"
    )
    free = {**JUDGMENT, "alpha": None, "guarantee": None, "delta": None, "calibration": None}
    assert row_of(free)["signature"].endswith("; no calibration; no alpha")
