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
from app.ratings.page_board import Shown, shown
from app.ratings.page_plot import WhiskerPlot, plot_of
from app.ratings.page_words import TITLES, WORDS
from app.ratings.presentation import ModelFacts, Presentation
from app.ratings.results import VIEWS, Board, Category, LeaderboardResults
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


def all_views(board: Board) -> WhiskerPlot:
    """The chart of all models in all views."""
    views = [board.views[board.main], *(v for n, v in board.views.items() if n != board.main)]
    return plot_of(views, MODELS, TITLES)


def of_board(results: LeaderboardResults, presentation: Presentation | None = None) -> Shown:
    return shown(results.board, results, presentation or Presentation())


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
        "Without 7 battles or fewer (0.7% of all), an-organisation/",
        "640 verdicts accepted of 1,000 judged battles",
        "6.0% are wrong by these labels (3.0% to 11.0%); alpha promises at most 10%",
        "disfavored",
        "no clear difference",
        "Alpha never bounds a rating.",
        "A note in plain words about soft .",
        "Too uncertain for alpha",
        "The signatures differ",
        "within chance",
        "+92 +33 to +151",
        "1 rating changes by more than chance",
        "400 questions are in both boards.",
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
    plot = all_views(board)
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


def test_a_model_without_a_rank_is_in_no_matrix() -> None:
    results = made_results.without_labels()
    view = results.board.views["soft"]
    *others, last = view.ratings
    few = replace(last, rank=None, rank_low=None, rank_high=None, provisional=True)
    views = {**results.board.views, "soft": replace(view, ratings=(*others, few))}
    board = of_board(replace(results, board=replace(results.board, views=views)))
    for matrix in (board.fitted, board.outcomes):
        assert [model for model, _ in matrix] == [each.model for each in others]
        assert {len(cells) for _, cells in matrix} == {len(others)}


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
    ticks = [tick.text for tick in all_views(whole.board).ticks]
    assert ticks == ["-200", "-100", "0", "100", "200"]
    assert ">-0<" not in render_page(whole)


def test_better_models_are_further_right() -> None:
    plot = all_views(made_results.everything().board)
    places = [strip.whiskers[0].x for strip in plot.strips]
    assert places == sorted(places, reverse=True)
    assert len(set(places)) == len(places)


def test_pairs_beyond_a_readable_number_are_counted() -> None:
    results = made_results.without_labels()
    pair = results.board.pairs[0]
    pairs = tuple(replace(pair, model_b=f"m{i}") for i in range(301))
    shown = words(replace(results, board=replace(results.board, pairs=pairs)))
    assert "1 more pairs, with a higher coverage, are in results.json" in shown


def test_shares_of_wins_are_fitted_and_stay_between_0_and_100() -> None:
    results = made_results.everything()
    main = results.board.views["debiased"]
    wild = tuple(tuple(None if x is None else 1.4 for x in row) for row in main.win_rates)
    views = {**results.board.views, "debiased": replace(main, win_rates=wild)}
    page = of_board(replace(results, board=replace(results.board, views=views)))
    # The scores are 1192.5 and 1137.5: 55 points are odds of 10^(55/400).
    share = 100 / (1 + 10 ** (-55 / 400))
    assert page.fitted[0][1][1].text == f"{share:.0f}" == "58"
    assert page.fitted[1][1][0].text == "42"
    assert page.fitted[0][1][0].text == ""
    fitted = [int(cell.text) for _, cells in page.fitted for cell in cells if cell.text]
    assert len(fitted) == 56
    assert 0 <= min(fitted) <= max(fitted) <= 100
    assert {cell.text for _, cells in page.outcomes for cell in cells} == {"", "140"}


def test_models_of_two_groups_have_no_share_of_wins() -> None:
    page = of_board(made_results.two_groups())
    rows = dict(page.fitted)
    assert len(rows) == 7
    texts = [cell.text for cell in rows[MODELS[0]]]
    assert all(texts[1:5])
    assert texts[5:] == ["", ""]


def test_a_rating_outside_the_chart_is_an_arrowhead_and_no_marker() -> None:
    board = made_results.everything().board
    view = board.views["soft"]
    first, *others = view.ratings
    far = replace(first, score=5000.0, low=4800.0, high=None, unbounded="above")
    plot = plot_of([replace(view, ratings=(far, *others))], MODELS, TITLES)
    [whisker] = plot.strips[0].whiskers
    assert whisker.outside
    assert whisker.opens_right
    assert not any(each.outside for strip in plot.strips[1:] for each in strip.whiskers)


