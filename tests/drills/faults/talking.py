"""A client that costs little: HTTP/1.1 over asyncio streams, connections kept.

httpx spends more on a request than the service does; with two cores the clients must not be what
is measured.
"""

import asyncio
import json
from types import TracebackType
from typing import Any, NamedTuple, Self

# Uvicorn closes what is idle for 5 s; a request that crosses with that is nobody's fault.
_LONGEST_IDLE_S = 2.0
STALE_HEADER = "scope-calibration-age"


class Answer(NamedTuple):
    """What a request came to.

    Args:
        status: Of HTTP; 0 where there was no answer.
        headers: By their names in lower case.
        body: As JSON, None where it is none.
        began: When the request was sent, by the loop's clock.
        seconds: Until the answer, or until it was given up.
        trouble: Why there was no answer: "refused", "cut" or "silent".
    """

    status: int
    headers: dict[str, str]
    body: Any
    began: float
    seconds: float
    trouble: str = ""

    @property
    def code(self) -> str:
        """Of a problem; empty where it is none."""
        return str(self.body.get("code", "")) if isinstance(self.body, dict) else ""

    @property
    def outcome(self) -> str:
        """In a word or two, for counting."""
        if self.trouble:
            return f"no answer ({self.trouble})"
        if self.status >= 400:
            return f"{self.status} {self.code or 'without a code'}"
        if isinstance(self.body, dict) and self.body.get("failed"):
            return f"{self.status} examples failed"
        if STALE_HEADER in self.headers:
            return f"{self.status} stale"
        status = self.body.get("status") if isinstance(self.body, dict) else None
        return f"{self.status} {status}" if isinstance(status, str) else f"{self.status}"


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def exchange(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        self.writer.write(request)
        await self.writer.drain()
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip("\r\n").split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return int(first.split(" ")[1]), headers, body


class Client:
    """Sends requests, as many at a time as are asked for; a request is sent once and not again.

    Args:
        port: On 127.0.0.1.
        timeout_s: After which an answer is given up.
    """

    def __init__(self, port: int, *, timeout_s: float = 20.0) -> None:
        self.port = port
        self._timeout_s = timeout_s
        # With when each was last used.
        self._idle: list[tuple[_Connection, float]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.drop_connections()

    def drop_connections(self) -> None:
        """Closes those that are idle."""
        while self._idle:
            # Held by a name: a writer that nobody holds warns before it is aborted.
            connection, _ = self._idle.pop()
            connection.writer.transport.abort()

    async def ask(self, method: str, path: str, content: bytes = b"", *, key: str = "") -> Answer:
        """Sends one request; an answer that does not come is an answer with a trouble."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        authorization = f"Authorization: Bearer {key}\r\n" if key else ""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n{authorization}"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        trouble = "refused"
        connection = None
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await self._connection()
                trouble = "cut"
                status, headers, body = await connection.exchange(head.encode() + content)
        except (OSError, asyncio.IncompleteReadError) as exc:
            # TimeoutError is an OSError.
            trouble = "silent" if isinstance(exc, TimeoutError) else trouble
            return Answer(0, {}, None, began, loop.time() - began, trouble)
        else:
            if headers.get("connection", "") != "close":
                self._idle.append((connection, loop.time()))
                connection = None
            return Answer(status, headers, _json(body), began, loop.time() - began)
        finally:
            if connection is not None:
                connection.writer.transport.abort()

    async def _connection(self) -> _Connection:
        while self._idle:
            connection, used = self._idle.pop()
            recent = asyncio.get_running_loop().time() - used < _LONGEST_IDLE_S
            if recent and not connection.reader.at_eof():
                return connection
            connection.writer.transport.abort()
        return _Connection(*await asyncio.open_connection("127.0.0.1", self.port))


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
