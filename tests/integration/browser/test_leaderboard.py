"""The page of a leaderboard works in a real browser: drawn, sortable, quiet, and alone."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect

from app.ratings.page import write_page
from app.ratings.presentation import ModelFacts, Presentation
from app.ratings.results import LeaderboardResults
from tests.integration.desk.browsing import FORMS, barriers, look_in, open_page, overflow
from tests.patience import PATIENCE_S
from tests.unit.ratings import made_results

# The page around the leaderboard measures it from outside: the leaderboard's own policy forbids
# every script but its own.
_AROUND = """<!DOCTYPE html><html><head><link rel="icon" href="data:,"></head><body>
<iframe id="page" src="/page" width="WIDTH" height="900"></iframe><pre id="found"></pre><script>
document.getElementById("page").onload = () => {
  const page = document.getElementById("page").contentDocument;
  const size = (e) => { const r = e.getBoundingClientRect(); return [r.width, r.height]; };
  const all = (s) => [...page.querySelectorAll(s)];
  for (const each of all("details")) each.open = true;
  const found = {
    title: page.title,
    figures: all("[data-figure]").map((e) => [e.dataset.figure, ...size(e)]),
    marks: all("svg.interval circle").map(size),
    lines: all("svg.interval .whisker").map(size),
    cells: all("table.matrix td[class]").map((e) => getComputedStyle(e).backgroundColor),
    overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    font: getComputedStyle(page.body).fontSize,
    paper: getComputedStyle(page.body).backgroundColor,
  };
  const table = page.querySelector("table.sortable");
  const names = () => [...table.tBodies[0].querySelectorAll("th")].map((e) => e.textContent);
  const press = (text) => [...table.querySelectorAll("button")].find(
    (e) => e.textContent === text).click();
  found.given = names();
  press("Model");
  found.byName = names();
  press("Model");
  found.byNameFalling = names();
  press("Rating");
  found.byRating = names();
  press("Rating");
  found.byRatingRising = names();
  found.sorted = [...table.querySelectorAll("thead th")].map((e) => e.getAttribute("aria-sort"));
  document.getElementById("found").textContent = JSON.stringify(found);
};
</script></body></html>"""


class _Site(BaseHTTPRequestHandler):
    """Serves a page and the one around it, and notes what is asked for."""

    server: "Site"

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        content = self.server.pages.get(self.path, b"")
        self.send_response(200 if content else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_args: object) -> None:
        pass


class Site(ThreadingHTTPServer):
    """A site of two pages."""

    daemon_threads = True

    def __init__(self, pages: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Site)
        self.pages = pages
        self.asked: list[str] = []


@contextmanager
def serving(page: Path, width: int) -> Iterator[Site]:
    around = _AROUND.replace("WIDTH", str(width)).encode()
    site = Site({"/page": page.read_bytes(), "/around": around})
    thread = threading.Thread(target=site.serve_forever)
    thread.start()
    try:
        yield site
    finally:
        site.shutdown()
        thread.join(PATIENCE_S)
        site.server_close()


def seen(
    browser: Browser,
    results: LeaderboardResults,
    folder: Path,
    *,
    width: int = 1100,
    dark: bool = False,
) -> Any:
    """Measures of the page in a browser; fails at any message on its console."""
    write_page(results, folder / "leaderboard.html")
    with serving(folder / "leaderboard.html", width) as site:
        url = f"http://127.0.0.1:{site.server_port}"
        with open_page(browser, url, scheme="dark" if dark else "light") as page:
            page.goto("/around")
            expect(page.locator("#found")).not_to_be_empty()
            found = json.loads(page.locator("#found").text_content() or "")
    assert set(site.asked) == {"/around", "/page"}
    return found


def test_every_figure_is_drawn_and_the_headings_sort(browser: Browser, tmp_path: Path) -> None:
    results = made_results.everything()
    found = seen(browser, results, tmp_path)
    assert found["title"] == "Leaderboard by demo"
    assert sorted(name for name, *_ in found["figures"]) == ["coverage", "wins"]
    assert all(width > 100 and height > 100 for _, width, height in found["figures"])
    assert len(found["marks"]) == len(found["lines"]) == 8
    assert all(width > 4 and height > 4 for width, height in found["marks"])
    assert all(width > 2 for width, _ in found["lines"])
    assert len(found["cells"]) == 56
    assert len(set(found["cells"])) > 4
    names = [name.replace("\ud800", r"\ud800") for name in made_results.MODELS]
    assert found["given"] == found["byRating"] == names
    assert found["byRatingRising"] == names[::-1]
    assert sorted(found["byName"]) == sorted(names)
    assert found["byName"] != names
    assert found["byName"] == found["byNameFalling"][::-1]
    assert found["sorted"] == ["none", "none", "ascending", "none", "none", "none"]


def test_a_phone_scrolls_tables_and_never_the_page(browser: Browser, tmp_path: Path) -> None:
    found = seen(browser, made_results.everything(), tmp_path, width=360)
    assert found["overflow"] <= 0
    assert float(found["font"].removesuffix("px")) >= 15


def test_a_public_page_has_no_barriers_and_gives_its_ratings_as_files(
    browser: Browser, tmp_path: Path
) -> None:
    presentation = Presentation(
        title=f"Title {made_results.HOSTILE}",
        about=f"# About\n\n{made_results.HOSTILE}\n\n| a | b |\n|---|---|\n| 1 | 2 |",
        models={
            model: ModelFacts(organization="Lab", license="MIT", link="https://example.com/")
            for model in made_results.MODELS
        },
    )
    results = made_results.everything()
    write_page(results, tmp_path / "leaderboard.html", presentation)
    with serving(tmp_path / "leaderboard.html", 1280) as site:
        url = f"http://127.0.0.1:{site.server_port}"
        with open_page(browser, url) as page:
            page.goto("/page")
            for each in page.locator("details").all():
                each.evaluate("each => { each.open = true; }")
            for width, scheme in FORMS:
                look_in(page, width, scheme)
                assert barriers(page) == [], (width, scheme)
                assert overflow(page) <= 0, width
            assert page.evaluate("document.title").startswith("Title <img")
        with open_page(browser, url) as page:
            page.goto("/page")
            with page.expect_download() as download:
                page.get_by_role("link", name="leaderboard.json").click()
            rows = json.loads(download.value.path().read_text(encoding="utf-8"))
            assert rows[0]["model"] == made_results.HOSTILE
