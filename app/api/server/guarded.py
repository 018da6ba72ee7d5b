"""Uvicorn's HTTP protocols with timeouts and with limits on connections and memory.

`scope-judge serve` uses them. With uvicorn's own command:
`uvicorn --factory app.main:create --http app.api.server.guarded:GuardedHttp`.
"""

import asyncio
import math
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from app.api.auth.access import CROWDED
from app.api.server.connections import Connections, affordable, plain_answer
from app.settings import read_settings

# Timeout of a request's head: from the connection, or from the first byte of a later request, to
# the end of the headers. The head is one packet; 10 s allow three retransmissions.
HEAD_S = 10.0
# The body of a refused request is read and dropped, so that the client sees the answer and can
# reuse the connection; at most as many bytes as the default of SCOPE_MAX_BODY_BYTES.
MAX_DROPPED_BYTES = 8 * 2**20
# A client that does not read its answer is disconnected after this time, plus 1 s for each 16 KiB
# of the answer (the rate that request bodies need, too).
READ_GRACE_S = 10.0
READ_BYTES_PER_S = 16 * 1024


class Guard(asyncio.Protocol):
    """Mixin for uvicorn's protocols: limits the cost of a connection without a running request.

    Args:
        config: Uvicorn's configuration.
        server_state: Uvicorn's state; each server has one.
        app_state: State from the application's lifespan.
        connections: All connections of the server; None to make the limit from the settings.
    """

    # Attributes of uvicorn's protocols.
    transport: asyncio.Transport
    cycle: Any
    app_state: dict[str, Any]
    # Returns the bytes of memory in requests that do not run yet.
    bytes_waiting: Callable[[], int]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        connections: Connections | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)  # type: ignore[call-arg]
        if connections is None:
            connections = _connections_of(server_state)
        self._connections = connections
        self.held_bytes = 0
        self._dropped_bytes = 0
        self._head_until = math.inf
        self._read_until = math.inf
        self._busy = False

    @property
    def in_flight(self) -> bool:
        """Whether a request is in flight."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that wait in the send buffer."""
        return self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Registers the connection, or closes it if there are too many."""
        super().connection_made(transport)
        self._head_until = self._connections.clock() + HEAD_S
        admission = self._connections.admit(self)
        if admission == "spare":
            self.app_state = {**self.app_state, CROWDED: True}
        elif admission == "refused":
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Removes the connection."""
        self._release()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handles received bytes, and enforces the limits of a head and of dropped bodies."""
        super().data_received(data)
        if self.in_flight:
            if not self._busy:
                self._busy = True
                self._connections.mark_busy(self)
                self._head_until = math.inf
                self._dropped_bytes = 0
        else:
            self._dropped_bytes += len(data)
            if self._head_until == math.inf:
                self._head_until = self._connections.clock() + HEAD_S
            if self._dropped_bytes > MAX_DROPPED_BYTES:
                self.transport.close()
        self._hold(self.bytes_waiting())

    def on_response_complete(self) -> None:
        """Handles the end of an answer."""
        super().on_response_complete()  # type: ignore[misc]
        if not self.in_flight:
            self._busy = False
            self._connections.mark_idle(self)
        if self.held_bytes:
            self._hold(self.bytes_waiting())

    def pause_writing(self) -> None:
        """Starts the timeout of a client that does not read its answer."""
        super().pause_writing()
        self._read_until = self._readable_until()

    def resume_writing(self) -> None:
        """Stops the timeout, because the client has read its answer."""
        super().resume_writing()
        self._read_until = math.inf

    def check_time(self, now: float) -> None:
        """Closes the connection if one of its timeouts has passed."""
        if now >= self._read_until:
            self.evict()
        elif self.transport.is_closing():
            # A closing transport waits until the client has read everything, perhaps forever.
            self._read_until = min(self._read_until, self._readable_until())
        elif now >= self._head_until and not self.in_flight:
            if self.cycle is None and self._dropped_bytes:
                late = "The request's head did not arrive in time."
                self.transport.write(plain_answer(HTTPStatus.REQUEST_TIMEOUT, late))
            self.transport.close()

    def evict(self) -> None:
        """Closes the connection at once."""
        self._release()
        self.transport.abort()

    def _release(self) -> None:
        self._connections.remove(self)
        self._hold(0)

    def _readable_until(self) -> float:
        needed_s = READ_GRACE_S + self.unsent_bytes / READ_BYTES_PER_S
        return self._connections.clock() + needed_s

    def _hold(self, count: int) -> None:
        change = count - self.held_bytes
        if change:
            self.held_bytes = count
            self._connections.count_held(self, change)


class GuardedH11(Guard, H11Protocol):
    """Protocol for an installation without httptools; h11 itself limits heads and pipelining."""

    def bytes_waiting(self) -> int:
        """Always 0: h11 does not report this memory, and limits a head to 64 KiB."""
        return 0


try:
    from app.api.server.bounded_http import BoundedHttpTools
except ImportError:
    GuardedHttp: type[Guard] = GuardedH11
else:

    class GuardedHttpTools(Guard, BoundedHttpTools):
        """Protocol with httptools, the default.

        With h11 a judgment takes 1.18 times the CPU (0.94 to 1.48 in 5 repeats).
        """

        def _release(self) -> None:
            super()._release()
            # Free the memory now: before the transport has closed, many more heads can arrive.
            self.headers, self.scope = [], {}  # type: ignore[typeddict-item]

    GuardedHttp = GuardedHttpTools

_shared: WeakKeyDictionary[ServerState, Connections] = WeakKeyDictionary()


def _connections_of(server_state: ServerState) -> Connections:
    """The connections of a server that was started by uvicorn's own command."""
    if server_state not in _shared:
        _shared[server_state] = Connections(affordable(read_settings().max_connections))
    return _shared[server_state]
