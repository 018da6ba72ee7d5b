"""A scripted service that listens on a port."""

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import uvicorn

from app.main import create
from tests.patience import PATIENCE_S

ENVIRONMENT = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": "memory://"}


class _ListeningServer(uvicorn.Server):
    """Sets an event when it listens, so that no test has to poll."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @property
    def port(self) -> int:
        port: int = self.servers[0].sockets[0].getsockname()[1]
        return port


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        application = create()
    config = uvicorn.Config(application, port=0, log_level="warning", ws="none")
    server = _ListeningServer(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    assert server.listening.wait(PATIENCE_S)
    yield f"http://127.0.0.1:{server.port}"
    server.should_exit = True
    thread.join(PATIENCE_S)


@pytest.fixture
def clean_url(url: str) -> str:
    """URL of a service without a calibration set."""
    for each in httpx.get(f"{url}/calibrations").json()["calibrations"]:
        httpx.delete(f"{url}/calibrations/{each['name']}")
    return url
