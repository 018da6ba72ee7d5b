"""Parts of pages in Markdown that programs write: tables, and texts between two markers."""

import textwrap
from collections.abc import Sequence
from pathlib import Path


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; cells must not hold line ends."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def put_between_markers(name: str, text: str, document: Path) -> None:
    """Replaces the text between <!-- name --> and <!-- /name --> in a document, wrapped."""
    page = between_markers(name, text, document.read_text(encoding="utf-8"))
    document.write_text(page, encoding="utf-8")


def between_markers(name: str, text: str, page: str) -> str:
    """Returns a page with another text between <!-- name --> and <!-- /name -->, wrapped."""
    opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found, rest = page.partition(opening)
    _, closed, after = rest.partition(closing)
    if not (found and closed):
        raise ValueError(f"the page lacks {opening} or {closing}")
    return f"{before}{opening}\n{_wrapped(text)}\n{closing}{after}"


def _wrapped(text: str) -> str:
    """Wraps Markdown at 100 columns; a row of a table stays one line."""
    return "\n".join(
        line
        if line.startswith("|")
        else textwrap.fill(
            line,
            100,
            subsequent_indent="  " if line.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.splitlines()
    )
