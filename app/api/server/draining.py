"""What `scope-judge serve` runs: a server that listens when it can judge and stops in two steps."""

import asyncio
import logging
import math
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import FrameType
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from app.api.application import drain
from app.api.server.connections import Connections, affordable
from app.api.server.guarded import GuardedHttp
from app.core.errors import StartupError
from app.settings import Settings

logger = logging.getLogger("uvicorn.error")


class DrainingServer(uvicorn.Server):
    """Uvicorn that says when it listens, and that stops in two steps.

    On SIGTERM the application says that it is not ready, and takes requests for a while all the
    same: a proxy goes on sending them until it has looked. Then the listener is closed, and what is
    under way is finished. Ctrl-C, a second signal and a lost engine stop at once.

    Args:
        application: What is served.
        settings: Of the log and of draining.
        on_listening: Called with the port once it listens.
    """

    def __init__(
        self, application: FastAPI, settings: Settings, on_listening: Callable[[int], None]
    ) -> None:
        connections = Connections(affordable(settings.max_connections))
        protocol = partial(GuardedHttp, connections=connections)
        config = uvicorn.Config(
            application,
            log_level=settings.log_level,
            timeout_graceful_shutdown=math.ceil(settings.drain_s),
            # Uvicorn only calls it.
            http=cast(type[asyncio.Protocol], protocol),
            ws="none",
        )
        super().__init__(config)
        self._application = application
        self._drain_lag_s = settings.drain_lag_s
        self._on_listening = on_listening
        self._closes_at: float | None = None
        self.lost: str | None = None

    async def startup(self, sockets: Any = None) -> None:
        """Starts the application, and listens."""
        await super().startup(sockets)
        if self.started:
            self._on_listening(self.servers[0].sockets[0].getsockname()[1])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handles a signal."""
        drain(self._application)
        if sig == signal.SIGTERM and self._closes_at is None and self.started:
            self._closes_at = time.monotonic() + self._drain_lag_s
            logger.info(
                "Not ready any more; closes in %g s, then waits up to %d s for what is under way",
                self._drain_lag_s,
                self.config.timeout_graceful_shutdown,
            )
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Looks, every tenth of a second, whether it is time to close."""
        if self._closes_at is not None and time.monotonic() >= self._closes_at:
            self.should_exit = True
        return await super().on_tick(counter)

    def end(self, reason: str) -> None:
        """Stops at once, because nothing can be judged any more."""
        drain(self._application)
        self.lost = reason
        self.should_exit = True


def bound(host: str, port: int) -> socket.socket:
    """Binds the address before a judge is loaded, without listening on it yet.

    Raises:
        StartupError: The address is in use or is not one of this machine.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as on_failure:
            listener = on_failure.enter_context(socket.socket(family, kind))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            on_failure.pop_all()
    except OSError as exc:
        raise StartupError(f"SCOPE_HOST={host}, SCOPE_PORT={port}: {exc.strerror}") from None
    return listener
