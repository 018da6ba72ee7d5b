"""Tests of the limits on connections, memory and time before a request runs."""

import asyncio
import json
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import uvicorn

from app.api.auth.keys import Keys
from app.api.server.bounded_http import MAX_HEAD_BYTES, MAX_PIPELINED, BoundedHttpTools
from app.api.server.connections import (
    HEAD_GRACE_S,
    MAX_HELD_BYTES,
    SPARE,
    Admission,
    Connection,
    Connections,
    affordable,
)
from app.api.server.guarded import (
    HEAD_S,
    MAX_DROPPED_BYTES,
    READ_GRACE_S,
    Guard,
    GuardedH11,
    GuardedHttp,
    GuardedHttpTools,
)
from tests.serving import application_of
from tests.unit.api.keyring import entry, key_of, write_keys
from tests.unit.api.middleware.test_client_leaving import WaitingEngine
from tests.unit.api.problems import comparison

PROTOCOLS: list[type[Guard]] = [GuardedHttpTools, GuardedH11]
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
PLAIN = json.dumps(comparison(alpha=None)).encode()
CHUNKED = b"POST /judge HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


class Clock:
    """A clock that moves only when a test sets it."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class CountingConnections(Connections):
    """Counts the connections that were registered or refused."""

    admitted = 0

    def admit(self, connection: Connection) -> Admission:
        self.admitted += 1
        return super().admit(connection)


async def until(condition: Callable[[], bool]) -> None:
    """Polls until a condition holds."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


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
    """A server in this process, with a clock that the test moves."""

    port: int
    connections: CountingConnections
    clock: Clock
    engine: WaitingEngine
    clients: list[Client] = field(default_factory=list)

    async def connect(self) -> Client:
        """Opens a connection, and waits until the server has registered it."""
        before = self.connections.admitted
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        await until(lambda: self.connections.admitted > before)
        return client

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.connections.sweep()


@asynccontextmanager
async def listening(
    protocol: type[Guard] = GuardedHttpTools,
    *,
    limit: int = 100,
    keys: Keys | None = None,
) -> AsyncIterator[LocalServer]:
    clock, engine = Clock(), WaitingEngine()
    connections = CountingConnections(limit, clock=clock)
    config = uvicorn.Config(
        application_of(engine, keys=keys),
        port=0,
        log_level="critical",
        timeout_keep_alive=3600,
        http=cast(type[asyncio.Protocol], partial(protocol, connections=connections)),
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    found = LocalServer(port, connections, clock, engine)
    try:
        yield found
    finally:
        engine.go_on.set()
        for client in found.clients:
            client.writer.close()
        server.should_exit = True
        await serving


def judging(body: bytes = PLAIN, *, path: str = "/judge", key: str | None = None) -> bytes:
    bearer = f"Authorization: Bearer {key_of(key)}\r\n" if key else ""
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{bearer}"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def test_the_service_uses_the_cheapest_protocol() -> None:
    assert GuardedHttp is GuardedHttpTools
    assert issubclass(GuardedHttpTools, BoundedHttpTools)


ENDLESS = {
    "one header": b"GET / HTTP/1.1\r\nX: " + b"y" * (2 * MAX_HEAD_BYTES),
    "whole header": b"GET / HTTP/1.1\r\nX: " + b"y" * (2 * MAX_HEAD_BYTES) + b"\r\n\r\n",
    "headers": b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(6000)),
    "many small headers": b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 200 + b"\r\n",
    "path": b"GET /" + b"y" * (2 * MAX_HEAD_BYTES),
}


@pytest.mark.anyio
@pytest.mark.parametrize("case", ENDLESS)
async def test_a_head_beyond_the_limit_is_refused_and_its_connection_closed(case: str) -> None:
    async with listening() as server:
        client = await server.connect()
        await client.send(ENDLESS[case])
        status, headers, _ = await client.answer()
        assert (status, headers["connection"]) == (431, "close")
        assert await client.is_closed()
        # The same holds after an answered request.
        client = await server.connect()
        assert await client.status_of() == 200
        assert await client.status_of(ENDLESS[case]) == 431


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_large_head_of_ordinary_headers_is_accepted(protocol: type[Guard]) -> None:
    head = b"".join(b"X-%d: %s\r\n" % (i, b"y" * 250) for i in range(100))
    async with listening(protocol) as server:
        client = await server.connect()
        for _ in range(3):
            assert await client.status_of(HEALTH[:-2] + head + b"\r\n") == 200


