"""The server of `scope-judge serve`: uvicorn with h11, a few more bounds, and a two-step shutdown.

With uvicorn's own command the bounds need the options
`--http app.api.server:BoundedH11 --limit-concurrency 1000`.
"""

import asyncio
import logging
import math
import re
import resource
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from app.api.application import drain
from app.api.middleware import MOST_CONNECTIONS
from app.core.errors import StartupError
from app.settings import Settings

logger = logging.getLogger("uvicorn.error")

# Largest head: request line and headers. A key, a trace context and a proxy's headers take 2 KB.
MAX_HEAD_BYTES = 16 * 1024
_END_OF_HEAD = re.compile(rb"\n\r?\n")
# A chunk costs 6 us on the event loop, however small it is. More than 256 chunks need 256 bytes for
# each more, and may not follow an answer: uvicorn reads the rest of its request without a pause.
_FREE_CHUNKS = 256
_LEAST_CHUNK_BYTES = 256
# An idle connection is closed after this time, as proxies expect from a backend.
KEEP_ALIVE_S = 30
# Connections beyond the limit while all others have a request in flight. Health checks on them are
# answered; the gate refuses all other requests.
SPARE = 64
# Reserve of open files that are not connections: stores, the engine, logs.
_OTHER_FILES = 192
# Do not raise the limit of open files above this: some child processes iterate over all possible
# descriptors.
_MOST_FILES = 65536


class _Parser(h11.Connection):
    """Refuses long heads, bodies in tiny chunks, and bodies with two lengths."""

    _chunks = 0
    _body_bytes = 0

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE:
            # h11 applies its own limit only to a head that is incomplete after a read.
            received, _ = self.trailing_data
            if len(received) > MAX_HEAD_BYTES and not _END_OF_HEAD.search(
                received, 0, MAX_HEAD_BYTES
            ):
                raise h11.RemoteProtocolError("the head is too long")
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._body_bytes = 0
            # A proxy that believes the other length would see another request in the body.
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
                raise h11.RemoteProtocolError("Content-Length beside Transfer-Encoding")
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_start
            self._body_bytes += len(event.data)
            counted = self._chunks - _FREE_CHUNKS
            if counted > 0 and (
                self.our_state is h11.DONE or self._body_bytes < counted * _LEAST_CHUNK_BYTES
            ):
                raise h11.RemoteProtocolError("the body has too many chunks")
        return event


class BoundedH11(H11Protocol):
    """Uvicorn's protocol, which makes room for a new connection by closing an idle one.

    `limit_concurrency` is the most connections at once. Uvicorn would answer everybody with 503
    above it.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = _Parser(h11.SERVER, MAX_HEAD_BYTES)
        # No route uses WebSockets, and a WebSocket protocol would not have this bound.
        self.ws_protocol_class = None
        self._most_connections = config.limit_concurrency or math.inf
        self.limit_concurrency = None
        self.app_state = {**self.app_state, MOST_CONNECTIONS: self._most_connections}
        self._waiting_since = self.loop.time()

    @property
    def _in_flight(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        """Closes the connection that has waited longest for a request, if there are too many."""
        super().connection_made(transport)
        if len(self.connections) <= self._most_connections:
            return
        idle = [
            other
            for other in self.connections
            if isinstance(other, BoundedH11) and other is not self and not other._in_flight
        ]
        if idle:
            min(idle, key=lambda other: other._waiting_since)._drop()
        elif len(self.connections) > self._most_connections + SPARE:
            self._drop()

    def data_received(self, data: bytes) -> None:
        """Handles received bytes."""
        super().data_received(data)
        if self._in_flight and self.cycle.waiting_for_100_continue:
            # A client that gets an answer instead may or may not send the body: the next bytes
            # would be ambiguous.
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """Handles the end of an answer."""
        self._waiting_since = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuses bytes that are not a valid request."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self._in_flight:
            super().send_400_response(msg)
        else:
            # The client would mistake the answer for the one to an earlier request.
            self.transport.close()

    def _drop(self) -> None:
        # Now, because many more connections can be accepted before the transport has closed.
        self.connections.discard(self)
        self.transport.abort()


class DrainingServer(uvicorn.Server):
    """Uvicorn with a callback when it listens, and with a shutdown in two steps.

    After SIGTERM /readyz fails, but the service still accepts requests for SCOPE_DRAIN_LAG_S,
    because a proxy sends them until its next health check. Then the listener is closed and the
    requests in progress are finished. Ctrl-C, a second signal, and the loss of the engine or
    the store skip the first step.

    Args:
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
        config = uvicorn.Config(
            application,
            # The lines of uvicorn are formatted like those of the service.
            log_config=None,
            log_level=settings.log_level,
            timeout_graceful_shutdown=math.ceil(settings.drain_s),
            http=BoundedH11,
            ws="none",
            limit_concurrency=affordable(settings.max_connections),
            timeout_keep_alive=KEEP_ALIVE_S,
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


def bound(host: str, port: int, *, setting: str) -> socket.socket:
    """Binds the address before a judge is loaded, without listening on it yet.

    Args:
        setting: Name of the port's setting, for the error.

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
        raise StartupError(f"SCOPE_HOST={host}, {setting}={port}: {exc.strerror}") from None
    return listener


def affordable(wanted: int) -> int:
    """Raises the limit of open files; returns the possible connections, at most `wanted`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft < most:
        # macOS may refuse it.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    room = max(1, soft - SPARE - _OTHER_FILES)
    if wanted > room:
        logging.getLogger("app").warning(
            "only %d connections are possible, not %d (SCOPE_MAX_CONNECTIONS), because the limit "
            "of open files is %d: raise it with `ulimit -n`",
            room,
            wanted,
            soft,
        )
    return min(wanted, room)
