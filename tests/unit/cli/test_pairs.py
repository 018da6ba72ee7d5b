"""Tests of `scope-judge pairs`: the best pair of each prompt, and why others have none."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.judges.engines.scripted import ScriptedEngine
from scope_judge import ScopeClient
from tests.serving import application_of
from tests.unit.api.problems import examples
from tests.unit.api.rewards.reward_routes import script
from tests.unit.cli.listening import listening

runner = CliRunner()
ROWS: list[dict[str, Any]] = [
    {"prompt": "Which?", "responses": ["quality=1", "quality=3", "quality=2"], "id": 1},
    {"prompt": "Which?", "responses": ["quality=1", "quality=1"], "id": 2},
    {"prompt": "Which?", "responses": ["quality=1"], "id": 3},
    {"prompt": [{"role": "user", "content": "Which?"}], "responses": ["quality=9", "quality=0"]},
]
LONG = {"prompt": "Which?", "responses": ["ENDLESS", "quality=1"]}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with listening(application_of(ScriptedEngine(script))) as url:
        httpx.post(f"{url}/calibrate", json={"examples": examples(60)}).raise_for_status()
        yield url


def run(url: str, path: Path, rows: list[dict[str, Any]], *options: str) -> Result:
    file = path / "prompts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = str(path / "dpo.jsonl")
    return runner.invoke(app, ["pairs", str(file), "--out", out, "--url", url, *options])


def test_the_best_pair_of_each_prompt_is_written(url: str, tmp_path: Path) -> None:
    result = run(url, tmp_path, ROWS)
    assert result.exit_code == 0, result.stderr
    made = [json.loads(line) for line in (tmp_path / "dpo.jsonl").read_text().splitlines()]
    rewards = {"chosen_reward": 1.0, "rejected_reward": -1.0}
    assert made == [
        {"prompt": "Which?", "chosen": "quality=3", "rejected": "quality=1", **rewards},
        {
            "prompt": ROWS[3]["prompt"],
            "chosen": [{"role": "assistant", "content": "quality=9"}],
            "rejected": [{"role": "assistant", "content": "quality=0"}],
            **rewards,
        },
    ]
    assert "2 of 4 prompts have a pair" in result.stderr
    assert "2 without: no two different responses" in result.stderr
    assert "--overwrite" in run(url, tmp_path, ROWS).stderr


def test_an_infeasible_alpha_is_the_reason_and_has_a_next_step(url: str, tmp_path: Path) -> None:
    result = run(url, tmp_path, ROWS, "--alpha", "0.001")
    assert result.exit_code == 1, result.stderr
    assert not (tmp_path / "dpo.jsonl").exists()
    assert "The labels of 'default' support no verdict at alpha 0.001" in result.stderr


def test_a_prompt_that_cannot_be_judged_is_an_error(url: str, tmp_path: Path) -> None:
    result = run(url, tmp_path, [*ROWS, LONG])
    assert result.exit_code == 1
    assert "1 without: no judgment (prompt_too_long), as in" in result.stderr
    assert len((tmp_path / "dpo.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"question": "x"}, "prompt and responses missing; there is question: name the columns"),
        ({"prompt": None, "responses": ["a"]}, "prompt is empty"),
        ({"prompt": "x", "responses": []}, "is no list of responses, as in JSON"),
        ({"prompt": "x", "responses": "a"}, "is no list of responses, as in JSON"),
        ({"prompt": 3, "responses": ["a", "b"]}, "prompt is neither a text nor a list"),
        ({"prompt": "x", "responses": ["a", 3]}, "responses is neither a text nor a list"),
    ],
)
def test_a_row_without_a_group_is_refused_before_anything_is_sent(
    url: str, tmp_path: Path, row: dict[str, Any], words: str
) -> None:
    result = run("http://127.0.0.1:9", tmp_path, [ROWS[0], row])
    assert result.exit_code == 1
    assert words in " ".join(result.stderr.split())


def test_other_columns_and_tables_are_read(url: str, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text('q,answers\nWhich?,"[""quality=1"", ""quality=3""]"\n')
    command = ["pairs", str(file), "--prompt", "q", "--responses", "answers", "--url", url]
    result = runner.invoke(app, [*command, "--out", str(tmp_path / "dpo.csv")])
    assert result.exit_code == 0, result.stderr
    assert "Which?,quality=3,quality=1,1.0,-1.0" in (tmp_path / "dpo.csv").read_text()


def test_rewards_without_comparisons_have_no_best_pair(url: str) -> None:
    with ScopeClient(url) as client:
        rewards = client.group_rewards("Which?", ROWS[0]["responses"])
    with pytest.raises(ValueError, match="comparisons=True"):
        _ = rewards.best_pair
