"""The leaderboard as one HTML page, without external resources."""

import base64
import hashlib
import json
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from app.core.printable import printable_value
from app.files.replacing import replace_text
from app.ratings import page_words
from app.ratings.about import about_html
from app.ratings.export import csv_of, rating_rows
from app.ratings.page_board import shown
from app.ratings.page_plot import interval_text
from app.ratings.page_words import TITLES, change_sentences, change_words, count, share
from app.ratings.presentation import Presentation
from app.ratings.results import LeaderboardResults

_TEMPLATE = Path(__file__).with_name("page.html.j2")
_SCRIPT = Path(__file__).with_name("page.js")
_STYLE = Path(__file__).with_name("page.css")


def write_page(
    results: LeaderboardResults, path: Path, presentation: Presentation | None = None
) -> None:
    """Writes the page; equal results write equal bytes.

    Raises:
        OSError: The file cannot be written.
    """
    replace_text(path, render_page(results, presentation))


def render_page(results: LeaderboardResults, presentation: Presentation | None = None) -> str:
    """The page as HTML; texts of users are escaped."""
    presentation = presentation or Presentation()
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATE.parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=printable_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "code": _with_code,
        "share": share,
        "level": page_words.level,
        "score": page_words.score,
        "signed": page_words.signed,
        "points": page_words.points,
        "count": count,
        "interval": interval_text,
    }
    environment.globals |= {
        "ranks": page_words.ranks,
        "change_words": change_words,
        "reason_words": page_words.REASONS,
        "unbounded_words": page_words.UNBOUNDED,
    }
    script = _SCRIPT.read_text(encoding="utf-8")
    boards = [shown(each, results, presentation) for each in (results.board, *results.other_boards)]
    return environment.get_template(_TEMPLATE.name).render(
        results=results,
        title=presentation.title or f"Leaderboard by {results.board.judge}",
        about=None if presentation.about is None else about_html(presentation.about),
        boards=boards,
        tabs=max(len(each.standings) for each in boards),
        change_sentences=() if results.changes is None else change_sentences(results.changes),
        titles=TITLES,
        files=_files(results),
        style=Markup(_STYLE.read_text(encoding="utf-8")),
        script=script,
        # The browser runs this script and no other, even if a text slipped through the escaping.
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _files(results: LeaderboardResults) -> tuple[tuple[str, str], ...]:
    """Names and addresses of the ratings as files that the page itself contains."""
    rows = rating_rows(results)
    return (
        ("leaderboard.csv", _address("text/csv", csv_of(rows))),
        ("leaderboard.json", _address("application/json", json.dumps(rows, indent=1).encode())),
    )


def _address(kind: str, content: bytes) -> str:
    return f"data:{kind};charset=utf-8;base64,{base64.b64encode(content).decode()}"


def _with_code(text: str) -> Markup:
    """A text as HTML in which `words` are code."""
    parts = (
        f"<code>{escape(p)}</code>" if i % 2 else escape(p) for i, p in enumerate(text.split("`"))
    )
    return Markup("".join(parts))
