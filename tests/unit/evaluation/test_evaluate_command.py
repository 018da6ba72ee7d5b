"""`scope-judge evaluate` from its arguments to its files, on the scripted judge."""

import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

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
        "report.html",
        "cost.json",
    }
    costs = json.loads((out / "cost.json").read_text())["mine"]
    assert {name: (cost["prompts"], cost["pairs"]) for name, cost in costs.items()} == {
        name: (method.prompts, 108) for name, method in METHODS.items()
    }
    assert all(cost["seconds"] > 0 for cost in costs.values())
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


def test_a_second_run_asks_nothing_and_gives_the_same_results(
    whole_run: tuple[Path, Result],
) -> None:
    folder, _ = whole_run
    out = folder / "out"
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    again = run(folder / "mine.jsonl", *WITH_ALL_METHODS, "--out", out)
    assert again.exit_code == 0
    assert "Loading judge" not in again.output
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_judgments_alone_give_the_same_tables(
    whole_run: tuple[Path, Result], tmp_path: Path
) -> None:
    out = whole_run[0] / "out"
    result = run("--from", out / "judgments.jsonl", *WITH_ALL_METHODS, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    ours, theirs = results(out), results(tmp_path)
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


def test_costs_of_earlier_runs_stay_until_they_are_measured_again(tmp_path: Path) -> None:
    file, out = pairs_file(tmp_path), tmp_path / "out"

    def costs_after(*arguments: str) -> dict[str, int]:
        result = run(file, "--splits", "5", "--out", out, *arguments)
        assert result.exit_code == 0, result.output
        costs = json.loads((out / "cost.json").read_text())["mine"]
        report = (out / "report.html").read_text()
        assert all(METHODS[name].title in report for name in costs)
        return {name: cost["pairs"] for name, cost in costs.items()}

    of_orders = ("predictive_probability", "swap_and_aggregate", "swap_confidence", "bpe")
    first = costs_after("--methods", "bpe", "--limit", "50")
    assert first == dict.fromkeys(of_orders, 50)
    second = costs_after("--methods", "self_consistency", "--limit", "50")
    assert second == {**first, "self_consistency": 50}
    # The samples of 70 more pairs; nobody has asked about their orders.
    assert costs_after("--methods", "self_consistency") == {**first, "self_consistency": 70}
    (out / "cost.json").write_text("[]")
    refused = run(file, "--splits", "5", "--out", out)
    assert refused.exit_code == 1
    assert "cost.json was not written by evaluate" in told(refused)


def test_alphas_of_the_papers_extended_data_go_to_30_percent(tmp_path: Path) -> None:
    file = pairs_file(tmp_path, 20, "judge-bench.jsonl")

    def alphas(*arguments: str) -> list[float]:
        out = tmp_path / "out"
        result = run(file, "--methods", "bpe", "--splits", "2", "--out", out, *arguments)
        assert result.exit_code == 0, result.output
        found: list[float] = results(out)["design"]["alphas"]
        return found

    assert alphas() == [0.05, 0.1, 0.15, 0.2, 0.25, 0.3]
    assert alphas("--alpha", "0.2") == [0.2]


def test_answers_to_other_texts_are_not_used_as_results(tmp_path: Path) -> None:
    file, out = pairs_file(tmp_path), tmp_path / "out"
    assert run(file, "--splits", "5", "--out", out, "--methods", "bpe").exit_code == 0
    file.write_text(file.read_text().replace("quality=", "quality=-", 100))
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


class Run(NamedTuple):
    """Arguments of a run, apart from those of all runs; {0} is a folder of files."""

    arguments: str
    environment: Mapping[str, str] = {}


ONE = Run("{0}/one.jsonl")
# Runs after a run of the scripted judge on one.jsonl in the same folder.
SAME_RUN = {
    "fewer pairs": Run("{0}/one.jsonl --limit 10"),
    "another seed": Run("{0}/one.jsonl --seed 3"),
    "another alpha": Run("{0}/one.jsonl --alpha 0.3"),
    "more data": Run("{0}/one.jsonl {0}/two.jsonl"),
    "its own judgments": Run("--from {0}/out/judgments.jsonl"),
    "a file that has grown": Run("{0}/grown/one.jsonl"),
}
OTHER_RUNS = {
    "other data": (
        Run("{0}/two.jsonl"),
        "has the report of scripted on one, and this run is of scripted on two: give another "
        "--out, or delete that folder",
    ),
    "other data of the same name": (
        Run("{0}/other/one.jsonl"),
        "has judgments on other pairs called one: only 0 of its 60 judged pairs are in this data. "
        "Give another --out, or delete that folder",
    ),
    "another judge": (
        Run("{0}/one.jsonl", {"SCOPE_ENGINE": "vllm", "SCOPE_MODEL": "demo"}),
        "has the report of scripted on one, and this run is of demo on one: give another --out",
    ),
    "judgments of another judge": (
        Run("--from {0}/votes.jsonl"),
        "has the judgments of another run than {0}/votes.jsonl: give another --out",
    ),
}


def run_in_one_folder(folder: Path, which: Run) -> Result:
    words = which.arguments.format(folder).split()
    methods = () if "--methods" in words else ("--methods", "bpe")
    out = folder / "out"
    return run(*words, *methods, "--splits", "5", "--out", out, **which.environment)


@pytest.fixture(scope="module")
def judged_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of pairs, and a folder `out` with the run on one.jsonl."""
    folder = tmp_path_factory.mktemp("judged")
    (folder / "grown").mkdir()
    (folder / "other").mkdir()
    one = pairs_file(folder, 60, "one.jsonl").read_text()
    pairs_file(folder, 80, "two.jsonl")
    (folder / "grown/one.jsonl").write_text(
        one.replace("Question 5?", "Question five?")
        + one.replace('"id": "', '"id": "new-').replace("?", "!")
    )
    (folder / "other/one.jsonl").write_text(one.replace("Question", "Another question"))
    votes = [{"id": i, "label": "AB"[i % 2], "p_fwd": i / 40, "p_rev": 0.3} for i in range(40)]
    (folder / "votes.jsonl").write_text("".join(json.dumps(vote) + "\n" for vote in votes))
    assert run_in_one_folder(folder, ONE).exit_code == 0
    return folder


@pytest.fixture
def folder_of_one(judged_once: Path, tmp_path: Path) -> Path:
    """A copy of these files, which the test may change."""
    return shutil.copytree(judged_once, tmp_path, dirs_exist_ok=True)


@pytest.mark.parametrize("again", SAME_RUN.values(), ids=SAME_RUN)
def test_the_same_data_and_judge_may_use_the_folder_again(again: Run, folder_of_one: Path) -> None:
    result = run_in_one_folder(folder_of_one, again)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(("other", "reason"), OTHER_RUNS.values(), ids=OTHER_RUNS)
def test_another_run_in_the_same_folder_is_refused_and_changes_nothing(
    other: Run, reason: str, folder_of_one: Path
) -> None:
    out = folder_of_one / "out"
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    result = run_in_one_folder(folder_of_one, other)
    assert result.exit_code == 1
    assert reason.format(folder_of_one) in told(result)
    assert "Loading judge" not in result.output
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_judgments_without_a_report_are_not_mixed_with_others(folder_of_one: Path) -> None:
    out = folder_of_one / "out"
    # A killed run leaves judgments and no report.
    (out / "results.json").unlink()
    result = run_in_one_folder(folder_of_one, Run("{0}/two.jsonl"))
    assert result.exit_code == 1
    assert "has judgments on one, and this run is on two: give another --out" in told(result)
    log = out / "judgments.jsonl"
    log.write_text(log.read_text().replace('"scripted"', '"other"'))
    result = run_in_one_folder(folder_of_one, ONE)
    assert result.exit_code == 1
    assert "holds judgments of other, not of scripted: give another --out" in told(result)


def test_a_report_of_other_judgments_is_not_replaced(folder_of_one: Path) -> None:
    votes, out = folder_of_one / "votes.jsonl", folder_of_one / "votes"
    assert run("--from", votes, "--splits", "5", "--out", out).exit_code == 0
    result = run(folder_of_one / "one.jsonl", "--splits", "5", "--out", out)
    assert result.exit_code == 1
    assert "has the report of an unnamed judge on votes, and this run is of scripted" in told(
        result
    )
    (out / "results.json").write_text('{"mine": 1}')
    result = run("--from", votes, "--splits", "5", "--out", out)
    assert result.exit_code == 1
    assert "results.json was not written by evaluate: give another --out" in told(result)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "no data: name a file of labelled pairs, or benchmarks among mt-bench"),
        (
            ["demo", "--methods", "bpe,guess"],
            "--methods guess: the methods are predictive_probability",
        ),
        (["demo", "--alpha", "1.5"], "--alpha must be between 0 and 1, both excluded, got 1.5"),
        (["demo", "--delta", "0"], "--delta must be between 0 and 1"),
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


@pytest.mark.parametrize(
    ("judge", "reasons"),
    [
        (
            [],
            [
                "no judge: give --judge with a model of the hub (OWNER/NAME), a folder",
                "skywork-critic-8b, demo; or set SCOPE_MODEL",
            ],
        ),
        (["--judge", "qwen9"], ["nor one of qwen2.5-7b, qwen2.5-14b"]),
    ],
)
def test_a_run_without_a_known_judge_is_refused_with_the_list_of_judges(
    judge: list[str], reasons: list[str], tmp_path: Path
) -> None:
    result = run(pairs_file(tmp_path), *judge, SCOPE_ENGINE="vllm")
    assert result.exit_code == 1
    assert all(reason in told(result) for reason in reasons)


def test_a_wrong_setting_is_reported_as_in_other_commands(tmp_path: Path) -> None:
    result = run(pairs_file(tmp_path), "--out", tmp_path / "out", SCOPE_STORE_ULR="x")
    assert result.exit_code == 1
    assert "SCOPE_STORE_ULR: unknown setting" in told(result)
