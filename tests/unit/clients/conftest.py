"""The real service on a socket, with the scripted judge."""

import threading
from collections.abc import Iterator

import httpx
import pytest
import uvicorn

from app.main import create
from tests.patience import PATIENCE_S
from tests.unit.api.problems import examples
from tests.unit.cli.test_cli import ENVIRONMENT, _ListeningServer


@pytest.fixture(scope="session")
def service_url() -> Iterator[str]:
    """URL of a service whose default set has 60 pairs; its judge reads `quality=1.5` in texts."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRONMENT, "SCOPE_MAX_BATCH": "300"}.items():
            patch.setenv(name, value)
        application = create()
    server = _ListeningServer(uvicorn.Config(application, port=0, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    assert server.listening.wait(PATIENCE_S)
    url = f"http://127.0.0.1:{server.port}"
    httpx.post(f"{url}/calibrate", json={"examples": examples()}).raise_for_status()
    yield url
    server.should_exit = True
    thread.join(PATIENCE_S)
