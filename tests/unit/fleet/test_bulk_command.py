"""`scope-judge judge --ray` without Ray: a worker in this process judges the parts."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.fleet.job import Job
from app.fleet.parts import cut
from app.fleet.sources import sources_of
from app.fleet.worker import PartWorker
from app.settings import read_settings
from tests.unit.fleet.conftest import WriteRows

ROWS = [
    {"question": "q", "response_a": "quality=3", "response_b": "quality=0"},
    {"question": "q", "response_a": "quality=0", "response_b": "quality=3"},
    {"question": "q", "response_a": " ", "response_b": "quality=3"},
]


@pytest.fixture
def folder(bulk_folder: WriteRows) -> Path:
    return bulk_folder(ROWS)


def command(*words: str) -> Result:
    return CliRunner().invoke(app, ["judge", *words])


def judge_all(out: Path, **given: Any) -> None:
    """Judges every part, as the machines of a cluster would."""
    worker = PartWorker(Job.of(read_settings(), given, out))
    for number, part in enumerate(cut(sources_of([Path("in.jsonl")], out), rows_per_part=2).parts):
        assert worker.judge(number, part).kind == "done"
    worker.close()


def test_input_of_another_format_is_written_as_jsonl_until_the_run_ends(folder: Path) -> None:
    table = "prompt,chosen,rejected\nq,quality=3,quality=0\nq, ,quality=3\n"
    (folder / "in.csv").write_text(table)
    out = folder / "in-judged"
    command("in.csv", "--ray", "--no-alpha", "--address", "127.0.0.1:1")
    (written,) = (out / "input").iterdir()
    assert [json.loads(line)["chosen"] for line in written.read_text().splitlines()] == [
        "quality=3",
        " ",
    ]
    worker = PartWorker(Job.of(read_settings(), {"alpha": None}, out))
    sources = sources_of([Path("in.csv")], out / "input")
    for number, part in enumerate(cut(sources, rows_per_part=1000).parts):
        assert worker.judge(number, part).kind == "done"
    worker.close()
    done = command("in.csv", "--ray", "--no-alpha", "--address", "127.0.0.1:1")
    assert "A 1, B 0, abstained 0, errors 1" in done.output
    assert not (out / "input").exists()
    mapped = "question=prompt,response_a=rejected,response_b=chosen"
    other = command("in.csv", "--ray", "--no-alpha", "--map", mapped)
    assert "another input" in other.output, "with another map the rows mean something else"


def begin(*words: str) -> Result:
    """Runs the command with the address of a missing cluster."""
    return command("in.jsonl", "--ray", "--batch-size", "2", "--address", "127.0.0.1:1", *words)


def test_finished_parts_are_added_up_and_not_judged_again(folder: Path) -> None:
    out = folder / "in-judged"
    (out / "parts").mkdir(parents=True)
    judge_all(out, alpha=None)
    done = begin("--no-alpha")
    assert "3 results" in done.output
    assert "A 1, B 1, abstained 0, errors 1" in done.output
    assert done.exit_code == 1, "one comparison got no judgment"
    assert json.loads((out / "summary.json").read_text())["outcomes"] == {
        "A": 1,
        "B": 1,
        "error": 1,
    }


def test_a_folder_of_another_criterion_or_input_is_refused(folder: Path) -> None:
    (folder / "in-judged" / "parts").mkdir(parents=True)
    judge_all(folder / "in-judged", alpha=None)
    begin("--no-alpha")
    refused = begin("--alpha", "0.2")
    assert refused.exit_code == 1
    assert "another criterion" in refused.output
    (folder / "in.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    assert "another input" in begin("--no-alpha").output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ray"], "--ray takes files"),
        (["in.jsonl", "--ray", "--question", "q"], "--ray takes files"),
        (["in.jsonl", "--ray", "--a", "x"], "--ray takes files"),
        (["in.jsonl", "--ray", "--b", "x"], "--ray takes files"),
        (["in.jsonl", "--ray", "--url", "http://a"], "--ray takes files"),
        (["missing.jsonl", "--ray"], "missing.jsonl cannot be read"),
        (["in.jsonl", "--ray", "--shape", "x"], "--shape x is unknown"),
        (["in.jsonl", "--ray", "--map", "question=prompt"], "line 1: prompt is missing"),
        (["in.jsonl", "--ray", "--shape", "preference"], "line 1: chosen, rejected are missing"),
        (["in.jsonl", "--ray", "--flat"], "--ray has no --flat"),
        (["in.jsonl", "--ray", "--delta", "0.1"], 'only allowed with "guarantee": "pac"'),
        (["in.jsonl", "--ray", "--alpha", "2"], "alpha"),
        (["in.jsonl", "--replicas", "2"], "need --ray"),
    ],
)
def test_invalid_options_are_refused(folder: Path, words: list[str], message: str) -> None:
    refused = command(*words)
    assert refused.exit_code == 1
    assert message in refused.output


def test_results_never_become_input(folder: Path) -> None:
    (folder / "in").mkdir()
    (folder / "in.jsonl").rename(folder / "in" / "a.jsonl")
    for out in ("in", "in/judged", "other/../in"):
        refused = command("in", "--ray", "--out", out)
        assert refused.exit_code == 1
        assert "is within the input" in refused.output.replace("\n", " ")
    assert [each.name for each in (folder / "in").iterdir()] == ["a.jsonl"]


def test_stdin_is_refused(folder: Path) -> None:
    refused = command("-", "--ray")
    assert refused.exit_code == 1
    assert "stdin" in refused.output


def test_a_missing_cluster_is_reported_at_once(folder: Path) -> None:
    refused = begin("--no-alpha")
    assert refused.exit_code == 1
    assert "no Ray cluster at 127.0.0.1:1" in refused.output
