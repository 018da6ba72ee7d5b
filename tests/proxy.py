"""A TCP proxy that simulates the network: it passes, or resets every connection."""

import asyncio
import socket
import struct
from types import TracebackType
from typing import Literal, Self

Mode = Literal["pass", "reset"]

# SO_LINGER with 0 s: closing sends a reset.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    """A proxy in front of a server on 127.0.0.1.

    Args:
        target_port: Port of the server.
    """

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self._target_port = target_port
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
        try:
            if self._mode == "reset":
                return
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
            ends.append(to_writer)
            ways = [
                asyncio.ensure_future(_pump(reader, to_writer)),
                asyncio.ensure_future(_pump(to_reader, writer)),
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


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


def _reset(end: asyncio.StreamWriter) -> None:
    if not end.transport.is_closing():
        end.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE
        )
        end.transport.abort()
