"""Promises of boards, by their commands alone: no number misleads, and nothing is left unsaid."""

import json
import math
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from tests.unit.cli.commands import one_line, write_rows
from tests.unit.ratings.arena import simulated

Rows = list[dict[str, Any]]
MODELS = [f"model-{place:02d}" for place in range(9)]


def arena(battles: int, *, labelled: float, guarantee: str = "pac") -> tuple[Rows, list[float]]:
    """Battles of nine models, the first the weakest; and the truth of each."""
    made = simulated(models=len(MODELS), battles=battles)
    rows = made.rows(labelled=labelled, guarantee=guarantee, error=None)
    return rows, made.truth.tolist()


def rated(rows: Rows, folder: Path, *options: str) -> Result:
    file = write_rows(folder / "rows.jsonl", rows)
    given = ["leaderboard", str(file), "--out", str(folder / "board"), "--rounds", "200", *options]
    result = CliRunner().invoke(app, given, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result


def results_in(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "board" / "results.json").read_text())
    return read


def page_in(folder: Path) -> str:
    """The texts of the page, without its markup."""
    page = (folder / "board" / "leaderboard.html").read_text(encoding="utf-8")
    body = re.sub(r"<style>.*?</style>|<script>.*?</script>|data:[^\"]*", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", body)))


def scores(folder: Path, view: str) -> dict[str, float]:
    ratings = results_in(folder)["views"][view]["ratings"]
    return {each["model"]: each["score"] for each in ratings}


def line_of(output: str, model: str) -> list[str]:
    """The cells of a model in the first table that has it."""
    line = next(line for line in output.splitlines() if f" {model} " in line)
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_six_battles_of_a_newcomer_change_no_other_rating(tmp_path: Path) -> None:
    rows, _ = arena(700, labelled=0.1)
    new = [
        {**rows[n], "id": f"new {n}", "question_id": f"new {n}", "model_a": "newcomer"}
        | {"winner": "model_a", "reason": None, "p_bar": 0.99}
        | {"human": "model_b", "human_probability": 0.1}
        for n in range(6)
    ]
    folders = [tmp_path / name for name in ("alone", "joined")]
    for folder, more in zip(folders, ([], new), strict=True):
        folder.mkdir()
        rated([*rows, *more], folder)
    for view in ("debiased", "soft", "people", "accepted"):
        alone, joined = (scores(folder, view) for folder in folders)
        for model, score in alone.items():
            assert joined[model] == pytest.approx(score, abs=1e-6), (view, model)


def failing(rows: Rows, truth: list[float]) -> Rows:
    """The rows without a judgment where the weakest model loses, three times of four."""
    failed, lost = [], 0
    for row, won in zip(rows, truth, strict=True):
        loser = row["model_b"] if won else row["model_a"]
        lost += loser == MODELS[0]
        is_failed = loser == MODELS[0] and lost % 4 > 0
        gone = {"winner": None, "p_bar": None, "reason": None, "error": "prompt_too_long"}
        failed.append({**row, **gone} if is_failed else row)
    return failed


def test_failures_are_counted_by_model_and_uneven_ones_warn(tmp_path: Path) -> None:
    rows, truth = arena(1500, labelled=0.0)
    rows = failing(rows, truth)
    failed = {
        model: sum(bool(r["error"]) for r in rows if model in (r["model_a"], r["model_b"]))
        for model in MODELS
    }
    result = rated(rows, tmp_path)
    page = page_in(tmp_path)
    for model, number in failed.items():
        assert line_of(result.stdout, model)[-1] == str(number)
        assert re.search(rf"{model} [^a-z]* to [\d ]*[\d,]+ {number} ", page), model
    assert f"By model: {MODELS[0]} {failed[MODELS[0]]}," in one_line(result.stdout)
    for said in (one_line(result.stdout), page):
        assert f"Failures are uneven: battles of {MODELS[0]} fail more often" in said
        assert not re.search(r"uneven: battles of model-00,", said)


@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
def test_a_board_claims_no_more_than_its_guarantee(guarantee: str, tmp_path: Path) -> None:
    rows, _ = arena(600, labelled=0.0, guarantee=guarantee)
    result = rated(rows, tmp_path)
    bound = re.search(r"[Aa]t most (a share alpha|\d+%)", page_in(tmp_path))
    assert bool(bound) == (guarantee == "pac")
    assert "Alpha limits the share" not in one_line(result.stdout)
    if guarantee == "marginal":
        assert "about half of all calibrations exceed alpha" in page_in(tmp_path)


def test_ties_among_accepted_verdicts_are_shown(tmp_path: Path) -> None:
    rows, _ = arena(900, labelled=1.0)
    accepted = [row for row in rows if row["winner"] != "abstain"]
    for row in accepted[: len(accepted) // 4]:
        row["human"] = "tie"
    rated(rows, tmp_path)
    ties, verdicts = len(accepted) // 4, len(accepted)
    share = f"{ties / verdicts:.1%}"
    found = re.search(
        rf"Of the {verdicts} verdicts among them, {ties} have the label tie: {share} "
        r"\((\d+\.\d)% to (\d+\.\d)%\)",
        page_in(tmp_path),
    )
    assert found is not None
    # A Wilson interval of so many labels.
    reach = 1.96 * math.sqrt(0.25 * 0.75 / verdicts)
    low, high = (float(end) / 100 for end in found.groups())
    assert (low, high) == pytest.approx((0.25 - reach, 0.25 + reach), abs=0.005)


def by_hand() -> Rows:
    """Sixty judged battles of two models, five failed ones and two copies.

    x has 0.75 of forty battles and 0.5 of twenty: two thirds, which are odds of 2 to 1.
    """
    rows: Rows = []
    for number in range(65):
        base: dict[str, Any] = {"id": str(number), "question_id": f"q{number}", "judge": "hand"}
        sides = {"model_a": "x", "model_b": "y"} if number % 2 else {"model_a": "y", "model_b": "x"}
        if number >= 60:
            rows.append({**base, **sides, "error": "engine_unavailable"})
            continue
        p_x = 0.75 if number < 40 else 0.5
        p = p_x if number % 2 else 1 - p_x
        verdict = {0.75: "model_a", 0.25: "model_b", 0.5: "abstain"}[p]
        more: dict[str, Any] = {"reason": "uncertain"} if verdict == "abstain" else {}
        if number < 10:
            # Seven labels for x and three ties.
            label = "tie" if number < 3 else ("model_a" if number % 2 else "model_b")
            more |= {"human": label, "human_probability": 0.5}
        rows.append({**base, **sides, "winner": verdict, "p_bar": p, **more, "alpha": 0.1})
    return [*rows, rows[0], rows[1]]


def test_each_printed_number_is_the_one_by_hand(tmp_path: Path) -> None:
    rated(by_hand(), tmp_path)
    page = page_in(tmp_path)
    for text in (
        # 400 log10(2) = 120.4 points, half of them to each side of 1000.
        "1 x 1060",
        "2 y 940",
        "65 battles, 65 questions, 5 without a judgment, 2 copies left out",
        # 40 of 60 have a verdict.
        "Accepted verdicts 66.7%",
        "40 verdicts accepted of 60 judged battles",
        "Labeled by people 10",
        "People labeled 10 battles, 3 of them a tie",
        "Of the 10 verdicts among them, 3 have the label tie: 30.0% (",
        "If the judge had to answer always, 0.0% of its answers would be wrong",
        # Battles, coverage, labels, failures.
        "x – y 65 66.7% 10 5",
        # The main table: battles that it counts, and failed ones.
        " 60 5 2 y 940",
    ):
        assert text in page
