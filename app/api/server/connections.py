"""Limits the open connections of a server and selects the one to close when there are too many."""

import asyncio
import logging
import resource
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Literal, Protocol

logger = logging.getLogger("app")

# Additional connections beyond the limit, for the time when every other connection has a request
# in flight. Health checks on them are answered; all other requests get an HTTP error.
SPARE = 64
# Reserve of open files that are not connections: stores, the engine, logs, and connections that
# are accepted before a closed one has released its descriptor.
_OTHER_FILES = 192
# Do not raise the limit of open files above this: the service does not need more, and some child
# processes iterate over all possible descriptors.
_MOST_FILES = 65536
# A new client is about to send its request, so for this time an idle connection is closed first.
HEAD_GRACE_S = 1.0
# Most memory of all incomplete heads and pipelined requests together. An ordinary head arrives
# whole in one read and never counts.
MAX_HELD_BYTES = 2 * 2**20
_SWEEP_EVERY_S = 1.0
_WARN_EVERY_S = 60.0

Admission = Literal["admitted", "spare", "refused"]


class Connection(Protocol):
    """One connection that `Connections` can close."""

    @property
    def held_bytes(self) -> int:
        """Bytes of memory in an incomplete head or in pipelined requests."""

    def check_time(self, now: float) -> None:
        """Closes the connection if one of its timeouts has passed."""

    def evict(self) -> None:
        """Closes the connection at once."""


class Connections:
    """All open connections of a server; closes the least useful one to make room for a new one.

    A connection is new until the head of its first request is complete. It is busy while a request
    is in flight, and idle between requests. A busy connection is never closed to make room.

    Args:
        limit: Most connections at once.
        clock: Monotonic clock in seconds.
    """

    def __init__(self, limit: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self.clock = clock
        # Connection -> time since when it is new or idle; insertion order is the order of time.
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
        """Registers a new connection, and closes another one if necessary.

        Returns:
            "admitted"; "spare" if all others are busy, so that only health checks are answered; or
            "refused" if the spare connections are used up, too.
        """
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

    def mark_busy(self, connection: Connection) -> None:
        """Marks a connection as busy: one of its requests is in flight."""
        if connection in self._busy:
            return
        self._new.pop(connection, None)
        self._idle.pop(connection, None)
        self._busy.add(connection)

    def mark_idle(self, connection: Connection) -> None:
        """Marks a connection as idle: it has no request in flight any more."""
        if connection in self._busy:
            self._busy.remove(connection)
            self._idle[connection] = self.clock()

    def remove(self, connection: Connection) -> None:
        """Removes a closed connection."""
        self._new.pop(connection, None)
        self._idle.pop(connection, None)
        self._busy.discard(connection)

    def count_held(self, connection: Connection, change_bytes: int) -> None:
        """Counts memory for requests that are not in flight; closes a connection above the limit.

        Args:
            connection: Connection that holds the memory.
            change_bytes: Change of its memory, in bytes.
        """
        self._held_bytes += change_bytes
        if self._held_bytes > MAX_HELD_BYTES:
            waiting = (c for group in (self._new, self._idle) for c in group if c.held_bytes)
            self._close(next(waiting, connection))

    def sweep(self) -> None:
        """Closes the connections with a passed timeout."""
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
        self.remove(connection)
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
                "%d connections are open, which is the limit (SCOPE_MAX_CONNECTIONS, or the limit "
                "of open files): connections without a request are closed to make room; closed so "
                "far: %d",
                len(self),
                self._closed_for_others,
            )


def plain_answer(status: HTTPStatus, detail: str) -> bytes:
    """A plain-text response to bytes that are not a request; without a route there is no problem.

    Args:
        status: Status of the response.
        detail: Body of the response, in ASCII.
    """
    return (
        f"HTTP/1.1 {status} {status.phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(detail)}\r\nconnection: close\r\n\r\n{detail}"
    ).encode("ascii")


def affordable(wanted: int) -> int:
    """Raises this process's limit of open files as far as needed.

    Args:
        wanted: Wanted number of connections.

    Returns:
        The possible number of connections, at most `wanted`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if most > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
        except (OSError, ValueError):
            logger.warning("the limit of open files could not be raised: it stays at %d", soft)
    room = max(1, soft - SPARE - _OTHER_FILES)
    if wanted > room:
        logger.warning(
            "only %d connections are possible, not %d (SCOPE_MAX_CONNECTIONS), because the limit "
            "of open files is %d: raise it with `ulimit -n`",
            room,
            wanted,
            soft,
        )
    return min(wanted, room)
