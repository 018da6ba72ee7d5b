"""`make soak`: twice the capacity for a long time, with a fault every minute.

python -m tests.drills.faults.soak --minutes 30
"""

import argparse
import asyncio
import contextlib
import math
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from tests.benchmarks.processes import HttpServer
from tests.drills.faults.client import Client
from tests.drills.faults.ledger import Ledger, Writer
from tests.drills.faults.material import scripted_pairs
from tests.drills.faults.proxy import Proxy
from tests.drills.faults.scene import RedisScene, Running, redis_server
from tests.drills.faults.soak_load import Keys, Load, Log, write_steadily
from tests.drills.faults.soak_report import progress_line, summary_of
from tests.drills.faults.store_faults import REDIS_FAULTS, bring_back
from tests.drills.faults.traffic import Judging
from tests.drills.running import DRILLS, Bar, write_json
from tests.markdown import put_between_markers

_AT_ONCE, _EACH_S = 4, 0.02
_SETTINGS = {"max_pending": "400", "timeout_s": "5", "log_level": "warning"}
_SETS = ("first", "second", "third")
_ROTATION = (
    "redis-kill",
    "redis-hang",
    "redis-restart",
    "redis-full",
    "redis-readonly",
    "network-silent",
    "network-reset",
    "redis-garbage",
)
_CAPACITY_CLIENTS = 64
_STALL_S = 4.0
_SAMPLE_S = 1.0
_NOTHING = contextlib.nullcontext()


