"""Pages of the desk in a real browser that reaches nothing but this machine."""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Locator,
    Page,
    Playwright,
    Request,
    expect,
    sync_playwright,
)

from tests.patience import PATIENCE_S

expect.set_options(timeout=1000 * PATIENCE_S)

# Debian's name first, then that of Google's package.
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
# Every other host's name cannot be resolved.
NO_OTHER_HOST = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
_AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
WIDTHS = {1280: 800, 390: 844}
FORMS: tuple[tuple[int, Literal["light", "dark"]], ...] = (
    (1280, "light"),
    (1280, "dark"),
    (390, "light"),
    (390, "dark"),
)
# Texts that must be shown as they are.
HOSTILE = {
    "script": "<script>document.title = 'owned'</script>",
    "image in Markdown": "![x](https://evil.example/pixel.png) <img src=x onerror=alert(1)>",
    "right to left": "\u202e\u0645\u0631\u062d\u0628\u0627\u202c",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈",
    "control": "a\u0007b\u001b[31mred",
    "quotes": 'it\'s "quoted" $(touch /tmp/owned) `x` \\',
}


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A browser without a window."""
    assert CHROMIUM is not None, "install chromium: `make setup-dev` does"
    # The browser makes a socket in its temporary folder, and a socket's path has 107 bytes.
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        with sync_playwright() as playwright:
            yield from _launched(playwright, patch)


def _launched(playwright: Playwright, patch: pytest.MonkeyPatch) -> Iterator[Browser]:
    browser = playwright.chromium.launch(
        executable_path=CHROMIUM,
        args=["--no-sandbox", "--disable-gpu", NO_OTHER_HOST],
        timeout=1000 * PATIENCE_S,
    )
    # The tests that share the browser have their own temporary folder.
    patch.undo()
    try:
        yield browser
    finally:
        browser.close()


@contextmanager
def open_page(
    browser: Browser,
    url: str,
    *,
    width: int = 1280,
    fine: frozenset[int] = frozenset(),
    refused: bool = False,
    person: str | None = "Tess",
) -> Iterator[Page]:
    """A page of its own; fails at a message on its console, or a request to another host.

    Args:
        fine: Statuses of refusals that the test causes; the browser writes each to the console.
        refused: Whether the test stops the service for a while.
        person: Name that somebody has given to this browser; None if it has not asked yet.
    """
    context = browser.new_context(
        viewport={"width": width, "height": WIDTHS.get(width, 900)},
        locale="en-GB",
        timezone_id="Europe/Berlin",
        base_url=url,
    )
    context.set_default_timeout(1000 * PATIENCE_S)
    if person is not None:
        kept = f"localStorage.setItem('scope-desk-person', {json.dumps(person)})"
        # An empty page keeps nothing.
        context.add_init_script(f"if (location.protocol === 'http:') {kept};")
    page = context.new_page()
    said: list[str] = []
    elsewhere: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        refusal = re.search(r"the server responded with a status of (\d+)", message.text)
        if refused and "net::ERR_" in message.text:
            return
        if refusal is None or int(refusal[1]) not in fine:
            said.append(f"{message.type}: {message.text} {message.location}")

    def on_request(request: Request) -> None:
        if not request.url.startswith((f"{url}/", "data:", "blob:")):
            elsewhere.append(request.url)

    page.on("console", on_console)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", on_request)
    try:
        yield page
    finally:
        context.close()
    assert said == [], said
    assert elsewhere == [], elsewhere


def barriers(page: Page) -> list[str]:
    """The barriers of the page that axe-core calls serious or critical."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_AXE)
    found: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def look_in(page: Page, width: int, scheme: Literal["light", "dark"]) -> None:
    """Changes the width of the window, and the colors that the system asks for."""
    page.set_viewport_size({"width": width, "height": WIDTHS.get(width, 900)})
    page.emulate_media(color_scheme=scheme)
    # Pictures follow the width of the window in the next frame.
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def overflow(page: Page) -> int:
    """Number of pixels by which the page is wider than its window."""
    width: int = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return width


def shown(page: Page) -> tuple[str, str]:
    """Question and left response of the pair on the page."""
    question = page.get_by_role("region", name="Question").text_content()
    left = page.get_by_role("region", name="Left response").text_content()
    assert question is not None
    assert left is not None
    return question, left


def label_pairs(page: Page, better: dict[str, str], until: Locator, most: int = 1000) -> int:
    """Labels pairs by their better response until something is on the page; returns how many."""
    question = page.get_by_role("region", name="Question")
    for number in range(most):
        expect(question.or_(until).first).to_be_visible()
        if until.count():
            return number
        text, left = shown(page)
        page.keyboard.press("1" if left == better[text] else "2")
        expect(question.filter(has_text=text)).to_have_count(0)
    return most
