"""The open connections of a server: how many there may be, and which is closed to make room."""

import asyncio
import logging
import resource
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Literal, Protocol

logger = logging.getLogger("app")

# Beyond the limit so many more are accepted while every other connection has a request in
# flight: health checks are answered on them and the rest is refused in HTTP.
SPARE = 64
# Open files that are no connections: stores, the engine, logs, and what is accepted in one go
# before a closed connection gives its descriptor back.
_OTHER_FILES = 192
# A limit of open files beyond this buys nothing here, and some programs that are started later
# walk through all of them.
_MOST_FILES = 65536
# A client that has just connected is about to send its request: during this time an idle
# connection is closed rather than this one.
HEAD_GRACE_S = 1.0
# Of all incomplete heads and waiting pipelined requests together; an honest head comes whole in
# one read and is never counted.
MAX_HELD_BYTES = 2 * 2**20
_SWEEP_EVERY_S = 1.0
_WARN_EVERY_S = 60.0

Admission = Literal["admitted", "spare", "refused"]


class Connection(Protocol):
    """One connection, as far as its closing goes."""

    @property
    def held_bytes(self) -> int:
        """Memory in an incomplete head or in requests that wait behind another."""

    def check_time(self, now: float) -> None:
        """Closes the connection if its time is over."""

    def evict(self) -> None:
        """Closes the connection at once."""


class Connections:
    """Knows every open connection of a server, and closes the least useful one for a new one.

    A connection is new until its first request's head is complete, then busy while a request is
    in flight, and idle between requests. A busy connection is never closed for another.

    Args:
        limit: Most connections at once.
        clock: Monotonic, in seconds.
    """

    def __init__(self, limit: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self.clock = clock
        # Connection -> since when; both are in that order, since only the end is written to.
        self._new: dict[Connection, float] = {}
        self._idle: dict[Connection, float] = {}
        self._busy: set[Connection] = set()
        self._held_bytes = 0
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed_for_others = 0
        self._warned_at = -_WARN_EVERY_S

    def __len__(self) -> int:
        return len(self._new) + len(self._idle) + len(self._busy)

    def admit(self, connection: Connection) -> Admission:
        """Takes in a new connection; one of the others may be closed for it."""
        admission: Admission = "admitted"
        if len(self) >= self._limit:
            victim = self._least_useful()
            if victim is not None:
                self._close(victim)
            elif len(self) >= self._limit + SPARE:
                return "refused"
            else:
                admission = "spare"
            self._warn()
        self._new[connection] = self.clock()
        self._sweep_later()
        return admission

    def begin(self, connection: Connection) -> None:
        """A request of this connection is in flight from now on."""
        if connection in self._busy:
            return
        self._new.pop(connection, None)
        self._idle.pop(connection, None)
        self._busy.add(connection)

    def rest(self, connection: Connection) -> None:
        """This connection has no request in flight any more."""
        if connection in self._busy:
            self._busy.remove(connection)
            self._idle[connection] = self.clock()

    def forget(self, connection: Connection) -> None:
        """This connection is closed."""
        self._new.pop(connection, None)
        self._idle.pop(connection, None)
        self._busy.discard(connection)

    def hold(self, connection: Connection, change_bytes: int) -> None:
        """Counts memory that a connection holds without a request in flight for it."""
        self._held_bytes += change_bytes
        if self._held_bytes > MAX_HELD_BYTES:
            waiting = (c for group in (self._new, self._idle) for c in group if c.held_bytes)
            self._close(next(waiting, connection))

    def sweep(self) -> None:
        """Closes the connections whose time is over."""
        now = self.clock()
        for connection in [*self._new, *self._idle, *self._busy]:
            connection.check_time(now)

    def _least_useful(self) -> Connection | None:
        oldest = next(iter(self._new), None)
        if oldest is not None and self.clock() - self._new[oldest] >= HEAD_GRACE_S:
            return oldest
        return next(iter(self._idle), oldest)

    def _close(self, connection: Connection) -> None:
        self._closed_for_others += 1
        self.forget(connection)
        connection.evict()

    def _sweep_later(self) -> None:
        if self._sweeping is None:
            loop = asyncio.get_running_loop()
            self._sweeping = loop.call_later(_SWEEP_EVERY_S, self._sweep_and_go_on)

    def _sweep_and_go_on(self) -> None:
        self._sweeping = None
        self.sweep()
        if len(self):
            self._sweep_later()

    def _warn(self) -> None:
        if self.clock() - self._warned_at >= _WARN_EVERY_S:
            self._warned_at = self.clock()
            logger.warning(
                "%d connections are open, the most there may be (SCOPE_MAX_CONNECTIONS, and the "
                "limit of open files): connections without a request are closed to make room; "
                "closed so far: %d",
                len(self),
                self._closed_for_others,
            )


def plain_answer(status: HTTPStatus, detail: str) -> bytes:
    """A response to bytes that are no request yet; they belong to no route, so it is no problem."""
    return (
        f"HTTP/1.1 {status} {status.phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(detail)}\r\nconnection: close\r\n\r\n{detail}"
    ).encode("ascii")


def affordable(wanted: int) -> int:
    """Raises this process's limit of open files, and returns how many connections fit into it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if most > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
        except (OSError, ValueError):
            logger.warning("the limit of open files stays at %d", soft)
    room = max(1, soft - SPARE - _OTHER_FILES)
    if wanted > room:
        logger.warning(
            "at most %d connections, not %d (SCOPE_MAX_CONNECTIONS): the limit of open files is "
            "%d (ulimit -n)",
            room,
            wanted,
            soft,
        )
    return min(wanted, room)
