"""Tests of the commands against a service that listens on a port."""

import json

import httpx
import pytest
from typer.testing import CliRunner

from app import release
from app.cli import app
from tests.unit.api.problems import comparison, examples
from tests.unit.cli.commands import SCRIPTED, one_line, rows_of

runner = CliRunner()


def test_the_version_is_printed() -> None:
    result = runner.invoke(app, ["--version"])
    assert (result.exit_code, result.stdout.strip()) == (0, release.RELEASE)


@pytest.fixture
def calibrated_url(clean_url: str) -> str:
    httpx.post(f"{clean_url}/calibrate", json={"examples": examples(60)}).raise_for_status()
    return clean_url


def test_stdin_is_judged_and_an_item_error_sets_the_exit_status(calibrated_url: str) -> None:
    rows = [
        comparison(id=1),
        comparison(id=2, question="\ud800"),
        comparison(id=3, question=" "),
        comparison(id=4),
    ]
    text = "\n".join(json.dumps(row) for row in rows)
    result = runner.invoke(app, ["judge", "-", "--url", calibrated_url], input=text)
    assert result.exit_code == 1
    assert "2 of 4 rows got no judgment" in one_line(result.stderr)
    found = rows_of(result.stdout)
    results = [row["judgment"] for row in found]
    assert [result.get("verdict") for result in results] == ["A", None, None, "A"]
    assert [result["error"]["code"] for result in results[1:3]] == [
        "invalid_request",
        "invalid_comparison",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["judge", "x.jsonl", "--map", "q"], "FIELD=COLUMN"),
        (["judge", "[/absent].jsonl"], "no file matches [/absent].jsonl"),
        (["calibrate", "absent.jsonl"], "absent.jsonl cannot be read"),
        (["calibrate", "x.jsonl", "--name", "Mein Set"], "up to 64 letters, digits, dots"),
        (["check", "--url", "http://127.0.0.1:1"], "start the service with `scope-judge serve`"),
        (["check", "--url", "127.0.0.1:80"], "write it with http:// or https://"),
        (["check", "--url", "http://x:port"], "is not the address of a service"),
    ],
)
def test_an_impossible_call_prints_the_reason(arguments: list[str], words: str) -> None:
    result = runner.invoke(app, arguments)
    assert result.exit_code == 1, result.output
    assert words in one_line(result.stderr)
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("judge", "--alpha", "10%"),
        ("judge", "--alpha", "0,1"),
        ("filter", "--delta", "nan"),
        ("calibrate", "--hold-out", "1"),
        ("cascade plan", "--alpha", "10"),
        ("curve", "--alpha", "0"),
        ("evaluate", "--delta", "1"),
    ],
)
def test_a_share_is_between_0_and_1(command: str, option: str, value: str) -> None:
    arguments = [*command.split(), "x.jsonl", option, value]
    result = runner.invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 2, result.output
    told = f"Invalid value for '{option}': it must be between 0 and 1"
    assert f"{told}, both excluded (10% is 0.1), got {value} " in one_line(result.stderr)


def test_an_unknown_encoding_is_refused_with_the_usual_one() -> None:
    result = runner.invoke(app, ["judge", "x.csv", "--encoding", "Excel"], env={"COLUMNS": "200"})
    assert "'--encoding': Excel is unknown; cp1252 is that of Excel" in one_line(result.stderr)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SCOPE_DEFAULT_ALPHA", "7"),
        ("SCOPE_ENGINE", "xyzzy-secret"),
        ("SCOPE_STORE_URL", "ftp://xyzzy-secret"),
        ("SCOPE_STORE_URL", "sqlite://"),
        ("SCOPE_PROMPT_FILE", "/absent.toml"),
    ],
)
def test_serve_names_the_invalid_setting(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, sound in {**SCRIPTED, "SCOPE_PORT": "0", variable: value}.items():
        monkeypatch.setenv(name, sound)
    result = runner.invoke(app, ["serve"])
    assert result.exit_code == 1
    assert variable in result.stderr
    assert "xyzzy-secret" not in result.output
    assert "Traceback" not in result.output


def test_an_absent_prompt_is_reported_before_the_data_are_read() -> None:
    environment = {**SCRIPTED, "SCOPE_PROMPT_FILE": "/absent.toml"}
    result = runner.invoke(app, ["evaluate", "absent.jsonl"], env=environment)
    assert result.exit_code == 1
    assert "SCOPE_PROMPT_FILE" in result.stderr
    assert "absent.jsonl" not in result.stderr


@pytest.mark.parametrize("variable", ["SCOPE_PORT", "SCOPE_METRICS_PORT"])
def test_a_port_in_use_is_reported_before_the_judge_is_loaded(variable: str, url: str) -> None:
    port = url.rsplit(":", 1)[1]
    result = runner.invoke(app, ["serve"], env={**SCRIPTED, "SCOPE_PORT": "0", variable: port})
    assert result.exit_code == 1
    assert f"{variable}={port}" in result.stderr
    assert "Loading" not in result.stderr
