"""A service for each file of tests, and one browser for all of them."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.integration.desk.browsing import open_browser
from tests.integration.desk.worlds import SETTINGS, furnish
from tests.integration.processes.server import Server


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("desk"), dict(SETTINGS)) as server:
        furnish(server.client)
        yield server


@pytest.fixture(scope="module")
def url(service: Server) -> str:
    return service.url


# A session would be too long: no other event loop runs in the thread of an open Playwright.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser
