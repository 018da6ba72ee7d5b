"""HTTP as `scope-judge serve` speaks it: uvicorn's protocols with bounds on time and connections.

For uvicorn's own command:
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

# From the connection, or from the first byte of a later request, to the end of its headers. They
# are one packet; 10 s let three retransmissions pass.
HEAD_S = 10.0
# A refused request's body is read and dropped, so that the client gets to see the answer and can
# use the connection again: as much as a body may have by default.
MAX_DROPPED_BYTES = 8 * 2**20
# A client that does not read its answer has this long, and a second more for so many bytes of it,
# as a body has on its way in.
READ_GRACE_S = 10.0
READ_BYTES_PER_S = 16 * 1024


class Guard(asyncio.Protocol):
    """Mixin before one of uvicorn's protocols: what a connection may cost while nothing runs on it.

    Args:
        config: Uvicorn's configuration.
        server_state: Uvicorn's state, one for each server.
        app_state: What the application's lifespan made.
        connections: All connections of the server; by default made from the settings.
    """

    # Uvicorn's own attributes.
    transport: asyncio.Transport
    cycle: Any
    app_state: dict[str, Any]
    # Memory in requests that do not run yet.
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
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the client has not read."""
        return self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes in the connection, or closes it where there is no room."""
        super().connection_made(transport)
        self._head_until = self._connections.clock() + HEAD_S
        admission = self._connections.admit(self)
        if admission == "spare":
            self.app_state = {**self.app_state, CROWDED: True}
        elif admission == "refused":
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Gives back the connection's place."""
        self._release()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handles what was read, within the time and the bytes that it may take."""
        super().data_received(data)
        if self.in_flight:
            if not self._busy:
                self._busy = True
                self._connections.begin(self)
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
            self._connections.rest(self)
        if self.held_bytes:
            self._hold(self.bytes_waiting())

    def pause_writing(self) -> None:
        """Gives a client that does not read its answer some time for it."""
        super().pause_writing()
        self._read_until = self._readable_until()

    def resume_writing(self) -> None:
        """Handles a client that has read its answer."""
        super().resume_writing()
        self._read_until = math.inf

    def check_time(self, now: float) -> None:
        """Closes the connection if its time is over."""
        if now >= self._read_until:
            self.evict()
        elif self.transport.is_closing():
            # Closing waits until the client has read everything, which may be never.
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
        self._connections.forget(self)
        self._hold(0)

    def _readable_until(self) -> float:
        needed_s = READ_GRACE_S + self.unsent_bytes / READ_BYTES_PER_S
        return self._connections.clock() + needed_s

    def _hold(self, count: int) -> None:
        change = count - self.held_bytes
        if change:
            self.held_bytes = count
            self._connections.hold(self, change)


class GuardedH11(Guard, H11Protocol):
    """For an installation without httptools; h11 bounds heads and pipelining by itself."""

    def bytes_waiting(self) -> int:
        """None that h11 tells of; a head may have 64 KiB."""
        return 0


try:
    from app.api.server.bounded_http import BoundedHttpTools
except ImportError:
    GuardedHttp: type[Guard] = GuardedH11
else:

    class GuardedHttpTools(Guard, BoundedHttpTools):
        """For httptools; h11 takes 1.18 times the CPU of a judgment (0.94 to 1.48, 5 repeats)."""

        def _release(self) -> None:
            super()._release()
            # At once, and not when the closing is done: a burst of heads is read before that.
            self.headers, self.scope = [], {}  # type: ignore[typeddict-item]

    GuardedHttp = GuardedHttpTools

_shared: WeakKeyDictionary[ServerState, Connections] = WeakKeyDictionary()


def _connections_of(server_state: ServerState) -> Connections:
    """The connections of a server that was not started by `scope-judge serve`."""
    if server_state not in _shared:
        _shared[server_state] = Connections(affordable(read_settings().max_connections))
    return _shared[server_state]
