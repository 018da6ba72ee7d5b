"""Two replicas compared with one, through haproxy: comparisons a second."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from app.wiring.engines import DEMO_FOLDER
from tests.benchmarks.processes import HttpServer, Worker, serve
from tests.drills.load.material import calibrate_body
from tests.drills.replicas.fleet import haproxy
from tests.drills.replicas.slow_judge import NAME
from tests.integration.processes.server import free_port
from tests.redis_server import RedisServer

_BATCH = 64
# For each replica.
_CONNECTIONS = 4
# Enough labels for a feasible alpha = 0.1, so that the judge accepts some pairs and refuses others.
_EXAMPLES = range(50)
# Sample s uses the comparison numbers from s times this value on, so that no comparison repeats.
_APART = 10_000_000


class Rates(NamedTuple):
    """Comparisons a second of one replica and of two, by repeat."""

    one: list[float]
    two: list[float]


class Bench(NamedTuple):
    """Two replicas on one Redis, haproxy in front of one of them and of both, a load generator.

    Args:
        load: Load generator; it is not pinned.
        fronts: Number of replicas -> the haproxy in front of them.
        batches: Batches in a sample for each replica.
    """

    load: Worker
    fronts: dict[int, HttpServer]
    batches: int

    def rate(self, replicas: int, number: int) -> float:
        """Takes the sample of this number."""
        requests = self.batches * replicas
        answer = self.load.ask(
            port=self.fronts[replicas].port,
            path="/judge/batch",
            first=number * _APART,
            requests=requests,
            batch=_BATCH,
            connections=_CONNECTIONS * replicas,
        )
        return float(requests * _BATCH / answer["seconds"])


def in_turns(bench: Bench, repeats: int) -> Rates:
    """One replica and two in turns; the first round is discarded."""
    found = [
        [bench.rate(replicas, 2 * repeat + replicas) for replicas in (1, 2)]
        for repeat in range(repeats + 1)
    ]
    return Rates(*map(list, zip(*found[1:], strict=True)))


@contextmanager
def computing(folder: Path, batches: int) -> Iterator[Bench]:
    """Replicas with the scripted engine, each on a core: all their work is the service's own."""
    with _bench(folder, batches, [{"engine": "scripted"}] * 2, pinned=True) as bench:
        yield bench


@contextmanager
def waiting(folder: Path, batches: int, each_s: float) -> Iterator[Bench]:
    """Replicas whose judges work elsewhere: each asks an HTTP server of its own."""
    with ExitStack() as stack:
        settings = []
        for port in (free_port(), free_port()):
            module = "tests.drills.replicas.slow_judge"
            command = [sys.executable, "-m", module, str(port), str(each_s)]
            judge = HttpServer(
                folder, f"judge-{port}", command, {}, port=port, ready_path="/v1/models"
            )
            stack.enter_context(judge)
            settings.append(
                {
                    "engine": "openai",
                    "openai_urls": f"{judge.url}/v1",
                    "model": NAME,
                    "tokenizer": str(DEMO_FOLDER / "model"),
                }
            )
        yield stack.enter_context(_bench(folder, batches, settings, pinned=False))


@contextmanager
def _bench(
    folder: Path, batches: int, settings: Sequence[dict[str, str]], *, pinned: bool
) -> Iterator[Bench]:
    (folder / "redis").mkdir()
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer(folder / "redis"))
        services = [
            stack.enter_context(serve(folder, {"store_url": redis.url, **own})) for own in settings
        ]
        for start in _EXAMPLES[::10]:
            httpx.post(
                f"{services[0].url}/calibrate",
                content=calibrate_body("default", range(start, start + 10)),
                headers={"Content-Type": "application/json"},
                timeout=120,
            ).raise_for_status()
        for service, core in zip(services, sorted(os.sched_getaffinity(0)), strict=False):
            # Later threads inherit the binding.
            for thread in Path(f"/proc/{service.popen.pid}/task").iterdir() if pinned else ():
                os.sched_setaffinity(int(thread.name), {core})
        fronts = {
            n: stack.enter_context(
                haproxy(folder, free_port(), [each.port for each in services[:n]])
            )
            for n in (1, 2)
        }
        yield Bench(stack.enter_context(Worker(folder, "load", "load", {})), fronts, batches)
