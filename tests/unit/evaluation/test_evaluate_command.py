"""`scope-judge evaluate` from its arguments to its files, on the scripted judge."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.evaluation.methods import METHODS

SCRIPTED = {"SCOPE_ENGINE": "scripted"}


def run(*arguments: str | Path, **environment: str) -> Result:
    return CliRunner().invoke(
        app, ["evaluate", *map(str, arguments)], env={**SCRIPTED, "COLUMNS": "200", **environment}
    )


def told(result: Result) -> str:
    """The output on one line: a terminal may break lines anywhere."""
    return " ".join(result.output.split())


def pairs_file(folder: Path, n: int = 120, name: str = "mine.jsonl") -> Path:
    """A file of pairs on which the scripted judge is right more often when it is more confident."""
    rng = random.Random(7)
    rows = []
    for i in range(n):
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
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


def test_one_command_writes_judgments_results_and_report(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(pairs_file(tmp_path), "--methods", "all", "--splits", "20", "--out", out)
    assert result.exit_code == 0, result.output
    assert {file.name for file in out.iterdir()} == {
        "judgments.jsonl",
        "results.json",
        "report.html",
    }
    (dataset,) = results(out)["datasets"]
    assert (dataset["name"], dataset["ties"]) == ("mine", 1)
    # A tenth of the 120 pairs is kept as demonstrations for the annotators.
    assert dataset["n"] == 108
    assert [method["method"] for method in dataset["methods"]] == list(METHODS)
    for method in METHODS.values():
        assert method.title in result.stdout
    page = (out / "report.html").read_text()
    assert "scripted" in page
    assert "mine" in page


def test_a_second_run_asks_nothing_and_gives_the_same_results(tmp_path: Path) -> None:
    file, out = pairs_file(tmp_path), tmp_path / "out"
    arguments = (file, "--methods", "all", "--splits", "20", "--out", out)
    assert run(*arguments).exit_code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    again = run(*arguments)
    assert again.exit_code == 0
    assert "Loading judge" not in again.output
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_judgments_alone_give_the_same_tables(tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    assert run(pairs_file(tmp_path), "--splits", "20", "--out", out).exit_code == 0
    result = run("--from", out / "judgments.jsonl", "--splits", "20", "--out", other)
    assert result.exit_code == 0, result.output
    ours, theirs = results(out), results(other)
    # The file of judgments does not count the ties of the data.
    assert ours["datasets"][0].pop("ties") == 1
    assert theirs["datasets"][0].pop("ties") == 0
    assert ours == theirs


def test_evaluate_and_curve_show_the_same_two_tables(tmp_path: Path) -> None:
    out = tmp_path / "out"
    evaluated = run(pairs_file(tmp_path), "--methods", "bpe", "--splits", "1000", "--out", out)
    assert evaluated.exit_code == 0, evaluated.output
    judged = str(out / "judgments.jsonl")
    curve = CliRunner().invoke(app, ["curve", judged, "--split"], env={"COLUMNS": "200"})
    assert curve.exit_code == 0, curve.output

    def rows(text: str, title: str) -> list[str]:
        following = text[text.index(title) :].splitlines()[4:14]
        return [" ".join(line.split()) for line in following]

    titles = (
        "mean of 1000 splits: calibrated on 60 random labels, tested on the other 60",
        "calibrated on all 120 labels",
    )
    for title in titles:
        found = rows(evaluated.stdout, title)
        assert found == rows(curve.stdout, title)
        assert [row.split()[0].rstrip(",") for row in found] == ["marginal"] * 5 + ["pac"] * 5
    report = (out / "report.html").read_text()
    assert "mine: calibrated on 60 labels, tested on the other 60" in report
    assert "mine: calibrated on all 120 labels" in report
    assert len(results(out)["datasets"][0]["all_labels"]) == 10


def test_more_methods_and_more_pairs_ask_only_the_missing_questions(tmp_path: Path) -> None:
    file, out = pairs_file(tmp_path), tmp_path / "out"
    first = ("--splits", "5", "--out", out, "--methods", "bpe", "--limit", "50")
    assert run(file, *first).exit_code == 0
    log = out / "judgments.jsonl"
    before = log.read_text()
    assert before.count("\n") == 50
    assert run(file, "--splits", "5", "--out", out).exit_code == 0
    assert log.read_text().startswith(before)
    # 70 more pairs in both orders, and 120 confidences in words.
    assert log.read_text().count("\n") == 50 + 70 + 120


def test_answers_to_other_texts_are_not_used_as_results(tmp_path: Path) -> None:
    file, out = pairs_file(tmp_path), tmp_path / "out"
    assert run(file, "--splits", "5", "--out", out, "--methods", "bpe").exit_code == 0
    file.write_text(file.read_text().replace("quality=", "quality=-"))
    arguments = ("--splits", "5", "--out", out, "--methods", "self_consistency")
    assert run(file, *arguments).exit_code == 0
    (dataset,) = results(out)["datasets"]
    assert [method["method"] for method in dataset["methods"]] == ["self_consistency"]


def test_names_are_printed_unchanged(tmp_path: Path) -> None:
    file = pairs_file(tmp_path, 30, "[red]x[.y].jsonl")
    result = run(file, "--methods", "bpe", "--splits", "5", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "[red]x[.y]: 30 of 30 pairs on 30 questions; 1 ties left out" in told(result)
    assert "[red]x[.y]: 30 pairs" in told(result)


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


def test_two_data_sets_are_compared_and_transferred(tmp_path: Path) -> None:
    one = pairs_file(tmp_path, 60, "one.jsonl")
    two = pairs_file(tmp_path, 80, "two.jsonl")
    out = tmp_path / "out"
    result = run(one, two, "--methods", "bpe", "--splits", "5", "--out", out)
    assert result.exit_code == 0, result.output
    found = results(out)
    assert [(dataset["name"], dataset["n"]) for dataset in found["datasets"]] == [
        ("one", 60),
        ("two", 80),
    ]
    assert {(row["calibration"], row["test"]) for row in found["transfer"]} == {
        (a, b) for a in ("one", "two") for b in ("one", "two")
    }


def test_another_judge_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    file, out = pairs_file(tmp_path), tmp_path / "out"
    assert run(file, "--splits", "5", "--out", out).exit_code == 0
    text = (out / "judgments.jsonl").read_text()
    (out / "judgments.jsonl").write_text(text.replace('"scripted"', '"other"'))
    result = run(file, "--splits", "5", "--out", out)
    assert result.exit_code == 1
    assert "holds judgments of other, not of scripted: give another --out" in told(result)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--methods", "bpe,guess"], "--methods guess: the methods are predictive_probability"),
        (["--alpha", "1.5"], "--alpha must be between 0 and 1, both excluded, got 1.5"),
        (["--delta", "0"], "--delta must be between 0 and 1"),
        (
            ["nothing-here"],
            "nothing-here is neither a file nor a benchmark; the benchmarks are mt-bench",
        ),
        (["--from", "x.jsonl", "demo"], "--from needs no judge and no data"),
        (["--from", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        (["--limit", "1"], "--limit"),
        (["--out", __file__], "File exists"),
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


def test_an_unknown_judge_is_refused_with_the_list_of_judges(tmp_path: Path) -> None:
    result = run(pairs_file(tmp_path), "--judge", "qwen9", SCOPE_ENGINE="vllm")
    assert result.exit_code == 1
    assert "nor one of qwen2.5-7b, qwen2.5-14b" in told(result)


def test_a_wrong_setting_is_reported_as_in_other_commands(tmp_path: Path) -> None:
    result = run(pairs_file(tmp_path), "--out", tmp_path / "out", SCOPE_STORE_ULR="x")
    assert result.exit_code == 1
    assert "SCOPE_STORE_ULR: unknown setting" in told(result)
