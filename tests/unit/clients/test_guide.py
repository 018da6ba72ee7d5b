"""The Python of the guides runs as it is written, against the service with the scripted judge."""

from typing import Any

import pytest

from tests.unit.docs import markdown
from tests.unit.docs.markdown import DOCS


def test_the_examples_of_the_guide_to_audits_run(
    audited_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("audits.md", audited_url)
    listed, labeled, note, absorbed = capsys.readouterr().out.splitlines()
    assert listed.startswith("to label: ")
    assert labeled == "1 0 0 ()"
    assert note.startswith("60 examples become 61 (1 added, 0 updated, 0 removed); ")
    assert absorbed == "2 61 1 0"


def run(page: str, url: str) -> None:
    """Runs all Python of a guide as one program."""
    names: dict[str, Any] = {"__name__": "guide"}
    for block in markdown.blocks((DOCS / "guides" / page).read_text(encoding="utf-8")):
        if block.language == "python":
            exec(block.text.replace("http://127.0.0.1:8000", url), names)
    names["client"].close()


def test_the_examples_of_the_guide_to_the_client_run(
    service_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("client.md", service_url)
    printed = capsys.readouterr().out
    assert "p_bar = 0." in printed or "no verdict: " in printed
    assert "2 0 " in printed, "both examples are new"


def test_the_example_of_a_pool_runs(service_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("labeling.md", service_url)
    assert capsys.readouterr().out.endswith(" 0 ()\n"), "no label is refused"
