"""The page of twenty questions leads to headings that a reader reaches from README."""

import os
import re
from pathlib import Path

import pytest

from tests.unit.docs import markdown
from tests.unit.docs.markdown import DOCS, ROOT

READING = DOCS / "reading.md"
_MOST_CLICKS = 3


def answer_faults(text: str, clicks: dict[Path, int]) -> list[str]:
    """Each answer of a page beside `READING` that names no heading or lies too many clicks away."""
    faults = []
    for number, target in markdown.links(text):
        path, _, anchor = target.partition("#")
        page = Path(os.path.normpath(DOCS / path))
        if not page.is_file() or anchor not in markdown.anchors(page.read_text(encoding="utf-8")):
            faults.append(f"line {number}: no heading {target}")
        elif clicks.get(page, _MOST_CLICKS + 1) > _MOST_CLICKS:
            faults.append(f"line {number}: over {_MOST_CLICKS} clicks to {target}")
    return faults


def clicks_from(start: Path) -> dict[Path, int]:
    """Fewest links to every page that a page leads to, without the help of `READING`."""
    clicks = {start: 0}
    pages = [start]
    for page in pages:
        for _, target in markdown.links(page.read_text(encoding="utf-8")):
            to = Path(os.path.normpath(page.parent / target.partition("#")[0]))
            if to.suffix == ".md" and to.is_file() and to not in clicks and to != READING:
                clicks[to] = clicks[page] + 1
                pages.append(to)
    return clicks


def test_twenty_questions_have_answers_within_three_clicks_of_readme() -> None:
    text = READING.read_text(encoding="utf-8")
    answers = [
        line for line in text.splitlines() if re.match(r"\|.*\]\([^)]+#[^)]+\) \| \d+ \|$", line)
    ]
    assert len(answers) == 20
    assert answer_faults(text, clicks_from(ROOT / "README.md")) == []


@pytest.mark.parametrize(
    ("target", "clicks", "faults"),
    [
        ("guides/keys.md#keys-and-access", 3, []),
        ("guides/keys.md#keys-and-access", 4, ["line 1: over 3 clicks to "]),
        ("guides/keys.md#nothing", 1, ["line 1: no heading "]),
        ("guides/keys.md", 1, ["line 1: no heading "]),
        ("nothing.md#keys-and-access", 1, ["line 1: no heading "]),
    ],
)
def test_an_answer_that_a_reader_cannot_reach_is_found(
    target: str, clicks: int, faults: list[str]
) -> None:
    found = answer_faults(f"[a]({target})", {DOCS / "guides/keys.md": clicks})
    assert found == [fault + target for fault in faults]


def test_clicks_are_the_fewest_links(tmp_path: Path) -> None:
    for name, text in {"a": "[b](b.md) [c](c.md#x)", "b": "[c](c.md)", "c": "[d](d.md)"}.items():
        (tmp_path / f"{name}.md").write_text(text, encoding="utf-8")
    (tmp_path / "d.md").write_text("[a](a.md)", encoding="utf-8")
    clicks = {page.stem: count for page, count in clicks_from(tmp_path / "a.md").items()}
    assert clicks == {"a": 0, "b": 1, "c": 1, "d": 2}
