"""The first paint of the desk, and the bytes of a view; prints the figures.

.venv/bin/python -m pytest -n 0 -s tests/integration/desk/test_first_paint.py
"""

import pytest
from playwright.sync_api import Browser, expect

from tests.integration.desk.browsing import open_page

pytestmark = pytest.mark.long

LOADS = 7
# The files are sent without compression (docs/design/decisions.md).
LARGEST_BYTES = 300_000
# Times since the beginning of the navigation, in milliseconds, and bytes with their headers.
MEASURE = """() => {
  const files = ["navigation", "resource"].flatMap((type) => performance.getEntriesByType(type));
  const [{ startTime }] = performance.getEntriesByName("first-contentful-paint");
  return [startTime, files.reduce((sum, file) => sum + file.transferSize, 0)];
}"""


def test_the_first_paint_waits_for_no_script(url: str, browser: Browser) -> None:
    context = browser.new_context(base_url=url, java_script_enabled=False)
    page = context.new_page()
    page.goto("/desk")
    expect(page.locator(".brand")).to_be_visible()
    expect(page.locator("nav a")).to_have_text(["Home", "Label", "Watch", "Try"])
    context.close()


@pytest.mark.parametrize("view", ["home", "sets/drifted", "label/default"])
def test_a_view_paints_soon_and_is_small(view: str, url: str, browser: Browser) -> None:
    loads = []
    for _ in range(LOADS):
        # Its own context has an empty cache.
        with open_page(browser, url) as page:
            page.goto(f"/desk#{view}")
            expect(page.locator("main h1").first).to_be_visible()
            page.wait_for_load_state("networkidle")
            loads.append(page.evaluate(MEASURE))
    paints, received = zip(*loads, strict=True)
    print(f"\n{view}: first paints {sorted(map(round, paints))} ms, {max(received)} bytes received")
    assert max(received) < LARGEST_BYTES
