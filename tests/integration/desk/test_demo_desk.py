"""The desk of a service as `make serve` starts it: real vLLM and the bundled judge."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.integration.desk.browsing import open_page
from tests.integration.processes.server import Server

pytestmark = pytest.mark.vllm


def test_a_stranger_gets_a_verdict_and_learns_that_the_set_is_a_toy(
    demo_server: Server, browser: Browser
) -> None:
    with open_page(browser, demo_server.url) as page:
        page.goto("/desk")
        toy = page.get_by_text("This set is a toy")
        expect(toy).to_be_visible()
        # Other tests share the service, and their pairs may be unlike those of its set.
        step = re.compile("^Make (your own set|a set of today's pairs)$")
        expect(page.get_by_role("link", name=step)).to_be_visible()
        page.get_by_role("link", name="Try", exact=True).click()
        expect(toy).to_be_visible()
        # The example on the page is one that the demo judge knows.
        page.get_by_role("button", name="Judge", exact=True).click()
        expect(page.locator(".verdict")).to_have_text("A is better")
        page.get_by_label("Question").fill("What is 48 + 27?")
        page.get_by_role("textbox", name="Response A").fill("75")
        page.get_by_role("textbox", name="Response B").fill("76")
        # A verdict goes with the pair that it was for.
        expect(page.locator(".verdict")).to_have_count(0)
        page.keyboard.press("Control+Enter")
        expect(page.locator(".verdict")).to_have_text("No verdict")
