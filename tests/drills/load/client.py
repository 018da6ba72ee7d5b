"""A cheap client: HTTP/1.1 over asyncio streams with kept connections.

httpx uses more CPU for a request than the service does. On two cores the clients must not be the
bottleneck.
"""

import asyncio
import json
from types import TracebackType
from typing import Any, NamedTuple, Self

# The service closes connections after 30 s without a request. A request at that moment would fail.
_LONGEST_IDLE_S = 20.0
STALE_HEADER = "scope-calibration-age"


class Answer(NamedTuple):
    """The answer of one request.

    Args:
        status: HTTP status; 0 without an answer.
        headers: Headers by lower-case name.
        body: Parsed JSON body; its text if it is not JSON.
        began: When the request was sent, by the loop's clock.
        seconds: Time until the answer, or until the client gave up.
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
        """Error code of a problem; empty for other answers."""
        return str(self.body.get("code", "")) if isinstance(self.body, dict) else ""

    @property
    def lacks_retry_after(self) -> bool:
        """Whether the answer asks for another try and does not say when."""
        return self.status in (429, 503, 504) and "retry-after" not in self.headers

    @property
    def outcome(self) -> str:
        """A short name of the outcome, for counting."""
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
    """Sends requests, concurrently if asked; each request is sent once and not retried.

    Args:
        port: Port of the service on 127.0.0.1.
        timeout_s: Time after which the client gives up.
    """

    def __init__(self, port: int, *, timeout_s: float = 20.0) -> None:
        self.port = port
        self._timeout_s = timeout_s
        # Each connection with the time of its last use.
        self._idle: list[tuple[_Connection, float]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.drop_connections()

    def drop_connections(self) -> None:
        """Closes idle connections."""
        while self._idle:
            # The name keeps a reference: a writer without one warns before it is aborted.
            connection, _ = self._idle.pop()
            connection.writer.transport.abort()

    async def ask(self, method: str, path: str, content: bytes = b"", *, key: str = "") -> Answer:
        """Sends one request; a missing answer is an `Answer` with a trouble."""
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
            # TimeoutError is a subclass of OSError.
            trouble = "silent" if isinstance(exc, TimeoutError) else trouble
            return Answer(0, {}, None, began, loop.time() - began, trouble)
        else:
            if headers.get("connection", "") != "close":
                self._idle.append((connection, loop.time()))
                connection = None
            return Answer(status, headers, _parsed(body), began, loop.time() - began)
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


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")


def figure_in(metrics: str, name: str) -> float:
    """Sum of a metric's samples, whatever their labels."""
    return sum(
        float(line.rpartition(" ")[2])
        for line in metrics.splitlines()
        if line.startswith((f"{name}{{", f"{name} "))
    )
