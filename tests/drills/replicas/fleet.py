"""Replicas of the service on one Redis behind haproxy, and their rolling restart."""

import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.benchmarks.processes import HttpServer
from tests.drills.faults.scene import Running
from tests.drills.replicas.front import haproxy
from tests.integration.processes.server import free_port
from tests.patience import PATIENCE_S
from tests.redis_server import RedisServer

# More than two of the proxy's checks take: `inter` and `fastinter` of haproxy.cfg.
DRAIN_LAG_S = "1.5"


@dataclass(frozen=True)
class Fleet:
    """Replicas that share one Redis.

    Args:
        redis: The Redis server.
        replicas: The replicas, each under a supervisor.
        front: The haproxy in front of them.
    """

    redis: RedisServer
    replicas: Sequence[Running]
    front: HttpServer

    @property
    def ports(self) -> list[int]:
        """The ports of the replicas."""
        return [each.process.port for each in self.replicas]


@contextmanager
def fleet_of(folder: Path, *, replicas: int = 2, **settings: str) -> Iterator[Fleet]:
    """Starts Redis, that many replicas with a scripted judge at once, and haproxy before them."""
    (folder / "redis").mkdir()
    redis = RedisServer(folder / "redis")
    with ExitStack() as stack:
        redis.start()
        stack.callback(redis.stop)
        given = {
            "engine": "scripted",
            "store_url": redis.url,
            "drain_lag_s": DRAIN_LAG_S,
            **settings,
        }

        def started(port: int) -> Running:
            running = Running(folder, {**given, "port": str(port)})
            stack.callback(lambda: running.process.stop())
            # The stack calls these first: all replicas end at once, and none waits for another.
            stack.callback(lambda: running.process.popen.send_signal(signal.SIGINT))
            return running

        with ThreadPoolExecutor(replicas) as threads:
            running = list(threads.map(started, [free_port() for _ in range(replicas)]))
        front = stack.enter_context(
            haproxy(folder, free_port(), [each.process.port for each in running])
        )
        yield Fleet(redis, running, front)


def restart_each(replicas: Sequence[Running]) -> None:
    """Restarts the replicas one after the other as a deployment does; there must be traffic.

    Each replica is ended with SIGTERM and started again at its port. The next replica follows when
    the new process has served clients.
    """
    for each in replicas:
        each.start_again()
        deadline = time.monotonic() + PATIENCE_S
        while not _has_judged(each.process):
            assert time.monotonic() < deadline, "no request reached a restarted replica"
            time.sleep(0.02)


def _has_judged(service: HttpServer) -> bool:
    text = httpx.get(f"{service.url}/metrics", timeout=PATIENCE_S).text
    return figure_in(text, "scope_judgments_total") > 0


def figure_in(metrics: str, name: str, label: str = "") -> float:
    """Sum of a metric's samples that have this text among their labels."""
    return sum(
        float(line.rpartition(" ")[2])
        for line in metrics.splitlines()
        if line.startswith((f"{name}{{", f"{name} ")) and label in line
    )