def test_the_main_table_shows_win_rates_against_the_reference() -> None:
    results = made_results.everything()
    settings = replace(results.settings, reference="baseline", centre=1082.5)
    page = of_board(replace(results, settings=settings))
    [group] = page.standings[0].groups
    against = {row.rating.model: row.against for row in group.rows}
    assert against["baseline"] is None
    best = against[MODELS[0]]
    assert best is not None
    # 110 points above the baseline, and 38 points to each side.
    assert best.share == pytest.approx(100 / (1 + 10 ** (-110 / 400)))
    assert best.low == pytest.approx(100 / (1 + 10 ** (-72 / 400)))
    assert best.high == pytest.approx(100 / (1 + 10 ** (-148 / 400)))
    text = words(replace(results, settings=settings))
    assert "65.3%" in text
    assert "baseline has 1082.5" in text


def test_known_ratings_are_marked_and_counted() -> None:
    results = made_results.everything()
    scores = {each.model: each.score or 0.0 for each in results.board.views["debiased"].ratings}
    # Another zero; two models 100 points off to each side.
    known = {model: score - 700 for model, score in scores.items()}
    known[MODELS[3]] += 100
    known[MODELS[4]] -= 100
    page = of_board(results, Presentation(known=known))
    assert page.standings[0].held == (6, 8)
    [group] = page.standings[0].groups
    marks = {row.rating.model: row.strip.known for row in group.rows}
    assert marks[MODELS[0]] == group.rows[0].strip.whiskers[0].x
    assert group.rows[3].known == pytest.approx(scores[MODELS[3]] + 100)
    text = words(results, Presentation(known=known))
    assert "known rating, which lies in the interval of 6 of 8 models" in text
    assert "known rating" not in words(results)


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
    assert len(rows) == 8 * (6 + 4)
    assert rows[0]["model"] == HOSTILE
    table = list(csv.DictReader(files["leaderboard.csv"].decode().splitlines()))
    assert [row["view"] for row in table] == [row["view"] for row in rows]
    assert [float(row["score"]) for row in table] == [row["score"] for row in rows]
    assert table[7]["model"] == r"tiny\ud800"


def test_each_category_has_a_tab_with_its_own_table() -> None:
    results = made_results.everything()
    categories = (
        Category(name=HOSTILE, battles=600, labelled=0, view=made_results.view("soft")),
        Category(name="words", battles=400, labelled=0, view=made_results.view("people")),
    )
    board = replace(results.board, categories=categories, more_categories=1)
    reader = read(replace(results, board=board))
    radios = [
        attributes for tag, attributes in reader.elements if attributes.get("type") == "radio"
    ]
    assert [("checked" in each, each["name"]) for each in radios] == [
        (True, "category-0"),
        (False, "category-0"),
        (False, "category-0"),
    ]
    assert [a.get("class") for tag, a in reader.elements].count("panel") == 3
    assert HOSTILE in reader.texts
    text = words(replace(results, board=board))
    assert "Ratings by demo, words: people alone" in text
    assert "Without a tab: 1 category with fewer battles" in text
    assert "Ratings by category" in text
    assert "Category" not in words(results)


def test_a_provisional_model_stands_below_the_table_without_a_rank() -> None:
    results = made_results.everything()
    main = results.board.views["debiased"]
    ratings = tuple(
        replace(each, provisional=True, rank=None, rank_low=None, rank_high=None)
        if each.model == "large-1"
        else each
        for each in main.ratings
    )
    views = {**results.board.views, "debiased": replace(main, ratings=ratings)}
    changed = replace(results, board=replace(results.board, views=views))
    standing = of_board(changed).standings[0]
    assert [row.rating.model for row in standing.provisional] == ["large-1"]
    assert len(standing.groups[0].rows) == 7
    assert "Provisional" in words(changed)
    assert "Provisional" not in words(results)


def test_a_length_controlled_rating_stands_beside_the_raw_one() -> None:
    results = made_results.everything()
    main = results.board.views["debiased"]
    ratings = tuple(replace(each, raw_score=(each.score or 0.0) + 40.0) for each in main.ratings)
    views = {**results.board.views, "debiased": replace(main, ratings=ratings)}
    settings = replace(results.settings, control="length", reference="baseline", centre=1082.5)
    changed = replace(results, settings=settings, board=replace(results.board, views=views))
    text = words(changed)
    for heading in ("Rating, length equal", "Raw rating", "Win rate, length equal", "Raw win rate"):
        assert heading in text
    row = of_board(changed).standings[0].groups[0].rows[0]
    assert row.against is not None
    assert row.raw_share is not None
    assert row.raw_share == pytest.approx(100 / (1 + 10 ** (-150 / 400)))
    assert row.against.share < row.raw_share
