"""The Python of the guide runs as it is written, against the service with the scripted judge."""

from typing import Any

import pytest

from tests.unit.docs import markdown
from tests.unit.docs.markdown import DOCS


def test_the_examples_of_the_guide_run(
    service_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"__name__": "guide"}
    for block in blocks():
        exec(block.replace("http://127.0.0.1:8000", service_url), names)
    names["client"].close()
    printed = capsys.readouterr().out
    assert "p_bar = 0." in printed or "no verdict: " in printed
    assert "2 0 " in printed, "both examples are new"


def blocks() -> list[str]:
    """The Python of the guide, a text for each fenced block."""
    found: list[list[str]] = []
    inside = False
    for line in markdown.lines((DOCS / "guides" / "client.md").read_text(encoding="utf-8")):
        if line.fenced and line.text.startswith("```"):
            inside = line.text == "```python"
            found += [[]] if inside else []
        elif inside:
            found[-1].append(line.text)
    return ["\n".join(lines) for lines in found]
