"""Replicas on one Redis behind haproxy with deploy/haproxy/haproxy.cfg, and a rolling restart.

`make replicas` restarts for twenty seconds and prints what clients saw.
"""

import argparse
import asyncio
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from app.api.access import ROLES
from tests.integration.processes.server import Server
from tests.patience import wait_until
from tests.programs import HttpServer, free_port
from tests.redis_server import RedisServer
from tests.traffic import Traffic, figure_in
from tests.unit.api.keyring import entry, header_of, write_keys

CONFIGURATION = Path(__file__).parents[3] / "deploy" / "haproxy" / "haproxy.cfg"
_SERVERS = re.compile(r"(?:^  server \S+ \S+\n)+", re.MULTILINE)
# More than two of the proxy's checks take: `inter` and `fastinter` of haproxy.cfg.
_DRAIN_LAG_S = "1.5"
# "200 stale" is allowed because a machine that starts services may hold Redis up for the quarter of
# a second that a judgment waits for Redis.
_GOOD = {"200", "200 stale", "200 ready", "200 degraded"}


class Fleet(NamedTuple):
    """Redis, the replicas on it, and the haproxy in front of them."""

    redis: RedisServer
    replicas: Sequence[Server]
    front: HttpServer


def haproxy(folder: Path, replicas: Sequence[int]) -> HttpServer:
    """A haproxy in front of ready replicas; only addresses of the file are replaced."""
    port = free_port()
    text = CONFIGURATION.read_text()
    text, binds = re.subn(r"^  bind \S+$", f"  bind 127.0.0.1:{port}", text, flags=re.MULTILINE)
    lines = [f"  server judge{i} 127.0.0.1:{at}\n" for i, at in enumerate(replicas, 1)]
    text, servers = _SERVERS.subn("".join(lines), text)
    assert (binds, servers) == (1, 1), "haproxy.cfg has one `bind` line and its servers in a row"
    file = folder / f"haproxy-{port}.cfg"
    file.write_text(text)
    program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    assert program, "This test needs haproxy on PATH (apt: haproxy)."
    command = [program, "-f", str(file)]
    return HttpServer(folder, f"haproxy-{port}", command, port=port, ready_path="/readyz")


def replica(folder: Path, redis: RedisServer, **settings: str) -> Server:
    """A service with a scripted judge on this Redis, not yet started."""
    folder.mkdir()
    common = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": redis.url}
    # Without keys, a service answers no request that a proxy passes on.
    common["SCOPE_API_KEYS_FILE"] = str(write_keys(folder / "keys.json", entry("fleet", ROLES)))
    return Server(folder, {**common, "SCOPE_DRAIN_LAG_S": _DRAIN_LAG_S, **settings})


@contextmanager
def fleet_of(folder: Path) -> Iterator[Fleet]:
    """Starts Redis, two replicas, and haproxy before them."""
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer(folder))
        replicas = [stack.enter_context(replica(folder / name, redis)) for name in ("one", "other")]
        # Called first: the replicas end at once, and none waits for the proxy.
        for each in replicas:
            stack.callback(each.send_signal, signal.SIGINT)
        front = stack.enter_context(haproxy(folder, [each.port for each in replicas]))
        yield Fleet(redis, replicas, front)


def _restart_each(replicas: Sequence[Server]) -> None:
    """Ends each replica with SIGTERM and starts it again; the next follows when it has judged."""
    for each in replicas:
        each.stop()
        each.start()
        wait_until(
            lambda: figure_in(
                each.client.get("/metrics", headers=header_of("fleet")).text,  # noqa: B023
                "scope_judgments_total",
            )
        )


async def rolling_restart(fleet: Fleet, *, seconds: float = 0.0, batch_clients: int = 2) -> Traffic:
    """Restarts every replica once, and again until the time is over; returns the traffic."""
    loop = asyncio.get_running_loop()
    async with Traffic(fleet.front.port, batch_clients=batch_clients) as traffic:
        ends = loop.time() + seconds
        while True:
            await asyncio.to_thread(_restart_each, fleet.replicas)
            if loop.time() >= ends:
                break
        await traffic.stop()
        await traffic.check_set()
    return traffic


def failures(traffic: Traffic) -> Counter[tuple[str, str]]:
    """Route and outcome of each request without a good answer."""
    found = ((kind, answer.outcome) for kind, answer in traffic.answers)
    return Counter(each for each in found if each[1] not in _GOOD)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make replicas", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="scope-judge-replicas-") as folder:
        with fleet_of(Path(folder)) as fleet:
            traffic = asyncio.run(rolling_restart(fleet, seconds=seconds, batch_clients=4))
        failed = failures(traffic)
        print(
            f"{failed.total()} of {len(traffic.answers):,} requests failed, {traffic.verdicts:,} "
            f"verdicts checked, of {traffic.examples:,} acknowledged examples and all else "
            f"{len(traffic.wrong)} faults",
            *failed.items(),
            *traffic.wrong[:20],
            sep="\n",
        )
    sys.exit(bool(failed or traffic.wrong))


if __name__ == "__main__":
    main()
