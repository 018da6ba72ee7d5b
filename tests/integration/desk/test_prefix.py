"""The desk behind a proxy that shows the service below a prefix."""

from pathlib import Path

from playwright.sync_api import Browser, Route, expect

from tests.integration.desk.browsing import open_page
from tests.integration.desk.worlds import SETTINGS, calibrate, pairs
from tests.integration.processes.server import Server

PREFIX = "/tools/judge-a"


def test_the_desk_works_below_a_prefix_that_a_proxy_strips_or_keeps(
    browser: Browser, tmp_path: Path
) -> None:
    with Server(tmp_path, {**SETTINGS, "SCOPE_ROOT_PATH": PREFIX}) as server:
        calibrate(server.client, "default", pairs(100, start=0))
        url = server.url

        def strip(route: Route) -> None:
            route.continue_(url=route.request.url.replace(PREFIX, "", 1))

        for strips in (True, False):
            # No request goes to another place than below the prefix.
            with open_page(browser, f"{url}{PREFIX}") as page:
                if strips:
                    page.route("**/*", strip)
                page.goto(f"{PREFIX}/desk")
                expect(page.get_by_role("heading", name="You may use it at")).to_be_visible()
                page.get_by_role("link", name="Try", exact=True).click()
                page.get_by_role("textbox", name="Response A").fill("quality=4")
                page.get_by_role("textbox", name="Response B").fill("quality=0")
                page.get_by_role("button", name="Judge", exact=True).click()
                expect(page.locator(".verdict")).to_have_text("A is better")
                expect(page.locator("canvas")).to_have_count(1)
                page.get_by_text("The same in your program").click()
                expect(page.locator("pre")).to_contain_text(f"{url}{PREFIX}/judge")
                page.get_by_role("link", name="Watch", exact=True).click()
                expect(page.get_by_role("region", name="State")).to_be_visible()
