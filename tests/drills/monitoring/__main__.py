"""`make monitoring`: a real Prometheus scrapes the service; prints alerts, draws the dashboard.

There is traffic of every kind and a calibration that grows. Halfway, the store is unreachable for a
twelfth of the time.
"""

import argparse
import contextlib
import math
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.processes import HttpServer, serve
from tests.drills.monitoring import dashboard
from tests.drills.monitoring.picture import Span, draw
from tests.drills.monitoring.prometheus import Prometheus
from tests.drills.monitoring.traffic import Material, MixedTraffic, demo_material, scripted_material
from tests.redis_server import RedisServer

_CLIENTS = 4
# Longest pause of a client between two requests. One run plays one day: at noon pauses are shorter.
_LONGEST_PAUSE_S = 0.25
_FIRST_EXAMPLES = 300
_SCRAPES = 80


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.drills.monitoring", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="Duration of the traffic.")
    parser.add_argument("--engine", choices=("scripted", "vllm"), default="scripted")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--picture", type=Path, default=Path("monitoring.png"))
    return parser.parse_args()


@contextmanager
def _services(
    folder: Path, store_url: str, *, engine: str, count: int
) -> Iterator[Sequence[HttpServer]]:
    with contextlib.ExitStack() as stack:
        services = []
        for i in range(count):
            place = folder / f"replica-{i}"
            place.mkdir()
            settings = {
                "engine": engine,
                "store_url": store_url,
                "max_pending": "512",
                "max_batch": "448",
                "audit_rate": "1",
            }
            services.append(stack.enter_context(serve(place, settings)))
        yield services


def _send(
    services: Sequence[HttpServer],
    material: Material,
    seed: int,
    ends: float,
    seconds: float,
    seen: Counter[int],
) -> None:
    with MixedTraffic(services[seed % len(services)].url, material, seed=seed) as traffic:
        while (now := time.monotonic()) < ends:
            seen[traffic.send_any()] += 1
            busy = math.sin(math.pi * (ends - now) / seconds)
            time.sleep(_LONGEST_PAUSE_S * (1 - 0.8 * busy))


def _traffic(
    services: Sequence[HttpServer], material: Material, redis: RedisServer, *, seconds: float
) -> Counter[int]:
    """Sends traffic; after half of the time the store is unreachable for a twelfth of the time."""
    seen: Counter[int] = Counter()
    with MixedTraffic(services[0].url, material, seed=0) as first:
        first.calibrate(material.examples[:_FIRST_EXAMPLES])
    ends = time.monotonic() + seconds
    threads = [
        threading.Thread(target=_send, args=(services, material, seed, ends, seconds, seen))
        for seed in range(_CLIENTS)
    ]
    for thread in threads:
        thread.start()
    try:
        time.sleep(seconds / 2)
        redis.stop()
        time.sleep(seconds / 12)
    finally:
        redis.start()
        for thread in threads:
            thread.join()
    return seen


def _print_rules(prometheus: Prometheus) -> None:
    rules = prometheus.rules()
    broken = [rule for rule in rules if rule["health"] != "ok"]
    print(f"{len(rules)} rules evaluated, {len(broken)} with an error")
    for rule in rules:
        if rule["type"] == "alerting":
            print(f"  {rule['state']:9} {rule['labels']['severity']:9} {rule['name']}")
    assert not broken, broken


def main() -> None:
    """Runs the drill and prints its findings."""
    given = _arguments()
    material = demo_material() if given.engine == "vllm" else scripted_material()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "redis").mkdir()
        redis = stack.enter_context(RedisServer(folder / "redis"))
        services = stack.enter_context(
            _services(folder, redis.url, engine=given.engine, count=given.replicas)
        )
        targets = [f"127.0.0.1:{service.port}" for service in services]
        # Rates cover four scrapes: over a few minutes, scrapes each second would give noisy lines.
        every_s = max(1, round(given.seconds / _SCRAPES))
        prometheus = stack.enter_context(
            Prometheus(folder / "prometheus", targets, every_s=every_s)
        )
        prometheus.wait_until(f'sum(up{{job="scope-judge"}}) == {given.replicas}')
        began = time.time()
        seen = _traffic(services, material, redis, seconds=given.seconds)
        print("answers:", ", ".join(f"{n} x {status}" for status, n in sorted(seen.items())))
        ended = time.time() - every_s
        _print_rules(prometheus)
        span = Span(began, ended, max(1.0, given.seconds / 240))
        about = (
            f"{given.replicas} x SCOPE_ENGINE={given.engine}, {given.seconds:.0f} s of mixed "
            f"traffic, the store unreachable for {given.seconds / 12:.0f} s in the middle. "
            "Drawn by tests/drills/monitoring from the dashboard's queries, not by Grafana"
        )
        empty = draw(prometheus, span, given.picture, subtitle=about)
        asked = len(list(dashboard.queries(rate_interval_s=4)))
        print(f"{len(dashboard.panels())} panels, {asked} queries; panels without data: {empty}")
        print(f"picture: {given.picture}")


if __name__ == "__main__":
    main()
