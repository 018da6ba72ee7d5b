"""The leaderboard as one HTML page, without external resources."""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from app.core.printable import printable_value
from app.files.replacing import replace_text
from app.ratings.page_board import WORDS, count, shown
from app.ratings.results import Changes, LeaderboardResults, Rating, RatingChange, Unbounded

_TEMPLATE = Path(__file__).with_name("page.html.j2")
_SCRIPT = Path(__file__).with_name("page.js")
_STYLE = Path(__file__).with_name("page.css")
# A missing number, and the sign between two ranks.
_DASH = "\N{EN DASH}"
# Models that a sentence names.
_NAMED = 5
_REASONS = {
    "thought_unfinished": "thought unfinished",
    "uncertain": "too uncertain for alpha",
    "infeasible": "alpha infeasible",
    "no_preference": "no preference",
    "off_task": "judge off task",
    "suspended": "set suspended",
    "escalation_unavailable": "escalation unavailable",
}
_UNBOUNDED: dict[Unbounded, str] = {
    "above": "no upper bound",
    "below": "no lower bound",
    "both": "no bound",
}


def write_page(results: LeaderboardResults, path: Path, title: str | None = None) -> None:
    """Writes the page; equal results write equal bytes.

    Raises:
        OSError: The file cannot be written.
    """
    replace_text(path, render_page(results, title))


def render_page(results: LeaderboardResults, title: str | None = None) -> str:
    """The page as HTML; texts of users are escaped. Without a title it names the judge."""
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
        "share": _share,
        "level": lambda value: f"{100.0 * value:g}%",
        "score": lambda value: _DASH if value is None else f"{value:.0f}",
        "signed": lambda value: _minus(f"{100.0 * value:+.1f}"),
        "points": points,
        "count": count,
        "interval": interval_text,
    }
    environment.globals |= {
        "dash": _DASH,
        "ranks": _ranks,
        "change_words": change_words,
        "reason_words": _REASONS,
        "unbounded_words": _UNBOUNDED,
    }
    script = _SCRIPT.read_text(encoding="utf-8")
    return environment.get_template(_TEMPLATE.name).render(
        results=results,
        title=title or f"Leaderboard by {results.board.judge}",
        shown=shown(results),
        change_sentences=() if results.changes is None else change_sentences(results.changes),
        titles={name: words.title for name, words in WORDS.items()},
        style=Markup(_STYLE.read_text(encoding="utf-8")),
        script=script,
        # The browser runs this script and no other, even if a text slipped through the escaping.
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _with_code(text: str) -> Markup:
    """A text as HTML in which `words` are code."""
    parts = (
        f"<code>{escape(p)}</code>" if i % 2 else escape(p) for i, p in enumerate(text.split("`"))
    )
    return Markup("".join(parts))


def _share(value: float | None) -> str:
    return _DASH if value is None else f"{100.0 * value:.1f}%"


def _ranks(low: int | None, high: int | None) -> str:
    """A set of ranks, from the best to the worst."""
    if low is None or high is None:
        return _DASH
    return f"{low}" if low == high else f"{low}{_DASH}{high}"


def _minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")


def points(value: float) -> str:
    """A difference of ratings with its sign."""
    return _minus(f"{round(value):+d}") if round(value) else "0"


def interval_text(rating: Rating) -> str:
    """The interval of a rating in words; an end that nothing bounds is left open."""
    if rating.low is None and rating.high is None:
        return "no interval"
    if rating.low is None:
        return f"at most {rating.high:.0f}"
    if rating.high is None:
        return f"at least {rating.low:.0f}"
    return f"{rating.low:.0f} to {rating.high:.0f}"


def change_words(change: RatingChange) -> str:
    """The meaning of a change in a word or two."""
    if change.score_before is None:
        return "new"
    if change.score is None:
        return "gone"
    if change.change is None:
        return "not compared"
    if not change.moved:
        return "within chance"
    return "improved" if change.change > 0 else "fell"


def change_sentences(changes: Changes) -> Iterator[str]:
    """Yields what changed since previous results, and how it was compared."""
    moved = [each.model for each in changes.models if each.moved]
    verb = "changes" if len(moved) == 1 else "change"
    more = f" and {len(moved) - _NAMED} more" if len(moved) > _NAMED else ""
    yield (
        f"{count(len(moved), 'rating')} {verb} by more than chance: {', '.join(moved[:_NAMED])}"
        f"{more}. The intervals of all changes hold together, and the models with a rank in both "
        "boards have the same mean before and after."
        if moved
        else "No rating changes by more than chance. The intervals of all changes hold together."
    )
    yield changes.note
