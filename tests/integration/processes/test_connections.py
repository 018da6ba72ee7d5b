"""Tests of the limits on connections, memory and time before a request runs."""

import asyncio
import json
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from app.api.keys import Keys
from app.api.server import MAX_HEAD_BYTES, SPARE, BoundedH11, affordable
from tests.patience import PATIENCE_S, until
from tests.serving import application_of
from tests.unit.api.corpus import Case, cases
from tests.unit.api.keyring import entry, key_of, write_keys
from tests.unit.api.middleware.test_client_leaving import WaitingEngine
from tests.unit.api.problems import comparison
from tests.unit.api.test_corpus import outcome
from tests.wire import exchange

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
PLAIN = json.dumps(comparison(alpha=None)).encode()
CHUNKED = b"POST /judge HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class Client:
    """One connection that sends and receives bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, content: bytes) -> None:
        self.writer.write(content)
        with suppress(ConnectionError):
            await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Reads status, headers and body of the next answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await self.reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1]), headers, body

    async def status_of(self, content: bytes = HEALTH) -> int:
        await self.send(content)
        return (await self.answer())[0]

    async def is_closed(self) -> bool:
        """Reads to the end; the test times out if the connection stays open."""
        try:
            while await asyncio.wait_for(self.reader.read(65536), 20):
                pass
        except ConnectionError:
            pass
        return True

    @property
    def is_open(self) -> bool:
        return not self.reader.at_eof()


@dataclass
class LocalServer:
    """A server in this process."""

    port: int
    connections: set[BoundedH11]
    engine: WaitingEngine
    clients: list[Client] = field(default_factory=list)

    async def connect(self) -> Client:
        """Opens a connection, and waits until the server has registered or refused it."""
        before = set(self.connections)
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        await until(lambda: set(self.connections) != before)
        return client


@asynccontextmanager
async def listening(*, limit: int = 100, keys: Keys | None = None) -> AsyncIterator[LocalServer]:
    engine = WaitingEngine()
    config = uvicorn.Config(
        application_of(engine, keys=keys),
        port=0,
        log_level="critical",
        timeout_keep_alive=3600,
        http=BoundedH11,
        limit_concurrency=limit,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    connections: Any = server.server_state.connections
    local = LocalServer(port, connections, engine)
    try:
        yield local
    finally:
        engine.go_on.set()
        for client in local.clients:
            client.writer.close()
        server.should_exit = True
        await serving


def judging(body: bytes = PLAIN, *, path: str = "/judge", key: str | None = None) -> bytes:
    bearer = f"Authorization: Bearer {key_of(key)}\r\n" if key else ""
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{bearer}"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def test_a_head_beyond_the_limit_is_refused_and_its_connection_closed() -> None:
    head = b"GET / HTTP/1.1\r\nX: " + b"y" * (2 * MAX_HEAD_BYTES)
    async with listening() as server:
        client = await server.connect()
        await client.send(head)
        assert (await client.reader.readline()).split()[1] == b"400"
        assert await client.is_closed()
        # The same holds after an answered request.
        client = await server.connect()
        assert await client.status_of() == 200
        await client.send(head)
        assert await client.is_closed()


@pytest.mark.parametrize("case", [case for case in cases() if case.whole], ids=lambda c: c.name)
async def test_a_bad_request_gets_its_answer(case: Case) -> None:
    async with listening() as server:
        server.engine.go_on.set()
        answer, _ = await asyncio.to_thread(
            exchange, server.port, case.content, case.method, timeout_s=PATIENCE_S
        )
        assert outcome(answer) == (case.status, case.code)
        assert await (await server.connect()).status_of() == 200


@pytest.mark.parametrize(("chunk_bytes", "is_answered"), [(1, False), (1024, True)])
async def test_a_body_in_too_many_chunks_ends_the_connection(
    chunk_bytes: int, *, is_answered: bool, tmp_path: Path
) -> None:
    keys = Keys(write_keys(tmp_path / "keys.json", entry("judge")))
    async with listening(keys=keys if is_answered else None) as server:
        client = await server.connect()
        chunk = b"%x\r\n%b\r\n" % (chunk_bytes, b" " * chunk_bytes)
        await client.send(CHUNKED + chunk * 2_000)
        assert await client.is_closed()


async def test_a_body_in_many_chunks_is_read() -> None:
    async with listening() as server:
        server.engine.go_on.set()
        client = await server.connect()
        body = PLAIN[:-1] + b" " * 256_000 + b"}"
        parts = (body[i : i + 256] for i in range(0, len(body), 256))
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
        head = CHUNKED[:-2] + b"Content-Type: application/json\r\n\r\n"
        assert await client.status_of(head + chunks + b"0\r\n\r\n") == 200


async def test_a_connection_with_expect_100_continue_is_closed_after_a_refusal() -> None:
    async with listening() as server:
        client = await server.connect()
        head = b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n"
        assert await client.status_of(b"POST /no HTTP/1.1\r\nHost: localhost\r\n" + head) == 404
        assert await client.is_closed()


async def test_a_trailer_adds_no_header_to_the_request(tmp_path: Path) -> None:
    keys = Keys(write_keys(tmp_path / "keys.json", entry("judge")))
    bearer = f"Authorization: Bearer {key_of('judge')}\r\n".encode()
    async with listening(keys=keys) as server:
        client = await server.connect()
        chunk = b"%x\r\n%b\r\n0\r\n" % (len(PLAIN), PLAIN)
        assert await client.status_of(CHUNKED + chunk + bearer + b"\r\n") == 401


async def test_a_full_server_closes_the_connection_that_waited_longest() -> None:
    async with listening(limit=4) as server:
        used = await server.connect()
        silent = [await server.connect() for _ in range(3)]
        assert await used.status_of() == 200
        for each in silent:
            assert await (await server.connect()).status_of() == 200
            assert await each.is_closed()
        assert await used.status_of() == 200
        assert len(server.connections) == 4


async def test_a_server_whose_connections_are_all_busy_refuses_and_stays_healthy() -> None:
    async with listening(limit=2) as server:
        busy = [await server.connect() for _ in range(2)]
        for each in busy:
            await each.send(judging())
        await until(lambda: all(each._in_flight for each in server.connections))
        refused = await server.connect()
        await refused.send(judging())
        status, _, body = await refused.answer()
        assert status == 429
        assert json.loads(body)["code"] == "overloaded"
        assert "SCOPE_MAX_CONNECTIONS" in json.loads(body)["detail"]
        assert await (await server.connect()).status_of() == 200
        server.engine.go_on.set()
        for each in busy:
            assert (await each.answer())[0] == 200
        assert await (await server.connect()).status_of(judging()) == 200


def test_the_limit_of_open_files_is_raised_and_bounds_connections(
    caplog: pytest.LogCaptureFixture,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        assert affordable(10) == 10
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(hard, soft)
        assert "SCOPE_MAX_CONNECTIONS" not in caplog.text
        most = affordable(10**9)
        assert SPARE < most < resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE
        assert "SCOPE_MAX_CONNECTIONS" in caplog.text
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
