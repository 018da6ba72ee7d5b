"""Tests of `scope-judge noise-check` on a judge without noise."""

import json

import pytest
from typer.testing import CliRunner

from app.cli import app
from app.judges.engines.scripted import ScriptedEngine, logits_of_gap

runner = CliRunner()


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCOPE_ENGINE", "scripted")


def test_noise_and_distinct_scores_are_printed_for_programs() -> None:
    result = runner.invoke(app, ["noise-check", "--json", "--threshold", "0.3"])
    found = json.loads(result.stdout)
    assert found["noise"] == {
        "pairs": 32,
        "largest": 0.0,
        "p95": 0.0,
        "flips": 0,
        "threshold": 0.3,
    }
    assert found["resolution"] == {"prompts": 100, "distinct": 100}
    assert (found["runtime"], found["warnings"]) == (None, [])
    assert result.exit_code == 0


def test_a_threshold_below_0_is_refused() -> None:
    result = runner.invoke(app, ["noise-check", "--threshold", "-1"])
    assert result.exit_code == 1
    assert "--threshold must be at least 0" in " ".join(result.output.split())


def test_scores_that_tie_are_a_warning_and_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ScriptedEngine, "_answers", lambda self, prompts: [logits_of_gap(1.0)] * len(prompts)
    )
    result = runner.invoke(app, ["noise-check"])
    assert result.exit_code == 1
    (warning,) = (line for line in result.output.splitlines() if "warning" in line)
    assert warning.startswith("warning: ")