@pytest.mark.anyio
async def test_trailers_larger_than_a_head_end_the_connection() -> None:
    long = b"y" * (2 * MAX_HEAD_BYTES)
    for content in (
        CHUNKED + b"1\r\n \r\n0\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(6000)),
        CHUNKED + b"1\r\n \r\n0\r\nX: " + long,
        CHUNKED + b"1;x=" + long,
        CHUNKED + b"1\r\n \r\n" * 20_000,
    ):
        async with listening() as server:
            client = await server.connect()
            await client.send(content)
            assert await client.is_closed()


@pytest.mark.anyio
async def test_a_trailer_adds_no_header_to_the_request(tmp_path: Path) -> None:
    keys = Keys(write_keys(tmp_path / "keys.json", entry("judge")))
    bearer = f"Authorization: Bearer {key_of('judge')}\r\n".encode()
    async with listening(keys=keys) as server:
        client = await server.connect()
        chunk = b"%x\r\n%b\r\n0\r\n" % (len(PLAIN), PLAIN)
        assert await client.status_of(CHUNKED + chunk + bearer + b"\r\n") == 401


@pytest.mark.anyio
async def test_a_body_in_many_chunks_is_read() -> None:
    async with listening() as server:
        server.engine.go_on.set()
        client = await server.connect()
        # Chunks of 80 bytes; then a short body in chunks of one byte.
        spaced = PLAIN[:-1] + b" " * 200_000 + b"}"
        for size, body in ((80, spaced), (1, PLAIN)):
            parts = (body[i : i + size] for i in range(0, len(body), size))
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
            head = CHUNKED[:-2] + b"Content-Type: application/json\r\n\r\n"
            assert await client.status_of(head + chunks + b"0\r\n\r\n") == 200


@pytest.mark.anyio
async def test_a_few_pipelined_requests_are_answered_in_order() -> None:
    async with listening() as server:
        client = await server.connect()
        unknown = HEALTH.replace(b"/healthz", b"/nothing")
        await client.send(HEALTH + unknown * (MAX_PIPELINED - 1) + HEALTH)
        statuses = [(await client.answer())[0] for _ in range(MAX_PIPELINED + 1)]
        assert statuses == [200, *[404] * (MAX_PIPELINED - 1), 200]
        assert await client.status_of() == 200


@pytest.mark.anyio
async def test_deeper_pipelining_ends_the_connection() -> None:
    async with listening() as server:
        client = await server.connect()
        await client.send(HEALTH * 10_000)
        assert await client.is_closed()
        other = await server.connect()
        assert await other.status_of() == 200


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTTP/1.1\r\nHost: lo", b"\r\n"])
async def test_a_connection_without_a_whole_head_is_closed_in_time(
    protocol: type[Guard], begun: bytes
) -> None:
    async with listening(protocol) as server:
        slow = await server.connect()
        await slow.send(begun)
        used = await server.connect()
        assert await used.status_of() == 200
        server.pass_time(HEAD_S - 0.1)
        # The timeout of a later request begins with its first byte.
        await used.send(begun or HEALTH[:4])
        assert await (await server.connect()).status_of() == 200
        assert slow.is_open
        server.pass_time(0.2)
        assert await slow.is_closed()
        assert used.is_open
        server.pass_time(HEAD_S)
        assert await used.is_closed()


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_request_in_flight_has_no_head_timeout(
    protocol: type[Guard],
) -> None:
    async with listening(protocol, limit=1) as server:
        client = await server.connect()
        await client.send(judging())
        await server.engine.begun.wait()
        server.pass_time(1000 * HEAD_S)
        crowd = await server.connect()
        assert await crowd.status_of() == 200
        server.engine.go_on.set()
        assert (await client.answer())[0] == 200


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_full_server_closes_the_connection_that_waited_longest(
    protocol: type[Guard],
) -> None:
    async with listening(protocol, limit=4) as server:
        idle = await server.connect()
        assert await idle.status_of() == 200
        silent = [await server.connect() for _ in range(3)]
        server.clock.now += HEAD_GRACE_S
        for each in silent:
            newcomer = await server.connect()
            assert await newcomer.status_of() == 200
            assert await each.is_closed()
        assert await idle.status_of() == 200
        # Now all connections are idle, and `idle` was used last.
        assert await (await server.connect()).status_of() == 200
        assert len(server.connections) == 4
        assert await idle.status_of() == 200


