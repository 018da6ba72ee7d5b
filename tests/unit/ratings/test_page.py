"""The page of a leaderboard shows every number once and no text of a user as markup."""

import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest

from app.ratings.page import render_page, shown
from app.ratings.results import LeaderboardResults
from tests.unit.ratings import made_results
from tests.unit.ratings.made_results import HOSTILE, MODELS

MADE = (
    made_results.everything,
    made_results.without_labels,
)
_VOID = {"meta", "link", "br", "img", "input"}


class _Reader(HTMLParser):
    """Elements, texts and faults of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(results: LeaderboardResults, title: str | None = None) -> _Reader:
    reader = _Reader()
    reader.feed(render_page(results, title))
    assert not reader.open
    return reader


def words(results: LeaderboardResults) -> str:
    return re.sub(r"\s+", " ", " ".join(read(results).texts))


@pytest.mark.parametrize("make", MADE)
def test_a_page_is_whole_and_loads_nothing(make: Callable[[], LeaderboardResults]) -> None:
    reader = read(make())
    tags = [tag for tag, _ in reader.elements]
    assert tags.count("script") == 1
    assert not {"img", "iframe", "object", "embed", "base", "form"} & set(tags)
    for tag, attributes in reader.elements:
        for name in ("src", "href", "xlink:href"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "data:,")), (tag, target)
        assert not [name for name in attributes if name.startswith("on")]
        assert "url(" not in (attributes.get("style") or "")


def test_texts_of_users_are_never_markup() -> None:
    page = render_page(made_results.everything())
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(2)" in page
    assert "small {{ 7 * 7 }}" in page
    assert HOSTILE in unescape(page)


def test_the_title_is_on_the_page_and_never_markup() -> None:
    title = f"Title {HOSTILE}"
    assert HOSTILE not in render_page(made_results.everything(), title)
    reader = read(made_results.everything(), title)
    properties = {
        a.get("property"): a.get("content") for tag, a in reader.elements if tag == "meta"
    }
    assert properties["og:title"] == title
    assert properties["og:description"]


def changed(results: LeaderboardResults, **more: Any) -> LeaderboardResults:
    """The results with other fields of the last rating of the main view."""
    main = results.board.views[results.board.main]
    ratings = (*main.ratings[:-1], replace(main.ratings[-1], **more))
    views = {**results.board.views, results.board.main: replace(main, ratings=ratings)}
    return replace(results, board=replace(results.board, views=views))


def test_a_provisional_model_has_a_dash() -> None:
    few = changed(
        made_results.everything(), provisional=True, rank=None, rank_low=None, rank_high=None
    )
    board = shown(few)
    (row,) = board["provisional"]
    assert (row.rating.model, row.bar) == (MODELS[-1], None)
    assert len(board["ranked"]) == 7
    assert dict(board["scores"])[MODELS[-1]][0] is None
    assert "Provisional" in words(few)
    assert "Provisional" not in words(made_results.everything())
