"""Tests of `scope-judge noise-check` on a judge without noise."""

import pytest
from typer.testing import CliRunner

from app.cli import app
from app.judges.engines.scripted import ScriptedEngine, logits_of_gap

runner = CliRunner()


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCOPE_ENGINE", "scripted")


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