@pytest.mark.anyio
async def test_an_idle_connection_is_closed_before_a_new_one() -> None:
    async with listening(limit=2) as server:
        idle = await server.connect()
        assert await idle.status_of() == 200
        first = await server.connect()
        second = await server.connect()
        assert await idle.is_closed()
        assert await first.status_of() == await second.status_of() == 200


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_server_whose_connections_are_all_busy_refuses_and_stays_healthy(
    protocol: type[Guard],
) -> None:
    async with listening(protocol, limit=2) as server:
        busy = [await server.connect() for _ in range(2)]
        for each in busy:
            await each.send(judging())
        await until(lambda: len(server.connections._busy) == 2)
        refused = await server.connect()
        await refused.send(judging())
        status, headers, body = await refused.answer()
        assert (status, headers["connection"]) == (429, "close")
        assert json.loads(body)["code"] == "overloaded"
        assert "SCOPE_MAX_CONNECTIONS" in json.loads(body)["detail"]
        assert await (await server.connect()).status_of() == 200
        server.engine.go_on.set()
        for each in busy:
            assert (await each.answer())[0] == 200
        assert await (await server.connect()).status_of(judging()) == 200


@pytest.mark.anyio
async def test_incomplete_heads_share_a_limit_and_the_oldest_makes_room() -> None:
    part = HEALTH[:-2] + b"X: " + b"y" * (MAX_HEAD_BYTES - 1000)
    count = MAX_HELD_BYTES // len(part) + 2
    async with listening(limit=2 * count) as server:
        clients = []
        for _ in range(count):
            clients.append(await server.connect())
            await clients[-1].send(part)
        assert await clients[0].is_closed()
        assert await clients[-1].status_of(b"\r\n\r\n") == 200
        assert server.connections._held_bytes <= MAX_HELD_BYTES
        for client in clients:
            client.writer.close()
        await until(lambda: not len(server.connections))
        assert server.connections._held_bytes == 0


def _has_dropped(protocol: Any) -> bool:
    return bool(protocol._dropped_bytes or protocol.transport.is_closing())


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_refused_body_is_dropped_up_to_a_limit(
    protocol: type[Guard],
) -> None:
    async with listening(protocol) as server:
        server.engine.go_on.set()
        client = await server.connect()
        assert await client.status_of(judging(b"x" * 2_000_000, path="/nowhere")) == 404
        if protocol is GuardedHttpTools:
            assert await client.status_of(judging()) == 200
        # A body above the limit, and a body that never arrives.
        for length, sent in ((10**9, 2 * MAX_DROPPED_BYTES), (10**9, 100)):
            client = await server.connect()
            head = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
            assert await client.status_of(head % length) == 404
            refused: Any = [*server.connections._idle][-1]
            await client.send(b"x" * sent)
            await until(partial(_has_dropped, refused))
            server.pass_time(HEAD_S)
            assert await client.is_closed()


@pytest.mark.anyio
async def test_a_connection_with_expect_100_continue_is_closed_after_a_refusal() -> None:
    async with listening() as server:
        client = await server.connect()
        head = b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n"
        await client.send(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\n" + head)
        status, headers, _ = await client.answer()
        assert (status, headers["connection"]) == (404, "close")
        assert await client.is_closed()


@pytest.mark.anyio
async def test_a_client_that_never_reads_its_answer_is_closed() -> None:
    async with listening() as server:
        client = await server.connect()
        protocol: Any = next(iter(server.connections._new))
        protocol.transport.set_write_buffer_limits(high=1000)
        await client.send(HEALTH)
        await client.answer()
        # More than the buffers at both ends of a local connection.
        protocol.transport.write(b"x" * 30_000_000)
        assert protocol.unsent_bytes > 0
        server.pass_time(READ_GRACE_S)
        assert not protocol.transport.is_closing()
        server.pass_time(30_000_000 / 1000)
        assert protocol.transport.is_closing()
        await until(lambda: not len(server.connections))


@pytest.mark.anyio
async def test_an_upgrade_is_answered_like_a_plain_request() -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    async with listening() as server:
        client = await server.connect()
        assert await client.status_of(HEALTH[:-2] + upgrade + b"\r\n") == 200
        assert await client.is_closed()


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
