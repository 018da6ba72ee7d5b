"""The server of `scope-judge serve`: uvicorn with h11, a few more bounds, and a two-step shutdown.

With uvicorn's own command the bounds need the options
`--http app.api.server:BoundedH11 --limit-concurrency 1000`.
"""

import asyncio
import logging
import math
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
from app.api.auth.access import CROWDED, MOST_CONNECTIONS
from app.core.errors import StartupError
from app.settings import Settings

logger = logging.getLogger("uvicorn.error")

# Largest head: request line and headers. A key, a trace context and a proxy's headers take 2 KB.
MAX_HEAD_BYTES = 16 * 1024
# h11 applies this limit to a head that is incomplete after a read, and a read can have 256 KiB. So
# it gets a head in small pieces, and a body, behind which a head can follow, in larger ones.
_HEAD_PIECE_BYTES = 8 * 1024
_BODY_PIECE_BYTES = 64 * 1024
# Requests that may wait on one connection behind the one in flight; few clients pipeline at all.
MAX_PIPELINED = 4
# Each chunk costs about 15 us on the event loop. After 1,024 chunks they must have 64 bytes on
# average, or 2 MiB in chunks of one byte would block the service for half a minute.
_FREE_CHUNKS = 1024
_LEAST_CHUNK_BYTES = 64
# A client may stop reading a large answer for so long; the answer is in memory meanwhile.
UNREAD_S = 60.0
# At the limit of connections, a client that has not read for so long is closed before idle ones.
_STUCK_S = 1.0
# Answers to clients that do not read wait here. Linux doubles it, and would let it grow to 4 MiB.
_SEND_BUFFER_BYTES = 128 * 1024
# An idle connection is closed after this time, as proxies expect from a backend.
KEEP_ALIVE_S = 30
# Connections beyond the limit while all others have a request in flight. Health checks on them are
# answered; all other requests get an HTTP error.
SPARE = 64
# Reserve of open files that are not connections: stores, the engine, logs.
_OTHER_FILES = 192
# Do not raise the limit of open files above this: some child processes iterate over all possible
# descriptors.
_MOST_FILES = 65536


class _Parser(h11.Connection):
    """Refuses a body in tiny chunks, and one whose length is said in two ways."""

    _chunks = 0
    _body_bytes = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._body_bytes = 0
            names = {name for name, _ in event.headers}
            # A proxy that believes the other one of the two would see another request in the body.
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("Content-Length beside Transfer-Encoding")
        elif isinstance(event, h11.Data):
            self._chunks += 1
            self._body_bytes += len(event.data)
            if self._chunks > _FREE_CHUNKS and (
                self._body_bytes < self._chunks * _LEAST_CHUNK_BYTES
            ):
                raise h11.RemoteProtocolError("the chunks of the body are too small")
        return event


class BoundedH11(H11Protocol):
    """Uvicorn's protocol, which closes connections that would cost other clients too much.

    `limit_concurrency` is the most connections at once. Uvicorn would answer everybody with 503
    above it. Here a connection is closed instead: the one whose client has not read its answer for
    longest, else the one that has waited longest for a request.
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
        # No route uses WebSockets, and a WebSocket protocol would not have these bounds.
        self.ws_protocol_class = None
        self._most_connections = config.limit_concurrency or math.inf
        self.limit_concurrency = None
        self.app_state = {**self.app_state, MOST_CONNECTIONS: self._most_connections}
        self._waiting_since = self.loop.time()
        self._unread: asyncio.TimerHandle | None = None
        self._paused_since = math.inf

    @property
    def _in_flight(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        """Makes room for the connection by closing another one, if there are too many."""
        super().connection_made(transport)
        if len(self.connections) <= self._most_connections:
            return
        others = [
            other
            for other in self.connections
            if isinstance(other, BoundedH11) and other is not self
        ]
        paused = min(others, key=lambda other: other._paused_since, default=self)
        waiting = [other for other in others if not other._in_flight]
        if self.loop.time() - paused._paused_since >= _STUCK_S:
            paused._drop()
        elif waiting:
            min(waiting, key=lambda other: other._waiting_since)._drop()
        elif len(self.connections) > self._most_connections + SPARE:
            self._drop()
        else:
            self.app_state = {**self.app_state, CROWDED: True}

    def data_received(self, data: bytes) -> None:
        """Handles received bytes."""
        start = 0
        while start < len(data) and not self.transport.is_closing():
            is_head = self.conn.their_state is h11.IDLE
            end = start + (_HEAD_PIECE_BYTES if is_head else _BODY_PIECE_BYTES)
            super().data_received(data[start:end])
            start = end
        if not self._in_flight:
            return
        if self.cycle.waiting_for_100_continue:
            # A client that gets an answer instead may or may not send the body: the next bytes
            # would be ambiguous.
            self.cycle.keep_alive = False
        if self.conn.their_state is h11.DONE:
            pipelined, _ = self.conn.trailing_data
            heads = pipelined.count(b"\r\n\r\n")
            if heads > MAX_PIPELINED or len(pipelined) > MAX_HEAD_BYTES:
                self._drop()

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

    def pause_writing(self) -> None:
        """Starts the timeout of a client that does not read its answer."""
        super().pause_writing()
        self._paused_since = self.loop.time()
        self._unread = self.loop.call_later(UNREAD_S, self._drop)

    def resume_writing(self) -> None:
        """Stops the timeout, because the client has read its answer."""
        super().resume_writing()
        self._paused_since = math.inf
        if self._unread is not None:
            self._unread.cancel()

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
        host: Address of this machine.
        port: Port; 0 for any free one.
        setting: Name of the port's setting, for the error.

    Raises:
        StartupError: The address is in use or does not belong to this machine.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as on_failure:
            listener = on_failure.enter_context(socket.socket(family, kind))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
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