@dataclass
class Soak:
    """One soak.

    Args:
        minutes: Duration of the load.
        every_s: Seconds from the beginning of a fault to that of the next.
        capacity_s: Seconds for which the capacity is measured beforehand.
        tell: Receives a line about the progress.
    """

    minutes: float
    every_s: float
    capacity_s: float
    tell: Callable[[str], None]
    log: Log = field(default_factory=Log)
    ledgers: dict[str, Ledger] = field(default_factory=lambda: {n: Ledger(n) for n in _SETS})
    capacity: float = 0.0
    seconds: float = 0.0
    rss_mib: list[float] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    key_noticed_s: float = 0.0
    verdicts: int = 0
    pending_at_the_end: float = math.nan
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    on_sample: Callable[[], None] = lambda: None

    async def run(self, folder: Path) -> dict[str, Any]:
        """Measures the capacity, applies twice that load through all faults, and summarises."""
        keys = Keys(folder / "keys.json")
        judge = await asyncio.to_thread(keys.add, "judge", ["judge", "metrics"])
        admin = await asyncio.to_thread(keys.add, "admin", ["judge", "calibrate", "admin"])
        async with _scene(folder, keys.file) as scene, Client(scene.service.port) as client:
            # An interrupted run is summarised from here on.
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, self.stopping.set)
            judging = Judging(
                client, self.ledgers.values(), self.log.answer, self.log.note, key=judge
            )
            load = Load(judging, self.log, _SETS)
            writers = [
                Writer(client, ledger, self.log.answer, pause_s=0.2, key=admin)
                for ledger in self.ledgers.values()
            ]
            await self._apply(load, scene, client, writers, keys)
            self.tell("posting everything again")
            for writer in writers:
                await writer.audit()
            pending = await client.figure("scope_pending_comparisons", key=judge)
            self.verdicts, self.pending_at_the_end = judging.verdicts, pending
        self.key_noticed_s = keys.slowest_s
        return summary_of(self)

    async def _apply(
        self,
        load: Load,
        scene: RedisScene,
        client: Client,
        writers: Sequence[Writer],
        keys: Keys,
    ) -> None:
        loop = asyncio.get_running_loop()
        firsts = [asyncio.Event() for _ in writers]
        writing = [
            asyncio.ensure_future(
                write_steadily(writer, random.Random(i), self.stopping, first=firsts[i])
            )
            for i, writer in enumerate(writers)
        ]
        stop = asyncio.ensure_future(self.stopping.wait())
        there = [asyncio.ensure_future(first.wait()) for first in firsts]
        while not self.stopping.is_set() and not all(each.done() for each in there):
            await asyncio.wait([*there, stop], timeout=1)
        self.tell("measuring the capacity")
        self.capacity = await self._measured(load)
        began = loop.time()
        others = [
            asyncio.ensure_future(each)
            for each in (
                load.at_rate(2 * self.capacity, self.stopping),
                keys.come_and_go(client, self.log, self.stopping),
                self._sample(scene.service),
                self._tell_steadily(began),
            )
        ]
        causing = asyncio.ensure_future(self._cause_faults(scene))
        everything = [*writing, *others, causing]
        with contextlib.suppress(TimeoutError):
            # None of these tasks may end early: one that does has failed.
            async with asyncio.timeout(60 * self.minutes):
                await asyncio.wait([stop, *everything], return_when=asyncio.FIRST_COMPLETED)
        self.stopping.set()
        self.seconds = loop.time() - began
        self.tell("waiting for the requests in flight")
        await asyncio.wait([causing])
        finishing = asyncio.gather(*everything, return_exceptions=True)
        while not finishing.done():
            # Ctrl-C in a terminal ends Redis too, and writers try until they are acknowledged.
            await bring_back(scene)
            await asyncio.wait([finishing], timeout=1)
        for found in finishing.result():
            if isinstance(found, BaseException):
                self.log.note(f"a client ended: {found!r}")

    async def _measured(self, load: Load) -> float:
        """Comparisons a second when each client waits for its answer."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        outcomes = Counter[int]()

        async def ask() -> None:
            while loop.time() - began < self.capacity_s and not self.stopping.is_set():
                answer = await load.single()
                outcomes[answer.status] += 1

        await asyncio.gather(*(ask() for _ in range(_CAPACITY_CLIENTS)))
        return outcomes[200] / (loop.time() - began)

    async def _sample(self, service: HttpServer) -> None:
        while not self.stopping.is_set():
            if service.popen.poll() is not None:
                raise RuntimeError(f"the service ended with {service.popen.returncode}")
            self.rss_mib.append(service.rss_bytes() / 2**20)
            self.on_sample()
            await asyncio.sleep(_SAMPLE_S)

    async def _cause_faults(self, scene: RedisScene) -> None:
        known = {fault.name: fault for fault in REDIS_FAULTS}
        rng, loop = random.Random(11), asyncio.get_running_loop()
        began = loop.time()
        for i in range(sys.maxsize):
            await _pause(self.stopping, began + (i + 0.5) * self.every_s - loop.time())
            if self.stopping.is_set():
                return
            name = (*_ROTATION, "service-stall")[i % (len(_ROTATION) + 1)]
            seconds = min(rng.uniform(5, 20), self.every_s / 3)
            self.faults.append({"at_s": loop.time() - began, "name": name, "seconds": seconds})
            if name == "service-stall":
                await self._held(_stall, _go_on, scene, min(seconds, _STALL_S))
            else:
                await self._held(known[name].cause, known[name].heal, scene, seconds)

    async def _held(
        self,
        cause: Callable[[RedisScene], Awaitable[None]],
        heal: Callable[[RedisScene], Awaitable[None]],
        scene: RedisScene,
        seconds: float,
    ) -> None:
        await cause(scene)
        try:
            await _pause(self.stopping, seconds)
        finally:
            with contextlib.suppress(redis.RedisError) if self.stopping.is_set() else _NOTHING:
                await heal(scene)

    async def _tell_steadily(self, began: float) -> None:
        loop = asyncio.get_running_loop()
        while not self.stopping.is_set():
            self.tell(progress_line(self, loop.time() - began))
            await asyncio.sleep(1)


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), max(0.0, seconds))


async def _stall(scene: RedisScene) -> None:
    os.kill(scene.service.popen.pid, signal.SIGSTOP)


async def _go_on(scene: RedisScene) -> None:
    os.kill(scene.service.popen.pid, signal.SIGCONT)


class SlowService(Running):
    """The service with a judge of a known capacity."""

    program = ("-m", "tests.drills.faults.slow_service", str(_AT_ONCE), str(_EACH_S))


@asynccontextmanager
async def _scene(folder: Path, keys: Path) -> AsyncIterator[RedisScene]:
    """A service of a known capacity, with keys, and a proxy between it and its Redis."""
    (folder / "redis").mkdir()
    async with redis_server(folder / "redis") as server, Proxy(server.port) as proxy:
        settings = {
            **_SETTINGS,
            "engine": "scripted",
            "store_url": f"redis://127.0.0.1:{proxy.port}/0",
            "api_keys_file": str(keys),
        }
        service = await asyncio.to_thread(SlowService, folder, settings)
        try:
            scene = RedisScene(service, scripted_pairs())
            scene.redis, scene.proxy = server, proxy
            yield scene
        finally:
            await asyncio.to_thread(service.process.stop)


def main(arguments: Sequence[str] | None = None) -> None:
    given = _arguments(arguments)
    folder = Path(tempfile.mkdtemp(prefix="scope-judge-soak-"))
    with Bar(60 * given.minutes) as bar:

        async def run() -> dict[str, Any]:
            # Created here because its event belongs to the event loop.
            soak = Soak(given.minutes, given.every, given.capacity_seconds, bar.stage)
            soak.on_sample = lambda: bar.step(_SAMPLE_S)
            return await soak.run(folder)

        summary = asyncio.run(run())
    for line in summary["lines"]:
        print(line)
    print(f"logs in {folder}")
    if given.write:
        lines = "\n".join(f"- {line}" for line in summary["lines"])
        put_between_markers("soak", lines, DRILLS)
        print(f"written to {write_json('soak', summary)} and {DRILLS}")
    sys.exit(1 if summary["wrong"] else 0)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between faults")
    parser.add_argument("--capacity-seconds", type=float, default=20.0)
    parser.add_argument(
        "--write",
        action="store_true",
        help="write docs/measured/soak.json and docs/measured/drills.md",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
