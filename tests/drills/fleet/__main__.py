"""`python -m tests.drills.fleet`: Ray Serve and bulk runs on a local cluster of two machines."""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.drills.fleet import bulk_run, serving_run
from tests.drills.fleet.ray_cluster import RayCluster
from tests.drills.fleet.serving_run import Row
from tests.redis_server import RedisServer

RUNS: dict[str, Callable[[RayCluster, RedisServer, Path], Iterator[Row]]] = {
    "serve": serving_run.run,
    "bulk": bulk_run.run,
    "demo": bulk_run.run_demo,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=RUNS)
    wanted = parser.parse_args().only
    table = Table("drill", "result", title="Ray: two machines (raylets) on this one")
    console = Console()
    begun = time.monotonic()
    # A short path, because it is part of the names of Ray's sockets.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        cluster, redis = RayCluster(folder), RedisServer(folder)
        redis.start()
        try:
            cluster.start()
            for name, run in RUNS.items():
                if wanted in (None, name):
                    redis.command("FLUSHALL")
                    for row in run(cluster, redis, folder):
                        console.print(*row, sep=": ")
                        table.add_row(*row)
        finally:
            cluster.stop()
            redis.stop()
    console.print(table)
    console.print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
