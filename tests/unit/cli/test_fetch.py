"""`scope-judge fetch` finds or fetches the weights that a start would load."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import app

runner = CliRunner()


def test_the_folder_of_a_model_is_printed_with_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(200_000_000))
    monkeypatch.setenv("SCOPE_MODEL", str(tmp_path))
    result = runner.invoke(app, ["fetch"])
    assert result.exit_code == 0, result.output
    assert f"the judge's files (0.2 GB) are in {tmp_path}" in result.output.replace("\n", " ")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("SCOPE_MODEL", "no such model", "could not be fetched from the Hugging Face hub"),
        ("SCOPE_ENGINE", "scripted", "SCOPE_ENGINE=scripted loads no weights"),
        ("SCOPE_MODLE", "x", "SCOPE_MODLE: unknown setting"),
    ],
)
def test_what_cannot_be_fetched_is_an_error_in_a_sentence(
    name: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    result = runner.invoke(app, ["fetch"])
    assert result.exit_code == 1
    assert says in " ".join(result.output.split())
