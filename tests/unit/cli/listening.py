"""Services in this process that listen on a port, and that tests can disturb at a given request."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.patience import PATIENCE_S


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


@contextmanager
def listening(application: ASGIApp) -> Iterator[str]:
    """Runs an application on a free port, and yields its URL."""
    config = uvicorn.Config(
        application, port=0, log_level="critical", ws="none", timeout_graceful_shutdown=1
    )
    server = _ListeningServer(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert server.listening.wait(PATIENCE_S)
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


class Disturbed:
    """An application in which a disturbance replaces the answer of one request.

    POST requests whose path ends so are counted; that with the number `at`, from 1, is disturbed,
    before or after the application has handled it.
    """

    def __init__(
        self,
        app: ASGIApp,
        path: str,
        *,
        at: int,
        then: Callable[[], None],
        handled: bool = False,
    ) -> None:
        self.app = app
        self._path, self._at, self._then, self._handled = path, at, then, handled
        self.requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI connection."""
        counted = scope["type"] == "http" and scope["method"] == "POST"
        if counted and scope["path"].endswith(self._path):
            self.requests += 1
            if self.requests == self._at:
                if self._handled:
                    await self.app(scope, receive, _ignore)
                self._then()
                await _answer_busy(send)
                return
        await self.app(scope, receive, send)


async def _ignore(message: Any) -> None:
    pass


async def _answer_busy(send: Send) -> None:
    body = json.dumps({"code": "draining", "detail": "it is being stopped"}).encode()
    await send({"type": "http.response.start", "status": 503, "headers": []})
    await send({"type": "http.response.body", "body": body})
