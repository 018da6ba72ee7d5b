"""`scope-judge evaluate` from its arguments to its files, on the scripted judge."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.evaluation.methods import METHODS

pytestmark = pytest.mark.usefixtures("undrawn_figures")

SCRIPTED = {"SCOPE_ENGINE": "scripted"}


def run(*arguments: str | Path, **environment: str) -> Result:
    return CliRunner().invoke(
        app, ["evaluate", *map(str, arguments)], env={**SCRIPTED, "COLUMNS": "200", **environment}
    )


def told(result: Result) -> str:
    """The output on one line: a terminal may break lines anywhere."""
    return " ".join(result.output.split())


def pairs_file(folder: Path) -> Path:
    """A file of pairs on which the scripted judge is right more often when it is more confident."""
    rng = random.Random(7)
    rows = []
    for i in range(120):
        quality = rng.gauss(0, 2)
        right = rng.random() < 1 / (1 + 2.718 ** -abs(quality * 1.5))
        rows.append(
            {
                "id": f"q{i}",
                "question": f"Question {i}?",
                "response_a": f"quality={quality:.4f}",
                "response_b": f"quality=0 number {i}",
                "label": "A" if (quality > 0) == right else "B",
            }
        )
    rows.append({**rows[0], "id": "t", "question": "A tie?", "label": "tie"})
    file = folder / "mine.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


WITH_ALL_METHODS = ("--methods", "all", "--splits", "20")


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A folder with pairs and a folder `out` with a run of all methods, and its output."""
    folder = tmp_path_factory.mktemp("whole")
    result = run(pairs_file(folder), *WITH_ALL_METHODS, "--out", folder / "out")
    assert result.exit_code == 0, result.output
    return folder, result


def test_one_command_writes_judgments_results_and_report(whole_run: tuple[Path, Result]) -> None:
    folder, result = whole_run
    out = folder / "out"
    assert {file.name for file in out.iterdir()} == {
        "judgments.jsonl",
        "results.json",
        "report.md",
        "tables",
    }
    (dataset,) = results(out)["datasets"]
    assert (dataset["name"], dataset["ties"]) == ("mine", 1)
    # A tenth of the 120 pairs is kept as demonstrations for the annotators.
    assert dataset["n"] == 108
    assert [method["method"] for method in dataset["methods"]] == list(METHODS)
    for method in METHODS.values():
        assert method.title in result.stdout
    report = (out / "report.md").read_text()
    assert "- Judge: scripted\n- Data: mine, 108 labeled pairs" in report


def test_a_second_run_asks_nothing_and_gives_the_same_results(
    whole_run: tuple[Path, Result],
) -> None:
    folder, _ = whole_run
    out = folder / "out"
    before = {path.name: path.read_bytes() for path in out.rglob("*.*")}
    again = run(folder / "mine.jsonl", *WITH_ALL_METHODS, "--out", out)
    assert again.exit_code == 0
    assert "Loading judge" not in again.output
    assert {path.name: path.read_bytes() for path in out.rglob("*.*")} == before


def test_a_users_judgments_are_reported_in_a_separate_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [{"id": i, "label": "AB"[i % 2], "p_fwd": i / 40, "p_rev": 0.3} for i in range(40)]
    file = tmp_path / "GPT-4.1_votes.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = run("--from", file, "--splits", "5", "--alpha", "0.2", "--alpha", "0.2")
    assert result.exit_code == 0, result.output
    (dataset,) = results(tmp_path / "evaluation-GPT-4.1_votes")["datasets"]
    assert dataset["name"] == "GPT-4.1_votes"
    assert [row["alpha"] for row in dataset["methods"][0]["rows"]] == [0.2] * 6
    only = run("--from", file, "--splits", "5", "--methods", "self_consistency")
    assert only.exit_code == 1
    assert "GPT-4.1_votes has no answers for any of the methods" in told(only)


@pytest.mark.parametrize(("mass", "is_warned"), [(0.014, True), (0.9, False), (None, False)])
def test_a_judge_that_answers_with_something_other_than_a_label_gets_a_warning(
    tmp_path: Path, mass: float | None, is_warned: bool
) -> None:
    line = {"gap_fwd": 0.5, "gap_rev": 0.25} | ({} if mass is None else {"label_mass": mass})
    lines = [{"id": i, "label": "AB"[i % 2], **line} for i in range(20)]
    file = tmp_path / "votes.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = run("--from", file, "--splits", "5", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    warning = "warning: votes: the labels A and B together have a probability of only 1.4e-02"
    assert (warning in told(result)) == is_warned
    assert ("warning" in told(result)) == is_warned


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "no data: name a file of labeled pairs, or benchmarks among mt-bench"),
        (
            ["demo", "--methods", "bpe,guess"],
            "--methods guess: the methods are predictive_probability",
        ),
        (
            ["nothing-here"],
            "nothing-here is neither a file nor a benchmark; the benchmarks are mt-bench",
        ),
        (["--from", "x.jsonl", "demo"], "--from needs no judge and no data"),
        (["--from", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        (["demo", "--limit", "1"], "--limit"),
        (["demo", "--out", __file__], "File exists"),
    ],
)
def test_bad_arguments_are_refused_with_advice(
    arguments: list[str], reason: str, tmp_path: Path
) -> None:
    result = run(*arguments, "--splits", "2")
    assert result.exit_code != 0
    assert reason in told(result)
    # The runner keeps any other exception, which a user would see as a traceback.
    assert isinstance(result.exception, SystemExit)
