"""The page of a leaderboard shows every number once and no text of a user as markup."""

import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from app.ratings.page import render_page, write_page
from app.ratings.page_plot import plot_of
from app.ratings.page_words import TITLES, WORDS
from app.ratings.results import VIEWS, LeaderboardResults
from tests.unit.ratings import made_results
from tests.unit.ratings.made_results import HOSTILE, MODELS

MADE = (
    made_results.everything,
    made_results.without_labels,
    made_results.two_groups,
    made_results.one_model,
)
_VOID = {"meta", "link", "br", "img"}


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


def read(results: LeaderboardResults) -> _Reader:
    reader = _Reader()
    reader.feed(render_page(results))
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
        "Without 7 battles or fewer (0.7% of all), an-organisation/",
        "640 verdicts accepted of 1,000 judged battles",
        "6.0% are wrong by these labels (3.0% to 11.0%); alpha promises at most 10%",
        "disfavoured",
        "no clear difference",
        "Alpha never bounds a rating.",
        "A note in plain words about soft .",
        "Too uncertain for alpha",
        "The signatures differ",
        "within the intervals",
        "0.93",
        "gave up no point",
        "30.0% to 80.0%",
        "+31",
    ],
)
def test_everything_that_the_results_say_is_on_the_page(text: str) -> None:
    results = made_results.everything()
    board = replace(results.board, main="accepted") if text == "gave up no point" else results.board
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
    assert len(tables) > 8
    for table in tables:
        rows = re.findall(r"<tr(?: class=\"(\w+)\")?>(.*?)</tr>", table, re.DOTALL)
        counts = {len(re.findall(r"<t[hd][ >]", cells)) for kind, cells in rows if not kind}
        assert len(counts) == 1, table[:200]


def test_the_plot_has_a_whisker_for_each_view_within_its_width() -> None:
    board = made_results.everything().board
    plot = plot_of(board, 1, TITLES)
    assert [strip.model for strip in plot.strips] == list(MODELS)
    for strip in plot.strips:
        assert {each.view for each in strip.whiskers} == set(VIEWS)
        assert strip.whiskers[0].view == board.main
        for each in strip.whiskers:
            assert 0 <= each.low <= each.x <= each.high <= 100
            assert 0 < each.y < plot.height
    first = {each.view: each for each in plot.strips[0].whiskers}
    assert first["accepted"].opens_right
    assert not first["debiased"].opens_right
    assert [tick.text for tick in plot.ticks] == ["800", "1000", "1200"]


def test_zero_has_no_sign() -> None:
    board = made_results.without_labels().board
    view = board.views["soft"]
    lower = tuple(
        replace(each, score=each.score - 1000, low=each.low - 1000, high=each.high - 1000)
        for each in view.ratings
        if each.score and each.low and each.high
    )
    rates = tuple(tuple(None if x is None else -0.001 for x in row) for row in view.win_rates)
    views = {"soft": replace(view, ratings=lower, win_rates=rates)}
    whole = replace(made_results.without_labels(), board=replace(board, views=views))
    ticks = [tick.text for tick in plot_of(whole.board, 1, TITLES).ticks]
    assert ticks == ["-200", "-100", "0", "100", "200"]
    assert ">-0<" not in render_page(whole)


def test_better_models_are_further_right() -> None:
    plot = plot_of(made_results.everything().board, 1, TITLES)
    places = [strip.whiskers[0].x for strip in plot.strips]
    assert places == sorted(places, reverse=True)
    assert len(set(places)) == len(places)


def test_pairs_beyond_a_readable_number_are_counted() -> None:
    results = made_results.without_labels()
    pair = results.board.pairs[0]
    pairs = tuple(replace(pair, model_b=f"m{i}") for i in range(301))
    shown = words(replace(results, board=replace(results.board, pairs=pairs)))
    assert "1 more pairs, with a higher coverage, are in results.json" in shown
