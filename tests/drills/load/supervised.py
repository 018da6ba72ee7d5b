"""A service under a supervisor, which starts it again at its port."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.benchmarks.processes import serve
from tests.integration.processes.server import free_port


class Running:
    """The process that runs at the port of a service now.

    Args:
        folder: Folder for its log.
        settings: Settings by name without SCOPE_.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self._folder = folder
        self._settings = {"port": str(free_port()), **settings}
        self.process = serve(folder, self._settings)

    def start_again(self) -> None:
        """Ends the service in order, if it still runs, and starts it again at the same port."""
        self.process.stop()
        self.process = serve(self._folder, self._settings)


@asynccontextmanager
async def service(folder: Path, **settings: str) -> AsyncIterator[Running]:
    """A service with a scripted engine, unless the settings name another."""
    running = await asyncio.to_thread(Running, folder, {"engine": "scripted", **settings})
    try:
        yield running
    finally:
        await asyncio.to_thread(running.process.stop)
