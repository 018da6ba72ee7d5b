"""Tests of `scope-judge leaderboard`."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.ratings.leaderboard import results_of
from tests.unit.cli.commands import one_line
from tests.unit.ratings.arena import simulated, write

runner = CliRunner()


def run(*arguments: Path | str) -> Result:
    return runner.invoke(app, ["leaderboard", *map(str, arguments), "--rounds", "100"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The folder of a run with labels, and the output of the run."""
    folder = tmp_path_factory.mktemp("board")
    path = write(folder / "rows.jsonl", simulated(battles=1200).rows(labelled=0.2))
    return folder, run(path, "--out", folder / "out")


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


def test_the_table_has_score_interval_and_rank_set(made: tuple[Path, Result]) -> None:
    folder, result = made
    assert result.exit_code == 0, result.output
    best = results(folder / "out")["views"]["debiased"]["ratings"][0]
    line = next(each for each in result.stdout.splitlines() if best["model"] in each)
    for number in ("score", "low", "high", "battles"):
        assert f"{best[number]:.0f}" in line
    assert "Ratings come without a guarantee." in one_line(result.stdout)


def test_results_have_the_fixed_views(made: tuple[Path, Result]) -> None:
    found = results(made[0] / "out")
    assert {"accepted", "soft", "abstain_as_tie", "debiased"} <= found["views"].keys()
    text = (made[0] / "out" / "results.json").read_text()
    assert results_of(text, "results.json").board.judge == "sim"


def test_the_csv_has_one_row_for_each_view_and_model(made: tuple[Path, Result]) -> None:
    with (made[0] / "out" / "leaderboard.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    views = results(made[0] / "out")["views"]
    assert len(rows) == sum(len(view["ratings"]) for view in views.values())
    best = views["soft"]["ratings"][0]
    row = next(each for each in rows if each["view"] == "soft" and each["rank"] == "1")
    assert row["model"] == best["model"]
    assert float(row["score"]) == pytest.approx(best["score"])


def test_another_run_shows_the_changes(made: tuple[Path, Result]) -> None:
    folder, _ = made
    path = write(folder / "kin.jsonl", simulated(battles=1200, favor=4.0).rows(signature="kin"))
    result = run(path, "--out", folder / "kin", "--against", folder / "out")
    assert result.exit_code == 0, result.output
    assert "by more than chance: model-02" in " ".join(result.stdout.split())
    changes = results(folder / "kin")["changes"]
    favored = next(each for each in changes["models"] if each["model"] == "model-02")
    assert favored["moved"]
    assert favored["score"] > favored["score_before"] + 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--human-probability", "0"), "--human-probability must be above 0"),
        (("--label-noise", "0.5"), "--label-noise must be at least 0 and below 0.5"),
        (("--against", "nowhere"), "nowhere/results.json cannot be read"),
        (("--title", " "), "--title is empty"),
    ],
)
def test_an_option_that_does_not_fit_is_refused(
    options: tuple[str, ...], message: str, made: tuple[Path, Result], tmp_path: Path
) -> None:
    arguments = ["leaderboard", str(made[0] / "rows.jsonl"), "--out", str(tmp_path / "x"), *options]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 1
    assert message in one_line(result.stderr)
    assert not (tmp_path / "x").exists()


def test_a_board_is_replaced_only_when_that_is_asked_for(
    made: tuple[Path, Result], tmp_path: Path
) -> None:
    rows, out = made[0] / "rows.jsonl", tmp_path / "board"
    assert run(rows, "--out", out).exit_code == 0
    refused = run(rows, "--out", out, "--seed", "1")
    assert (refused.exit_code, results(out)["settings"]["seed"]) == (1, 0)
    assert "board already has a board: name another --out, or replace it with --overwrite" in (
        one_line(refused.stderr)
    )
    assert run(rows, "--out", out, "--seed", "1", "--overwrite").exit_code == 0
    assert results(out)["settings"]["seed"] == 1


def test_without_an_accepted_verdict_nothing_is_ranked_by_verdicts(tmp_path: Path) -> None:
    rows = [
        {**row, "winner": "abstain", "accepted": False, "reason": "uncertain"}
        for row in simulated(battles=300).rows()
    ]
    result = run(write(tmp_path / "rows.jsonl", rows), "--out", tmp_path / "board")
    assert result.exit_code == 0, result.output
    assert "No verdict was accepted, so no view ranks by verdicts." in one_line(result.stdout)
    assert [*results(tmp_path / "board")["views"]] == ["soft"]
    for row in rows:
        row["p_bar"] = row["p_fwd"] = row["p_rev"] = None
    refused = run(write(tmp_path / "rows.jsonl", rows), "--out", tmp_path / "x")
    assert refused.exit_code == 1
    assert "nothing to rank by: no verdict was accepted" in one_line(refused.stderr)
