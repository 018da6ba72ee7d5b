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
    with open_page(browser, f"http://127.0.0.1:{service.port}") as page:
        page.goto("/docs")
        expect(page.locator(".opblock")).to_have_count(routes)
        expect(page.locator('[data-path="/judge/batch"]').first).to_be_visible()


def test_no_other_file_is_served(service: Server) -> None:
    for name in ("LICENSE", "..%2fapplication.py", "%2e%2e", "swagger-ui.css.map"):
        answer = service.client.get(f"/docs/{name}")
        assert answer.json()["code"] == "not_found", name


def test_the_browser_may_keep_the_files(service: Server) -> None:
    answer = service.client.get("/docs/swagger-ui.css")
    assert answer.headers["content-type"].startswith("text/css")
    assert answer.headers["cache-control"] == "max-age=86400"
