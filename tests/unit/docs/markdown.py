"""Reads the repository's Markdown: files, links, anchors, and the text outside fenced blocks."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
# Folders of the repository that people write in.
FOLDERS = (".github", "app", "clients", "deploy", "docker", "docs", "requirements", "tests")

_FENCE = re.compile(r"\s*(?:```|~~~)")
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_DEFINITION = re.compile(r"^\s{0,3}\[[^\]]+\]:\s*<?(\S+?)>?(?:\s|$)")
_CODE = re.compile(r"(`+)(.+?)\1")
_HEADING = re.compile(r"#{1,6}\s+(.*?)\s*#*$")


class Line(NamedTuple):
    """One line of a Markdown file; fences belong to their fenced block."""

    number: int
    text: str
    fenced: bool


class Block(NamedTuple):
    """A fenced code block, without its fences and the indent of all its lines.

    The section is the last heading before it, or "".
    """

    number: int
    language: str
    text: str
    section: str


class Link(NamedTuple):
    """One link or image, with its target as written: a path, an anchor, both or a URL."""

    number: int
    target: str


def files() -> list[Path]:
    """Every Markdown file of the repository, without what tools install or build."""
    folders = (ROOT / name for name in FOLDERS)
    return sorted([*ROOT.glob("*.md"), *(file for each in folders for file in each.rglob("*.md"))])


def lines(text: str) -> Iterator[Line]:
    """Yields the lines of a text, each marked as fenced or not."""
    inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line) is not None
        yield Line(number, line, inside or fence)
        inside ^= fence


def blocks(text: str) -> Iterator[Block]:
    """Yields the fenced code blocks of a text."""
    number, language, section, inside = 0, "", "", False
    found: list[str] = []
    for line in lines(text):
        if not line.fenced:
            if heading := _HEADING.match(line.text):
                section = heading[1]
        elif _FENCE.match(line.text) is None:
            found.append(line.text)
        elif inside:
            yield Block(number, language, textwrap.dedent("\n".join(found)), section)
            inside = False
        else:
            number, language, inside, found = line.number, line.text.strip(" `~"), True, []


def links(text: str) -> Iterator[Link]:
    """Yields every link and image outside code; the text of a link may run over line ends."""
    # A code span may be the text of a link, so a word replaces it.
    shown = ["" if line.fenced else _CODE.sub("code", line.text) for line in lines(text)]
    visible = "\n".join(shown)
    for found in _LINK.finditer(visible):
        yield Link(visible.count("\n", 0, found.start(1)) + 1, found[1])
    for number, line in enumerate(shown, start=1):
        if definition := _DEFINITION.match(line):
            yield Link(number, definition[1])


def code_spans(text: str) -> Iterator[tuple[int, str]]:
    """Yields line number and content of every inline code span."""
    for line in lines(text):
        if not line.fenced:
            yield from ((line.number, found) for _, found in _CODE.findall(line.text))


def anchors(text: str) -> set[str]:
    """The anchors of all headings, as GitHub makes them.

    A repeated heading has no anchor here: GitHub and the site number it in different ways.
    """
    found = [
        _slug(heading[1])
        for line in lines(text)
        if not line.fenced and (heading := _HEADING.match(line.text))
    ]
    return {slug for slug in found if found.count(slug) == 1}


def _slug(heading: str) -> str:
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", shown).lower().replace(" ", "-")
