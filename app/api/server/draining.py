"""The server of `scope-judge serve`: listens when the judge is ready, and shuts down gracefully."""

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
    """Uvicorn with a callback when it listens, and with a shutdown in two steps.

    After SIGTERM /readyz fails, but the service still accepts requests for SCOPE_DRAIN_LAG_S,
    because a proxy sends them until its next health check. Then the listener is closed and the
    requests in progress are finished. Ctrl-C, a second signal and a lost engine skip the first
    step.

    Args:
        application: Application to serve.
        settings: Settings of the service; the log level, the limits and the drain times are used.
        on_listening: Called with the port when the server listens.
        on_early_signal: Called with a signal that arrives before the server listens.
    """

    def __init__(
        self,
        application: FastAPI,
        settings: Settings,
        on_listening: Callable[[int], None],
        on_early_signal: Callable[[int], None],
    ) -> None:
        connections = Connections(affordable(settings.max_connections))
        protocol = partial(GuardedHttp, connections=connections)
        config = uvicorn.Config(
            application,
            # The lines of uvicorn are formatted like those of the service.
            log_config=None,
            log_level=settings.log_level,
            timeout_graceful_shutdown=math.ceil(settings.drain_s),
            # The annotation wants a class, but uvicorn only calls it.
            http=cast(type[asyncio.Protocol], protocol),
            ws="none",
        )
        super().__init__(config)
        self._application = application
        self._drain_lag_s = settings.drain_lag_s
        self._on_listening = on_listening
        self._on_early_signal = on_early_signal
        self._closes_at: float | None = None
        self.lost: str | None = None

    async def startup(self, sockets: Any = None) -> None:
        """Starts the application, and listens."""
        await super().startup(sockets)
        if self.started:
            self._on_listening(self.servers[0].sockets[0].getsockname()[1])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handles a signal."""
        if not self.started:
            self._on_early_signal(sig)
        drain(self._application)
        if sig == signal.SIGTERM and self._closes_at is None:
            self._closes_at = time.monotonic() + self._drain_lag_s
            logger.info(
                "Draining: /readyz fails from now on, the service accepts requests for %g s more, "
                "then waits up to %d s for those in progress",
                self._drain_lag_s,
                self.config.timeout_graceful_shutdown,
            )
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn every 0.1 s; exits when the drain lag is over."""
        if self._closes_at is not None and time.monotonic() >= self._closes_at:
            self.should_exit = True
        return await super().on_tick(counter)

    def end(self, reason: str) -> None:
        """Stops without the drain lag, because the service cannot judge any more."""
        drain(self._application)
        self.lost = reason
        self.should_exit = True


def bound(host: str, port: int) -> socket.socket:
    """Binds the address before a judge is loaded, without listening on it yet.

    Raises:
        StartupError: The address is in use or does not belong to this machine.
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
