"""Uvicorn's httptools protocol with limits on the data that it keeps before a request runs.

Neither uvicorn nor httptools limits the head of a request, pipelining, trailers or the number of
chunks.
"""

from asyncio import AbstractEventLoop
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from app.api.server.connections import plain_answer

# Largest head: request line and headers. A key, a trace context and a proxy's headers take 2 KB.
MAX_HEAD_BYTES = 32 * 1024
# Most headers. A header of four bytes costs 130 bytes of Python objects.
MAX_HEADERS = 128
# Most requests that wait on one connection behind the one in flight; few clients pipeline at all.
MAX_PIPELINED = 4
# Each chunk costs a callback of about 1 us, so 8 MiB in chunks of one byte would block the event
# loop for seconds. After 1024 chunks the average must be at least 64 bytes.
_FREE_CHUNKS = 1024
_LEAST_CHUNK_BYTES = 64
# Allowance for spaces, line ends and chunk sizes, which httptools passes to no callback.
_FRAMING_BYTES = 64
_HEADER_OBJECTS_BYTES = 130


class _RefusedError(Exception):
    """Raised in a callback, because only an exception stops the parser within its input."""


class BoundedHttpTools(HttpToolsProtocol):
    """Closes a connection whose requests exceed the limits."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        # No route uses WebSockets, and a WebSocket protocol would not have these limits.
        self.ws_protocol_class = None
        self._in_message = False
        self._in_body = False
        # Received bytes that are not part of a body: head, trailers and chunk sizes.
        self._frame_bytes = 0
        # Bytes of the request target and the headers, later of the trailers.
        self._header_bytes = 0
        self._chunks = 0
        self._body_bytes = 0
        self._queued_bytes = 0
        self._too_large = False

    def bytes_waiting(self) -> int:
        """Bytes of memory in an incomplete head and in pipelined requests."""
        waiting = self._queued_bytes if self.pipeline else 0
        if self._in_message and not self._in_body:
            waiting += self._frame_bytes + len(self.headers) * _HEADER_OBJECTS_BYTES
        return waiting

    def data_received(self, data: bytes) -> None:
        """Parses received bytes."""
        self._unset_keepalive_if_required()
        if not self._in_message:
            self._frame_bytes = 0
        self._frame_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Ignored: the request gets an ordinary answer, because no upgrade is supported.
            pass
        except httptools.HttpParserError:
            self._refuse()
            return
        self._queued_bytes = self._queued_bytes + len(data) if self.pipeline else 0
        # A valid request never has more of these bytes, neither in its head nor between chunks.
        if self._in_message and self._frame_bytes > MAX_HEAD_BYTES:
            self._too_large = True
            self._refuse()

    def _refuse(self) -> None:
        cycle = self.cycle
        answering = cycle is not None and cycle.response_started and not cycle.response_complete
        if answering or self.pipeline:
            # The client would mistake an answer now for the answer to an earlier request.
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
        """Starts the request, or queues it behind the one in flight."""
        if len(self.pipeline) >= MAX_PIPELINED:
            raise _RefusedError
        super().on_headers_complete()
        if self.expect_100_continue or self.parser.should_upgrade():
            # If the service answers without "100 Continue", the client may or may not send the
            # body, so the next bytes are ambiguous.
            self.cycle.keep_alive = False
        self._in_body = True
        framing = _FRAMING_BYTES + 4 * len(self.headers)
        self._frame_bytes = max(0, self._frame_bytes - self._header_bytes - framing)
        self._header_bytes = self._chunks = self._body_bytes = 0

    def on_body(self, body: bytes) -> None:
        """Handles a chunk of the body, or a part of one."""
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
