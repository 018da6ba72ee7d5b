"""Uvicorn's httptools protocol with bounds on everything that it keeps before a request runs.

Neither uvicorn nor httptools limits a request's head, pipelining, trailers or the number of chunks.
"""

from asyncio import AbstractEventLoop
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from app.api.server.connections import plain_answer

# Request line and headers. A key, a trace context and a proxy's headers take 2 KB.
MAX_HEAD_BYTES = 32 * 1024
# A header of four bytes costs 130 bytes of Python objects.
MAX_HEADERS = 128
# Requests that wait on one connection behind the one in flight. Clients hardly pipeline at all.
MAX_PIPELINED = 4
# A chunk costs a callback of about 1 us whatever its size, so that 8 MiB in chunks of one byte
# would take seconds of the event loop: after so many chunks they must be 64 bytes on average.
_FREE_CHUNKS = 1024
_LEAST_CHUNK_BYTES = 64
# Spaces, line ends and chunk sizes, which no callback shows.
_FRAMING_BYTES = 64
_HEADER_OBJECTS_BYTES = 130


class _RefusedError(Exception):
    """Raised in a callback, since only that stops the parser in the middle of what was read."""


class BoundedHttpTools(HttpToolsProtocol):
    """Closes a connection whose bytes would take more memory or time than a request may."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        # There is no WebSocket route, and another protocol would not have these bounds.
        self.ws_protocol_class = None
        self._in_message = False
        self._in_body = False
        # Bytes that were read and are no body: of a head, of trailers, or around chunks.
        self._frame_bytes = 0
        # Of the headers and the target, or of trailers.
        self._header_bytes = 0
        self._chunks = 0
        self._body_bytes = 0
        self._queued_bytes = 0
        self._too_large = False

    def bytes_waiting(self) -> int:
        """Memory in an incomplete head and in requests that wait behind another."""
        waiting = self._queued_bytes if self.pipeline else 0
        if self._in_message and not self._in_body:
            waiting += self._frame_bytes + len(self.headers) * _HEADER_OBJECTS_BYTES
        return waiting

    def data_received(self, data: bytes) -> None:
        """Parses what was read."""
        self._unset_keepalive_if_required()
        if not self._in_message:
            self._frame_bytes = 0
        self._frame_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Answered like any other request; there is nothing to upgrade to.
            pass
        except httptools.HttpParserError:
            self._refuse()
            return
        self._queued_bytes = self._queued_bytes + len(data) if self.pipeline else 0
        # More than a head cannot be waiting in the parser, nor between two parts of a body.
        if self._in_message and self._frame_bytes > MAX_HEAD_BYTES:
            self._too_large = True
            self._refuse()

    def _refuse(self) -> None:
        cycle = self.cycle
        answering = cycle is not None and cycle.response_started and not cycle.response_complete
        if answering or self.pipeline:
            # An answer now would be taken for that of an earlier request.
            self.transport.close()
        elif self._too_large:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self.transport.write(plain_answer(status, "The request's head is too large."))
            self.transport.close()
        else:
            self.send_400_response("Invalid HTTP request received.")

    def on_message_begin(self) -> None:
        """Handles the first byte of a request."""
        self._in_message = True
        self._header_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Handles a part of the request's target."""
        self._count(len(url))
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Handles a header; a trailer is counted and dropped."""
        self._count(len(name) + len(value))
        if self._in_body:
            return
        if len(self.headers) >= MAX_HEADERS:
            self._too_large = True
            raise _RefusedError
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > MAX_HEAD_BYTES:
            self._too_large = True
            raise _RefusedError

    def on_headers_complete(self) -> None:
        """Starts the request, or lets it wait behind the one in flight."""
        if len(self.pipeline) >= MAX_PIPELINED:
            raise _RefusedError
        super().on_headers_complete()
        if self.expect_100_continue or self.parser.should_upgrade():
            # Where the body is not asked for, nobody can tell if it comes nevertheless.
            self.cycle.keep_alive = False
        self._in_body = True
        framing = _FRAMING_BYTES + 4 * len(self.headers)
        self._frame_bytes = max(0, self._frame_bytes - self._header_bytes - framing)
        self._header_bytes = self._chunks = self._body_bytes = 0

    def on_body(self, body: bytes) -> None:
        """Handles a part of the body: a chunk, or as much as was read of it."""
        size = len(body)
        self._frame_bytes = max(0, self._frame_bytes - size - _FRAMING_BYTES)
        self._chunks += 1
        self._body_bytes += size
        if self._chunks > _FREE_CHUNKS and self._body_bytes < self._chunks * _LEAST_CHUNK_BYTES:
            raise _RefusedError
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Handles the end of a request."""
        self._in_message = self._in_body = False
        super().on_message_complete()
