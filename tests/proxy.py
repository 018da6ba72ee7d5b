"""A TCP proxy that simulates the network: it passes, resets connections, or cuts one at a byte."""

import asyncio
import socket
import struct
from types import TracebackType
from typing import Literal, NamedTuple, Self

Mode = Literal["pass", "reset"]

# SO_LINGER with 0 s: closing sends a reset.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Cut(NamedTuple):
    """The place where the proxy cuts the first connection.

    Args:
        sent: Cut after so many bytes to the server; None for no cut.
        answered: Cut after so many bytes from the server; None for no cut.
    """

    sent: int | None = None
    answered: int | None = None


class Proxy:
    """A proxy in front of a server on 127.0.0.1.

    Args:
        target_port: Port of the server.
        cut: The place where the first connection ends. Later ones are not cut, so that a test can
            check the answer of a client that retries.
    """

    def __init__(self, target_port: int, cut: Cut = Cut()) -> None:  # noqa: B008
        self.port = 0
        # The bytes that passed through the first connection.
        self.sent, self.answered = bytearray(), bytearray()
        self._target_port = target_port
        self._cut: Cut | None = cut
        self._mode: Mode = "pass"
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._open)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._open, return_exceptions=True)

    def behave(self, mode: Mode) -> None:
        """Changes the mode."""
        self._mode = mode
        if mode == "reset":
            self.cut()

    def cut(self) -> None:
        """Resets every connection."""
        for ends in self._open.values():
            for end in ends:
                _reset(end)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        ends = self._open[task] = [writer]
        sent, answered, cut = bytearray(), bytearray(), Cut()
        if self._cut is not None:
            sent, answered, cut, self._cut = self.sent, self.answered, self._cut, None
        try:
            if self._mode == "reset":
                return
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
            ends.append(to_writer)
            ways = [
                asyncio.ensure_future(_pump(reader, to_writer, sent, cut.sent)),
                asyncio.ensure_future(_pump(to_reader, writer, answered, cut.answered)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            # The server is down: the reset below informs the client.
            return
        finally:
            for end in ends:
                _reset(end)
            del self._open[task]


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passed: bytearray, most: int | None
) -> None:
    """Forwards bytes up to a limit."""
    while most is None or len(passed) < most:
        data = await reader.read(65536 if most is None else most - len(passed))
        if not data:
            return
        passed += data
        writer.write(data)
        await writer.drain()


def _reset(end: asyncio.StreamWriter) -> None:
    if not end.transport.is_closing():
        end.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE
        )
        end.transport.abort()
