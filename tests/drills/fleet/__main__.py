"""`python -m tests.drills.fleet`: Ray Serve and bulk runs on a local cluster of two machines."""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.drills.fleet import bulk_run, serving_run
from tests.drills.fleet.ray_cluster import RayCluster
from tests.drills.fleet.serving_run import Row
from tests.drills.running import add_only
from tests.redis_server import RedisServer

RUNS: dict[str, Callable[[RayCluster, RedisServer, Path], Iterator[Row]]] = {
    "serve": serving_run.run,
    "bulk": bulk_run.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_only(parser, RUNS)
    names = parser.parse_args().only
    begun = time.monotonic()
    # A short path, because it is part of the names of Ray's sockets.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        with RedisServer(folder) as redis, RayCluster(folder) as cluster:
            for name in names:
                redis.command("FLUSHALL")
                for row in RUNS[name](cluster, redis, folder):
                    print(*row, sep=": ", flush=True)
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
