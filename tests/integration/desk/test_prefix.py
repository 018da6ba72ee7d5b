"""The desk behind a proxy that shows the service below a prefix."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.integration.desk.browsing import open_page
from tests.integration.desk.worlds import SETTINGS, calibrate, pairs
from tests.integration.processes.server import Server

PREFIX = "/tools/judge-a"


@contextmanager
def proxy(service: str, *, strips: bool) -> Iterator[str]:
    """A proxy that passes requests below the prefix on, and refuses all others."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._pass_on()

        def do_POST(self) -> None:
            self._pass_on()

        def _pass_on(self) -> None:
            if not self.path.startswith(f"{PREFIX}/"):
                self.send_error(404)
                return
            path = self.path.removeprefix(PREFIX) if strips else self.path
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
            answer = httpx.request(
                self.command, service + path, content=body, headers=headers, timeout=60
            )
            self.send_response(answer.status_code)
            for name in ("content-type", "content-security-policy"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {**SETTINGS, "SCOPE_ROOT_PATH": PREFIX}
    with Server(tmp_path_factory.mktemp("prefix"), settings) as server:
        calibrate(server.client, "default", pairs(100, start=0))
        yield server


@pytest.mark.parametrize("strips", [True, False], ids=["strips", "keeps"])
def test_the_desk_works_below_a_prefix(strips: bool, service: Server, browser: Browser) -> None:
    with (
        proxy(f"http://127.0.0.1:{service.port}", strips=strips) as url,
        open_page(browser, url) as page,
    ):
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
