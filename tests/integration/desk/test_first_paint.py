"""The first paint of the desk, and the bytes of a view; prints the figures.

.venv/bin/python -m pytest -n 0 -s tests/integration/desk/test_first_paint.py
"""

import statistics

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.desk.browsing import open_page

pytestmark = pytest.mark.long

LOADS = 20
LARGEST_BYTES = 150_000
VIEWS = ("home", "try", "sets/drifted", "label/default", "watch/drifted")
# Times since the beginning of the navigation, in milliseconds, and bytes with their headers.
MEASURE = """() => {
  const [document] = performance.getEntriesByType("navigation");
  const files = [document, ...performance.getEntriesByType("resource")];
  return {
    paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
    html: document.responseEnd,
    scripts: document.domContentLoadedEventEnd,
    bytes: files.reduce((sum, file) => sum + file.transferSize, 0),
  };
}"""


def load(page: Page, view: str) -> dict[str, float]:
    """Loads a view with nothing in the browser's cache, and measures it once it is there."""
    page.goto("about:blank")
    page.goto(f"/desk#{view}")
    expect(page.locator("main h1").first).to_be_visible()
    page.wait_for_load_state("networkidle")
    measured: dict[str, float] = page.evaluate(MEASURE)
    return measured


def test_the_first_paint_waits_for_no_script(url: str, browser: Browser) -> None:
    context = browser.new_context(base_url=url, java_script_enabled=False)
    page = context.new_page()
    page.goto("/desk")
    expect(page.locator(".brand")).to_be_visible()
    expect(page.locator("nav a")).to_have_text(["Home", "Label", "Watch", "Try"])
    context.close()


def test_every_view_paints_soon_and_is_small(url: str, browser: Browser) -> None:
    for view in VIEWS:
        loads = []
        for _ in range(LOADS):
            # Its own context has an empty cache.
            with open_page(browser, url) as page:
                loads.append(load(page, view))
        middle = {name: statistics.median(each[name] for each in loads) for name in loads[0]}
        worst = max(each["paint"] for each in loads)
        print(
            f"\n{view}: first paint {middle['paint']:.0f} ms (at most {worst:.0f}), page received "
            f"{middle['html']:.0f} ms, scripts run {middle['scripts']:.0f} ms, "
            f"{middle['bytes'] / 1000:.0f} KB received",
            end="",
        )
        assert middle["bytes"] < LARGEST_BYTES, view
