"""The page of a leaderboard shows every number once and no text of a user as markup."""

import base64
import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest

from app.ratings.page import render_page
from app.ratings.page_board import Shown, shown
from app.ratings.presentation import ModelFacts, Presentation
from app.ratings.results import LeaderboardResults
from tests.unit.ratings import made_results
from tests.unit.ratings.made_results import HOSTILE, MODELS

MADE = (
    made_results.everything,
    made_results.without_labels,
    made_results.two_groups,
    made_results.one_model,
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


def read(results: LeaderboardResults, presentation: Presentation | None = None) -> _Reader:
    reader = _Reader()
    reader.feed(render_page(results, presentation))
    assert not reader.open
    return reader


def words(results: LeaderboardResults, presentation: Presentation | None = None) -> str:
    return re.sub(r"\s+", " ", " ".join(read(results, presentation).texts))


def of_board(results: LeaderboardResults, presentation: Presentation | None = None) -> Shown:
    return shown(results, presentation or Presentation())


@pytest.mark.parametrize("make", MADE)
def test_a_page_is_whole_and_loads_nothing(make: Callable[[], LeaderboardResults]) -> None:
    reader = read(make())
    tags = [tag for tag, _ in reader.elements]
    assert tags.count("script") == 1
    assert not {"img", "iframe", "object", "embed", "base", "form"} & set(tags)
    for tag, attributes in reader.elements:
        for name in ("src", "href", "xlink:href"):
            target = attributes.get(name)
            is_file = tag == "a" and "download" in attributes
            assert target is None or is_file or target.startswith(("#", "data:,")), (tag, target)
        assert not [name for name in attributes if name.startswith("on")]
        assert "url(" not in (attributes.get("style") or "")


def test_texts_of_users_are_never_markup() -> None:
    page = render_page(made_results.everything())
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(2)" in page
    assert "small {{ 7 * 7 }}" in page
    assert HOSTILE in unescape(page)


def test_pairs_beyond_a_readable_number_are_counted() -> None:
    results = made_results.without_labels()
    pair = results.board.pairs[0]
    pairs = tuple(replace(pair, model_b=f"m{i}") for i in range(301))
    shown = words(replace(results, board=replace(results.board, pairs=pairs)))
    assert "1 more pair, with a higher coverage, are in results.json" in shown


def test_the_publishers_texts_are_on_the_page_and_never_markup() -> None:
    presentation = Presentation(
        title=f"Title {HOSTILE}",
        about=f"# About\n\n{HOSTILE}\n\n[good](https://example.com) [bad](javascript:alert(1))",
        models={
            MODELS[1]: ModelFacts(
                organization=HOSTILE, license="MIT", link="https://example.com/?a=1&b='\"><x>"
            )
        },
    )
    page = render_page(made_results.everything(), presentation)
    assert HOSTILE not in page
    reader = read(made_results.everything(), presentation)
    links = [attributes["href"] for tag, attributes in reader.elements if tag == "a"]
    assert {link for link in links if link and not link.startswith("data:")} == {
        "https://example.com",
        "https://example.com/?a=1&b='\"><x>",
    }
    tags = [tag for tag, _ in reader.elements]
    assert tags.count("script") == tags.count("h1") == 1
    assert not {"img", "x"} & set(tags)
    properties = {
        a.get("property"): a.get("content") for tag, a in reader.elements if tag == "meta"
    }
    assert properties["og:title"] == f"Title {HOSTILE}"
    assert properties["og:description"]


def test_the_page_contains_its_ratings_as_files() -> None:
    reader = read(made_results.everything())
    files = {
        attributes["download"]: base64.b64decode((attributes["href"] or "").partition(",")[2])
        for tag, attributes in reader.elements
        if tag == "a" and "download" in attributes
    }
    rows = json.loads(files["leaderboard.json"])
    assert len(rows) == 8 * 5
    assert rows[0]["model"] == HOSTILE
    table = list(csv.DictReader(files["leaderboard.csv"].decode().splitlines()))
    assert [row["view"] for row in table] == [row["view"] for row in rows]
    assert [float(row["score"]) for row in table] == [row["score"] for row in rows]
    assert table[7]["model"] == r"tiny\ud800"


def changed(results: LeaderboardResults, **more: Any) -> LeaderboardResults:
    """The results with other fields of the last rating of the main view."""
    main = results.board.views[results.board.main]
    ratings = (*main.ratings[:-1], replace(main.ratings[-1], **more))
    views = {**results.board.views, results.board.main: replace(main, ratings=ratings)}
    return replace(results, board=replace(results.board, views=views))


def bars(results: LeaderboardResults) -> dict[str, Any]:
    return {row.rating.model: row.bar for group in of_board(results).groups for row in group.rows}


def test_a_rating_outside_the_axis_is_an_arrowhead_and_no_marker() -> None:
    far = changed(made_results.everything(), score=-5000.0, low=None, unbounded="below")
    *others, last = bars(far).values()
    assert (last.outside, last.opens_left, last.opens_right) == (True, True, False)
    assert not any(each.outside for each in others)


def test_a_provisional_model_has_a_dash_and_no_share_of_wins() -> None:
    few = changed(
        made_results.everything(), provisional=True, rank=None, rank_low=None, rank_high=None
    )
    board = of_board(few)
    (row,) = board.provisional
    assert (row.rating.model, row.bar) == (MODELS[-1], None)
    assert len(board.groups[0].rows) == len(board.fitted) == 7
    assert dict(board.scores)[MODELS[-1]][0] is None
    assert "Provisional" in words(few)
    assert "Provisional" not in words(made_results.everything())


def test_shares_of_wins_follow_from_the_ratings_of_one_group() -> None:
    fitted = of_board(made_results.everything()).fitted
    # The scores are 1192.5 and 1137.5: 55 points are odds of 10^(55/400).
    assert fitted[0][1][1].text == f"{100 / (1 + 10 ** (-55 / 400)):.0f}" == "58"
    assert fitted[1][1][0].text == "42"
    assert fitted[0][1][0].text == ""
    apart = dict(of_board(made_results.two_groups()).fitted)
    texts = [cell.text for cell in apart[MODELS[0]]]
    assert len(apart) == 7
    assert all(texts[1:5])
    assert texts[5:] == ["", ""]


@pytest.mark.parametrize(
    ("guarantee", "text"),
    [
        ("pac", "At most a share alpha of its verdicts is wrong, here 10%, except with the small"),
        ("marginal", "It bounds nothing: about half of all calibrations exceed alpha"),
    ],
)
def test_alpha_says_what_its_guarantee_promises(guarantee: str, text: str) -> None:
    results = made_results.everything()
    other = words(replace(results, board=replace(results.board, guarantee=guarantee)))
    assert text in other
    assert other.count("At most a share alpha") == (guarantee == "pac")
