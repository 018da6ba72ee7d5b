"""Plans for a leaderboard: which battles to judge next, and which ones people should label."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.files.reading import read_rows
from tests.unit.ratings.arena import simulated, write

runner = CliRunner()
ARENA = simulated(battles=1200, favour=1.35)
TRUTH = {row["id"]: row["human"] for row in ARENA.rows(labelled=1.0)}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write(tmp_path / "rows.jsonl", ARENA.rows(labelled=0.2))


def planned(rows: Path, *options: str, labels: int = 150) -> Result:
    out = rows.parent / "plan.jsonl"
    given = ["battles", str(rows), "--schedule-labels", str(labels), "--out", str(out)]
    return runner.invoke(app, [*given, *options])


def rows_in(path: Path) -> list[dict[str, Any]]:
    return [row.fields for row in read_rows(path, None)]


def board(rows: Path) -> Result:
    folder = str(rows.parent / "board")
    return runner.invoke(app, ["leaderboard", str(rows), "--out", folder, "--rounds", "100"])


def test_a_plan_is_labelled_and_becomes_the_board(rows: Path) -> None:
    result = planned(rows)
    assert result.exit_code == 0, result.stderr
    before, plan = rows_in(rows), rows_in(rows.parent / "plan.jsonl")
    drawn = [row for row in plan if row["to_label"]]
    assert f"Drawn: {len(drawn)} battles" in result.stderr
    assert "interval of `debiased` from ±" in result.stderr
    assert not any(row["human"] for row in drawn)
    changed = {"human_probability", "to_label"}
    for old, new in zip(before, plan, strict=True):
        assert {name: new[name] for name in new if name not in changed} == {
            name: old[name] for name in old if name not in changed
        }
        assert 0.2 <= new["human_probability"] <= 1.0
    refused = board(rows.parent / "plan.jsonl")
    assert refused.exit_code == 1
    assert "to_label is true, and human is empty" in refused.stderr
    for row in drawn:
        row["human"] = TRUTH[row["id"]]
    assert board(write(rows.parent / "plan.jsonl", plan)).exit_code == 0
    again = planned(rows.parent / "plan.jsonl", "--out", str(rows.parent / "second.jsonl"))
    assert again.exit_code == 0, again.stderr
    second = rows_in(rows.parent / "second.jsonl")
    assert all(
        new["human_probability"] >= old["human_probability"]
        for old, new in zip(plan, second, strict=True)
    )


def test_the_rows_of_all_judges_of_a_battle_get_its_probability(tmp_path: Path) -> None:
    first = ARENA.rows(labelled=0.2)
    other = [{**row, "judge": "other", "signature": "other", "human": None} for row in first]
    rows = write(tmp_path / "rows.jsonl", [*first, *other[:600]])
    result = planned(rows)
    assert result.exit_code == 0, result.stderr
    assert "The plan is for the board of sim" in result.stderr
    plan = rows_in(tmp_path / "plan.jsonl")
    for mine, theirs in zip(plan[:600], plan[1200:], strict=True):
        for name in ("human_probability", "to_label"):
            assert mine[name] == theirs[name]


def test_a_row_without_a_judgment_stays_as_it_is(tmp_path: Path) -> None:
    rows = ARENA.rows(labelled=0.2)
    rows[5] |= {"winner": None, "p_bar": None, "error": "prompt_too_long", "human": None}
    assert planned(write(tmp_path / "rows.jsonl", rows)).exit_code == 0
    assert rows_in(tmp_path / "plan.jsonl")[5] == {**rows[5], "to_label": False}


def test_the_first_labels_are_planned_without_any(tmp_path: Path) -> None:
    result = planned(write(tmp_path / "rows.jsonl", ARENA.rows()))
    assert result.exit_code == 0, result.stderr
    assert "So far the table shows `soft` with ±" in result.stderr


def test_without_a_file_a_plan_is_only_described(rows: Path) -> None:
    result = runner.invoke(app, ["battles", str(rows), "--schedule-labels", "50"])
    assert result.exit_code == 0, result.stderr
    assert [path.name for path in rows.parent.iterdir()] == ["rows.jsonl"]


def test_rows_without_a_probability_take_that_of_the_command(tmp_path: Path) -> None:
    bare = [{**row, "human_probability": None} for row in ARENA.rows(labelled=0.2)]
    rows = write(tmp_path / "rows.jsonl", bare)
    for option in (["--schedule", "20"], ["--schedule-labels", "20"]):
        given = ["battles", str(rows), *option]
        refused = runner.invoke(app, given)
        assert refused.exit_code == 1
        assert "human_probability" in refused.stderr
        taken = runner.invoke(app, [*given, "--human-probability", "0.2"])
        assert taken.exit_code == 0, taken.stderr


def test_pairs_to_judge_are_planned_for_the_view_of_the_table(rows: Path) -> None:
    result = runner.invoke(app, ["battles", str(rows), "--schedule", "20"])
    assert result.exit_code == 0, result.stderr
    assert "in the view `debiased`" in result.stderr
    assert "if people label 2" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--schedule-labels", "0"], "greater than or equal"),
        (["--schedule-labels", "-3"], "greater than or equal"),
        (["--schedule-labels", "2000"], "2000 labels are wanted"),
        (["--schedule-labels", "20", "--schedule", "20"], "not both"),
        (["--schedule-labels", "20", "--human-probability", "0"], "--human-probability"),
        (["--human-probability", "0.1", "--out", "rows2.jsonl"], "goes with --schedule"),
        (["--schedule-labels", "20", "--out", "no-folder/plan.jsonl"], "there is no folder"),
    ],
)
def test_a_plan_that_cannot_be_made_says_why(options: list[str], message: str, rows: Path) -> None:
    result = runner.invoke(app, ["battles", str(rows), *options])
    assert result.exit_code != 0
    assert message in " ".join(result.stderr.replace("│", " ").split())


def test_a_plan_replaces_no_file_unasked(rows: Path) -> None:
    text = rows.read_text()
    assert planned(rows, "--out", str(rows), "--overwrite").exit_code == 1
    assert rows.read_text() == text
    plan = rows.parent / "plan.jsonl"
    plan.write_text(json.dumps({"kept": True}))
    assert planned(rows).exit_code == 1
    assert rows_in(plan) == [{"kept": True}]
    assert planned(rows, "--overwrite").exit_code == 0
