"""`scope-judge battles`: every battle once and in order, and an error is never a verdict."""

import random
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.files.reading import read_rows
from tests.unit.cli.commands import BAD, GOOD, SAME, write_rows

runner = CliRunner()
PARTIAL = "rows.jsonl.partial"


def battle(a: str, b: str, **more: Any) -> dict[str, Any]:
    return {
        "question": "Which?",
        "model_a": "first",
        "model_b": "second",
        "response_a": a,
        "response_b": b,
        **more,
    }


def many(count: int) -> list[dict[str, Any]]:
    """Battles of five models; every third is a copy of an earlier one."""
    rng = random.Random(17)
    rows: list[dict[str, Any]] = []
    for i in range(count):
        if i % 3 == 2:
            rows.append(dict(rows[i // 2]))
            continue
        a, b = rng.sample(range(5), 2)
        texts = [f"quality={each + rng.random():.3f}" for each in (a, b)]
        row = battle(*texts, model_a=f"model {a}", model_b=f"model {b}")
        rows.append(row | {"question": f"Question {i // 4}"})
    return rows


def judged(
    url: str, folder: Path, rows: list[dict[str, Any]], *options: str, out: str = "rows.jsonl"
) -> Result:
    paths = [str(write_rows(folder / "in.jsonl", rows)), "--out", str(folder / out)]
    return runner.invoke(app, ["battles", *paths, "--url", url, "--alpha", "0.1", *options])


def rows_in(file: Path) -> list[dict[str, Any]]:
    return [row.fields for row in read_rows(file)]


def known(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def test_the_winner_is_a_model(service: str, tmp_path: Path) -> None:
    rows = [battle(GOOD, BAD, question=f"q{i}", human="A", human_probability=0.1) for i in range(6)]
    rows += [battle(BAD, GOOD, question=f"q{i}") for i in range(6)]
    rows += [battle(GOOD, SAME, question=f"q{i}") for i in range(6)]
    result = judged(service, tmp_path, rows)
    assert result.exit_code == 0, result.stderr
    found = rows_in(tmp_path / "rows.jsonl")
    assert [row["winner"] for row in found] == [
        *["model_a"] * 6,
        *["model_b"] * 6,
        *["abstain"] * 6,
    ]
    assert all(row["p_bar"] > 0.9 for row in found[:6])
    assert all(row["p_bar"] < 0.1 for row in found[6:12])
    assert {row["reason"] for row in found[12:]} == {"uncertain"}
    assert {(row["human"], row["human_probability"]) for row in found[:6]} == {("model_a", 0.1)}
    assert {row["human"] for row in found[6:]} == {None}
    assert "2 models; A is model_a:" in result.stderr
    assert "18 rows: A 6, B 6, abstained 6, errors 0" in result.stderr


def test_an_error_has_no_winner_and_the_others_are_judged(service: str, tmp_path: Path) -> None:
    rows = [
        battle(GOOD, BAD, question="q1"),
        battle(GOOD, " ", question="q2"),
        battle(GOOD, BAD, model_b="first"),
        battle(GOOD, BAD, human_probability=0),
        battle(BAD, GOOD, question="q3"),
    ]
    result = judged(service, tmp_path, rows)
    assert result.exit_code == 1
    assert "3 of 5 rows got no judgment" in result.stderr
    found = rows_in(tmp_path / "rows.jsonl")
    assert [row["winner"] for row in found] == ["model_a", None, None, None, "model_b"]
    assert [row["accepted"] for row in found] == [True, None, None, None, True]
    assert [row["p_bar"] is None for row in found] == [False, True, True, True, False]
    assert found[2]["id"] == f"{tmp_path / 'in.jsonl'}, line 3"
    assert [row["error"] for row in found] == [None, *["invalid_comparison"] * 3, None]
    assert "the same model" in found[2]["error_detail"]
    assert "human_probability is '0', and must be above 0" in found[3]["error_detail"]
    assert len({row["signature"] for row in found}) == 1


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], [], "is empty"),
        ([{**battle(GOOD, BAD), "model_b": "first"}], [], "the same model"),
        ([{"prompt": "?", "left": "x", "right": "y"}], [], "line 1: the columns are prompt, left"),
        (
            [battle(GOOD, BAD, id=1), battle(BAD, GOOD, id=1)],
            [],
            "line 2 has the id of",
        ),
        (
            [battle(GOOD, BAD), battle(GOOD, BAD, human="the first one")],
            ["--map", "human=NONE,human_probability=p"],
            "p is missing; there is question, model_a",
        ),
        ([battle(GOOD, BAD)], ["--map", "model_a=left_modle"], "left_modle is missing; there is"),
        (
            [battle(GOOD, BAD, vote="left"), battle(GOOD, BAD, vote="both bad!")],
            ["--map", "human=vote,id=NONE"],
            "A=WORD, B=WORD or tie=WORD in --map id=NONE,human=vote,A=WORD,B=WORD,tie=WORD",
        ),
        ([battle(GOOD, BAD)], ["--no-alpha"], "--alpha or --no-alpha, not both"),
        ([battle(GOOD, BAD)], ["--calibration", "none"], "calibrate FILE"),
    ],
)
def test_a_run_that_cannot_be_right_is_refused(
    service: str, tmp_path: Path, rows: list[dict[str, Any]], options: list[str], message: str
) -> None:
    result = judged(service, tmp_path, rows, *options)
    assert result.exit_code == 1
    assert message in " ".join(result.stderr.split())
    assert not (tmp_path / "rows.jsonl").exists()
    assert not (tmp_path / PARTIAL).exists()


def test_rows_of_two_calibrations_are_two_judges(service: str, tmp_path: Path) -> None:
    example = {"question": "new", "response_a": GOOD, "response_b": BAD, "label": "A"}
    httpx.post(f"{service}/calibrate", json={"calibration": "other", "examples": [example] * 9})
    rows = [battle(GOOD, BAD), battle(BAD, GOOD, calibration="other", question="q2")]
    result = judged(service, tmp_path, rows)
    assert result.exit_code == 0, result.stderr
    assert len({row["signature"] for row in rows_in(tmp_path / "rows.jsonl")}) == 2


def test_a_winner_column_with_labels_is_named_and_not_dropped_unsaid(
    service: str, tmp_path: Path
) -> None:
    rows = [battle(GOOD, BAD, winner="model_a", human_probability=0.5)]
    result = judged(service, tmp_path, rows)
    assert "has a column `winner`, which is not read" in " ".join(result.stderr.split())
    again = judged(service, tmp_path, rows, "--map", "human=winner", "--overwrite")
    assert "which is not read" not in " ".join(again.stderr.split())
    assert [row["human"] for row in rows_in(tmp_path / "rows.jsonl")] == ["model_a"]


def test_equal_battles_under_new_ids_warn(service: str, tmp_path: Path) -> None:
    rows = [battle(GOOD, BAD, id="one"), battle(GOOD, BAD, id="two"), battle(BAD, GOOD, id="three")]
    said = " ".join(judged(service, tmp_path, rows).stderr.split())
    assert "1 battle has the models and texts of another under a new id" in said
    assert "one and two" in said
