"""The service's own page works in a browser that reaches nothing but the service."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.integration.desk.browsing import open_page
from tests.integration.processes.server import Server


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": "memory://"}
    with Server(tmp_path_factory.mktemp("docs"), settings) as server:
        yield server


def test_the_page_shows_every_route(service: Server, browser: Browser) -> None:
    document = service.client.get("/openapi.json").json()
    routes = sum(len(methods) for methods in document["paths"].values())
    with open_page(browser, service.url) as page:
        page.goto("/docs")
        expect(page.locator(".opblock")).to_have_count(routes)
        expect(page.locator('[data-path="/judge/batch"]').first).to_be_visible()
