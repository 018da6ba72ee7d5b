"""The page of a leaderboard works in a real browser: drawn, sortable, quiet, and alone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page

from app.ratings.page import write_page
from tests.integration.desk.browsing import FORMS, barriers, look_in, open_page, overflow
from tests.patience import PATIENCE_S
from tests.unit.ratings import made_results


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_args: object) -> None:
        pass


@contextmanager
def shown(browser: Browser, folder: Path, title: str | None = None) -> Iterator[Page]:
    """The page with every part open; fails at any message on its console."""
    write_page(made_results.everything(), folder / "leaderboard.html", title)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        try:
            with open_page(browser, f"http://127.0.0.1:{site.server_port}") as page:
                page.goto("/leaderboard.html")
                for each in page.locator("details").all():
                    each.evaluate("each => { each.open = true; }")
                yield page
        finally:
            site.shutdown()
            thread.join(PATIENCE_S)


def sizes(found: Locator) -> list[tuple[float, float]]:
    boxes = [each.bounding_box() for each in found.all()]
    return [(box["width"], box["height"]) for box in boxes if box is not None]


def test_every_figure_is_drawn_and_the_headings_sort(browser: Browser, tmp_path: Path) -> None:
    with shown(browser, tmp_path) as page:
        assert page.title() == "Leaderboard by demo"
        figures = sizes(page.locator("[data-figure]"))
        assert len(figures) == 1
        assert all(width > 100 and height > 100 for width, height in figures)
        marks = sizes(page.locator("svg.interval circle"))
        assert len(marks) == 8
        assert all(width > 4 and height > 4 for width, height in marks)
        table = page.locator("table.sortable").first
        names = table.locator("tbody th")
        best_first = [name.replace("\ud800", r"\ud800") for name in made_results.MODELS]
        assert names.all_text_contents() == best_first
        table.locator("button:text-is('Model')").click(timeout=20_000)
        by_name = names.all_text_contents()
        assert sorted(by_name) == sorted(best_first)
        assert by_name != best_first
        rating = table.locator("button:text-is('Rating')")
        rating.click()
        assert names.all_text_contents() == best_first
        rating.click()
        assert names.all_text_contents() == best_first[::-1]
        assert table.locator("thead th[aria-sort=ascending]").count() == 1


def test_a_page_has_no_barriers_on_any_screen(browser: Browser, tmp_path: Path) -> None:
    with shown(browser, tmp_path, f"Title {made_results.HOSTILE}") as page:
        for width, scheme in FORMS:
            look_in(page, width, scheme)
            assert barriers(page) == [], (width, scheme)
            assert overflow(page) <= 0, width
        assert page.title().startswith("Title <img")
