"""The page of a leaderboard shows every number once and no text of a user as markup."""

import base64
import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from app.ratings.page import render_page, write_page
from app.ratings.page_board import WORDS, Shown, shown
from app.ratings.presentation import ModelFacts, Presentation
from app.ratings.results import VIEWS, LeaderboardResults
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


def test_the_only_script_is_the_one_that_the_policy_allows() -> None:
    page = render_page(made_results.everything())
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/]{43}='", page)
    assert "default-src 'none'" in page


@pytest.mark.parametrize("make", MADE)
def test_equal_results_write_equal_bytes(
    make: Callable[[], LeaderboardResults], tmp_path: Path
) -> None:
    for name in ("one.html", "other.html"):
        write_page(make(), tmp_path / name)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "other.html").read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        "scope-judge 0.1.0; judge demo (fingerprint 0123456789ab)",
        "corrected by people",
        "1154 to 1230",
        "1,020 battles, 250 questions, 20 without a judgment, 3 copies left out",
        "640 verdicts accepted of 1,000 judged battles",
        "Of the 90 verdicts among them, 9 have the label tie: 11.0% (6.0% to 19.0%)",
        "At most a share alpha of its verdicts is wrong, here 10%, except with the small",
        "Alpha never bounds a rating",
        "A note in plain words about soft .",
        "Too uncertain for alpha",
        "The signatures differ",
        "within chance",
        "+92 +33 to +151",
        "1 rating changes by more than chance",
        "400 questions are in both boards.",
        "no upper bound",
    ],
)
def test_everything_that_the_results_say_is_on_the_page(text: str) -> None:
    results = made_results.everything()
    board = replace(results.board, main="accepted") if text == "no upper bound" else results.board
    assert text in words(replace(results, board=board))


@pytest.mark.parametrize("name", VIEWS)
def test_each_view_is_explained(name: Any) -> None:
    shown = words(made_results.everything())
    assert WORDS[name].counts in shown
    assert WORDS[name].beware in shown


def test_nothing_is_said_of_people_without_labels() -> None:
    shown = words(made_results.without_labels())
    assert "Judge and people" not in shown
    assert "Corrected by people" not in shown
    assert "What changed" not in shown
    assert "nothing bounds the share of wrong verdicts" in shown


def test_groups_that_never_met_are_apart() -> None:
    shown = words(made_results.two_groups())
    assert "Group 2: these models never met those of another group" in shown
    assert "Without a battle that counts" in shown


def test_a_first_place_without_doubt_is_said() -> None:
    results = made_results.without_labels()
    view = results.board.views["soft"]
    ratings = tuple(
        replace(each, rank_low=place, rank_high=place)
        for place, each in enumerate(view.ratings, start=1)
    )
    views = {**results.board.views, "soft": replace(view, ratings=ratings)}
    shown = words(replace(results, board=replace(results.board, views=views)))
    assert "is first, beyond the uncertainty of the intervals" in shown


def test_headings_and_cells_of_a_table_are_as_many() -> None:
    page = render_page(made_results.everything())
    tables = re.findall(r"<table.*?</table>", page, re.DOTALL)
    assert len(tables) == 5
    for table in tables:
        rows = re.findall(r"<tr(?: class=\"(\w+)\")?>(.*?)</tr>", table, re.DOTALL)
        counts = {len(re.findall(r"<t[hd][ >]", cells)) for kind, cells in rows if not kind}
        assert len(counts) == 1, table[:200]


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


@pytest.mark.parametrize("word", ["alpha", "debiased"])
def test_a_word_of_the_field_is_explained_where_it_first_stands(word: str) -> None:
    page = render_page(made_results.everything())
    body = page[page.index("<body>") :]
    visible = re.sub(r'<a download="[^>]*>', "", body)
    first = re.search(rf"(?<![-#\w]){word}(?!\w)", visible, re.IGNORECASE)
    assert first is not None
    before = visible[: first.start()]
    assert before.rindex("<dt>") > before.rindex("</d")


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


def test_the_bars_lie_within_the_axis_and_better_models_are_further_right() -> None:
    results = made_results.everything()
    places = [bar.x for bar in bars(results).values()]
    assert places == sorted(places, reverse=True)
    assert len(set(places)) == len(MODELS)
    for bar in bars(results).values():
        assert 0 <= bar.low <= bar.x <= bar.high <= 100
        assert (bar.opens_left, bar.opens_right, bar.outside) == (False, False, False)
    assert [tick.text for tick in of_board(results).ticks] == ["800", "900", "1000", "1100", "1200"]


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
