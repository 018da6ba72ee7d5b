"""A TCP proxy that cuts a connection at a chosen byte."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple


class Cut(NamedTuple):
    """The place where the proxy cuts the first connection.

    Args:
        sent: Cut after so many bytes to the server; None for no cut.
        answered: Cut after so many bytes from the server; None for no cut.
    """

    sent: int | None = None
    answered: int | None = None


class CuttingProxy:
    """The port of the proxy, and the bytes that passed through the first connection."""

    def __init__(self, cut: Cut) -> None:
        self.cut = cut
        self.sent = bytearray()
        self.answered = bytearray()
        self.port = 0


async def _pipe(
    source: asyncio.StreamReader,
    target: asyncio.StreamWriter,
    passed: bytearray,
    limit: int | None,
) -> None:
    """Forwards bytes up to the limit and then returns."""
    while limit is None or len(passed) < limit:
        data = await source.read(65536 if limit is None else limit - len(passed))
        if not data:
            return
        passed += data
        target.write(data)
        await target.drain()


@asynccontextmanager
async def cutting_proxy(port: int, cut: Cut) -> AsyncIterator[CuttingProxy]:
    """Starts a proxy of the server on `port`; only the first connection is cut.

    Later connections are not cut, so that the test can check the answer of a client that retries.
    """
    proxy = CuttingProxy(cut)

    async def serve(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bool
    ) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
        sent, answered, ends = (
            (proxy.sent, proxy.answered, cut) if first else (bytearray(), bytearray(), Cut())
        )
        ways = [
            asyncio.create_task(_pipe(reader, to_writer, sent, ends.sent)),
            asyncio.create_task(_pipe(to_reader, writer, answered, ends.answered)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in (writer, to_writer):
            end.close()
        await asyncio.gather(writer.wait_closed(), to_writer.wait_closed(), return_exceptions=True)

    connections: list[asyncio.Task[None]] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.ensure_future(serve(reader, writer, not connections)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await asyncio.gather(*connections)
