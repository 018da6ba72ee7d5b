"""The surroundings of a service while a fault is caused: its store, its engine, its network."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.processes import SERVE, HttpServer, serve
from tests.drills.faults.material import Pair, scripted_pairs
from tests.drills.faults.proxy import Proxy
from tests.drills.faults.traffic import Traffic
from tests.integration.processes.server import free_port
from tests.patience import PATIENCE_S
from tests.redis_server import RedisServer

# Twice the size of Redis's first files.
_DISK_BYTES = 4 * 2**20


class Running:
    """A service under a supervisor: the process that runs at its port now.

    Args:
        folder: Folder for its log.
        settings: Settings by name without SCOPE_.
    """

    program: Sequence[str] = SERVE

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self._folder = folder
        self._settings = {"port": str(free_port()), **settings}
        self.process = serve(folder, self._settings, program=self.program)

    def start_again(self) -> None:
        """Ends the service in order, if it still runs, and starts it again at the same port."""
        self.process.stop()
        self.process = serve(self._folder, self._settings, program=self.program)


@dataclass
class Scene:
    """A running service, and its clients."""

    running: Running
    pairs: Sequence[Pair]
    judged_by: str = "faults"
    knows_judge: bool = True
    tolerance: float = 1e-9
    # Port that clients connect to, if it is not the service's own.
    front_port: int | None = None

    @property
    def service(self) -> HttpServer:
        """The service's process."""
        return self.running.process

    def traffic(self) -> Traffic:
        """The clients."""
        return Traffic(
            self.front_port or self.service.port,
            self.pairs,
            judged_by=self.judged_by,
            knows_judge=self.knows_judge,
            tolerance=self.tolerance,
        )


@asynccontextmanager
async def service(folder: Path, **settings: str) -> AsyncIterator[Running]:
    """A service with a scripted engine, unless the settings name another."""
    running = await asyncio.to_thread(Running, folder, {"engine": "scripted", **settings})
    try:
        yield running
    finally:
        await asyncio.to_thread(running.process.stop)


@dataclass
class RedisScene(Scene):
    """A service on a Redis server, optionally with a proxy between them."""

    redis: RedisServer | None = None
    replica: RedisServer | None = None
    proxy: Proxy | None = None
    # The proxy between the master and its replica.
    link: Proxy | None = None
    disk: Path | None = None
    stopped_process: int = 0

    @property
    def server(self) -> RedisServer:
        """The Redis server."""
        assert self.redis is not None
        return self.redis

    @property
    def network(self) -> Proxy:
        """The proxy in front of the Redis server."""
        assert self.proxy is not None
        return self.proxy

    async def command(self, *words: str) -> Any:
        """Redis's answer to a command."""
        return await asyncio.to_thread(self.server.command, *words)

    async def process_id(self) -> int:
        """The process id of Redis."""
        return int((await self.command("INFO", "server"))["process_id"])


@asynccontextmanager
async def redis_scene(
    folder: Path, *, through_proxy: bool = False, on_small_disk: bool = False, replica: bool = False
) -> AsyncIterator[RedisScene]:
    """A Redis that writes to disk before it answers, and a service on it."""
    async with contextlib.AsyncExitStack() as stack:
        data = folder / "redis"
        data.mkdir()
        if on_small_disk:
            stack.enter_context(small_disk(data))
        server = await stack.enter_async_context(redis_server(data))
        second = link = proxy = None
        if replica:
            (folder / "replica").mkdir()
            second = await stack.enter_async_context(redis_server(folder / "replica"))
            link = await stack.enter_async_context(Proxy(server.port))
            await replicate(link.port, second)
        if through_proxy or replica:
            proxy = await stack.enter_async_context(Proxy(server.port))
        port = proxy.port if proxy else server.port
        running = await stack.enter_async_context(
            service(folder, store_url=f"redis://127.0.0.1:{port}/0")
        )
        scene = RedisScene(running, scripted_pairs())
        scene.redis, scene.replica, scene.proxy, scene.link = server, second, proxy, link
        scene.disk = data if on_small_disk else None
        yield scene


@asynccontextmanager
async def redis_server(folder: Path) -> AsyncIterator[RedisServer]:
    """A Redis server that is ended at the end, whatever was done to it."""
    server = RedisServer(folder)
    await asyncio.to_thread(server.start)
    try:
        yield server
    finally:
        # kill works on a stopped, full or vanished Redis; it asserts if Redis never started.
        with contextlib.suppress(AssertionError):
            await asyncio.to_thread(server.kill)


async def replicate(port: int, replica: RedisServer) -> None:
    """Makes a server a replica of the one at `port`, and waits until it follows."""
    await asyncio.to_thread(replica.command, "REPLICAOF", "127.0.0.1", str(port))
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found: Any = await asyncio.to_thread(replica.command, "INFO", "replication")
            if found["master_link_status"] == "up":
                return
            await asyncio.sleep(0.1)


@dataclass
class SqliteScene(Scene):
    """A service on a SQLite file."""

    file: Path = Path()
    holder: subprocess.Popen[bytes] | None = None


@asynccontextmanager
async def sqlite_scene(folder: Path, *, on_small_disk: bool = False) -> AsyncIterator[SqliteScene]:
    """A SQLite file, optionally on a small disk of its own, and a service on it."""
    data = folder / "sqlite"
    data.mkdir()
    with contextlib.ExitStack() as stack:
        if on_small_disk:
            stack.enter_context(small_disk(data))
        file = data / "calibration.db"
        async with service(folder, store_url=f"sqlite:///{file}") as running:
            scene = SqliteScene(running, scripted_pairs(), file=file)
            try:
                yield scene
            finally:
                if scene.holder is not None:
                    scene.holder.kill()
                    scene.holder.wait()


def no_small_disk() -> str | None:
    """Why no file system can be mounted here; None if one can."""
    if os.geteuid() != 0:
        return "mounting a small disk needs root"
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True
    )
    return None if tried.returncode == 0 else "a small disk cannot be mounted here"


@contextmanager
def small_disk(folder: Path, size: int = _DISK_BYTES) -> Iterator[None]:
    """Mounts a file system of `size` bytes at `folder` while the block runs."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], check=True)
    try:
        yield
    finally:
        # -l: a process that is being killed may still have a file open.
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Fills the rest of the disk with a file."""
    with (folder / "filling").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * 4096):
            pass


def unfill(folder: Path) -> None:
    """Deletes the file that fills the disk."""
    (folder / "filling").unlink(missing_ok=True)
