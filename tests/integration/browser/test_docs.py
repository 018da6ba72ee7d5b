"""The service's own page works in a browser that reaches nothing but the service."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S

# Debian's name first, then that of Google's package.
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    # Every other host's name cannot be resolved.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    # In milliseconds of the page's own clock, which runs ahead while the page waits for nothing.
    "--virtual-time-budget=30000",
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": "memory://"}
    with Server(tmp_path_factory.mktemp("docs"), settings) as server:
        yield server


def page(url: str, profile: Path) -> str:
    """The page as the browser has built it."""
    assert CHROMIUM is not None, "install chromium: `make setup-dev` does"
    command = [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "--dump-dom", url]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return shown.stdout


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
def test_the_page_shows_every_route(service: Server, tmp_path: Path, path: str) -> None:
    built = page(f"http://127.0.0.1:{service.port}{path}", tmp_path)
    document = service.client.get("/openapi.json").json()
    shown = built.count('class="opblock opblock-')
    assert shown == sum(len(methods) for methods in document["paths"].values())
    assert 'data-path="/judge/batch"' in built


def test_no_other_file_is_served(service: Server) -> None:
    for name in ("LICENSE", "..%2fapplication.py", "%2e%2e", "swagger-ui.css.map"):
        answer = service.client.get(f"/docs/{name}")
        assert answer.json()["code"] == "not_found", name


def test_the_browser_may_keep_the_files(service: Server) -> None:
    answer = service.client.get("/docs/swagger-ui.css")
    assert answer.headers["content-type"].startswith("text/css")
    assert answer.headers["cache-control"] == "max-age=86400"
