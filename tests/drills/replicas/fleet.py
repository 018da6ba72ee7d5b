"""Replicas on one Redis behind haproxy, and their rolling restart.

haproxy runs deploy/haproxy/haproxy.cfg, in which only addresses are replaced.
"""

import re
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.benchmarks.processes import HttpServer
from tests.drills.load.client import figure_in
from tests.drills.load.supervised import Running
from tests.drills.running import ROOT
from tests.integration.processes.server import free_port
from tests.patience import PATIENCE_S
from tests.redis_server import RedisServer

CONFIGURATION = ROOT / "deploy" / "haproxy" / "haproxy.cfg"
_BIND = re.compile(r"^  bind (\S+)$", re.MULTILINE)
_SERVER = re.compile(r"^  server (\S+) \S+$", re.MULTILINE)
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


def configuration(port: int, replicas: Sequence[int]) -> str:
    """The shipped file, for these ports on this machine."""
    text, found = _BIND.subn(f"  bind 127.0.0.1:{port}", CONFIGURATION.read_text())
    assert found == 1, "haproxy.cfg must have exactly one `bind` line"
    lines = "\n".join(f"  server judge{i} 127.0.0.1:{at}" for i, at in enumerate(replicas, 1))
    first, *others = _SERVER.finditer(text)
    for other in reversed(others):
        text = text[: other.start()].rstrip(" ") + text[other.end() :].lstrip("\n")
    return text[: first.start()] + lines + text[first.end() :]


def haproxy(folder: Path, port: int, replicas: Sequence[int]) -> HttpServer:
    """A running haproxy in front of ready replicas."""
    file = folder / f"haproxy-{port}.cfg"
    file.write_text(configuration(port, replicas))
    program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    assert program, "This drill needs haproxy on PATH (apt: haproxy)."
    command = [program, "-f", str(file)]
    return HttpServer(folder, f"haproxy-{port}", command, {}, port=port, ready_path="/readyz")


@contextmanager
def fleet_of(folder: Path, *, replicas: int = 2, **settings: str) -> Iterator[Fleet]:
    """Starts Redis, that many replicas with a scripted judge at once, and haproxy before them."""
    (folder / "redis").mkdir()
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer(folder / "redis"))
        common = {
            "engine": "scripted",
            "store_url": redis.url,
            "drain_lag_s": DRAIN_LAG_S,
            **settings,
        }

        def started(port: int) -> Running:
            running = Running(folder, {**common, "port": str(port)})
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
