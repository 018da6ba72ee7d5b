"""Two replicas compared with one: comparisons a second, and their CPU seconds by process."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx

from app.wiring.engines import DEMO_FOLDER
from tests.benchmarks.processes import HttpServer, Process, Worker, serve
from tests.drills.load.material import calibrate_body
from tests.drills.replicas.fleet import haproxy
from tests.drills.replicas.slow_judge import NAME
from tests.integration.processes.server import free_port
from tests.redis_server import RedisServer

Way = Literal["direct", "haproxy"]

_BATCH = 64
_CONNECTIONS = 4
# Enough labels for a feasible alpha = 0.1, so that the judge accepts some pairs and refuses others.
_EXAMPLES = range(50)
# Sample s uses the comparison numbers from s times this value on, so that no comparison repeats.
_APART = 10_000_000


class Sample(NamedTuple):
    """One measurement.

    Args:
        replicas: Number of replicas that requests go to.
        way: Way of the requests.
        rate: Comparisons a second.
        cpu_s: CPU seconds by process: replica1, replica2, generator, haproxy, redis, judges.
        seconds: Duration of the measurement.
        others_cores: Cores that all other programs on this machine used meanwhile.
        per_1000_s: CPU seconds of the replicas for each 1,000 comparisons.
    """

    replicas: int
    way: Way
    rate: float
    cpu_s: dict[str, float]
    seconds: float
    others_cores: float
    per_1000_s: float


@dataclass
class Bench:
    """Two replicas on one Redis, haproxy in front of one of them and of both, load generators.

    Args:
        replicas: The replicas; each is pinned to a core of its own if they compute.
        loads: Load generators, one for each replica; they are not pinned.
        fronts: Number of replicas -> the haproxy in front of them.
        redis: The Redis of all replicas.
        judges: Servers that the replicas ask, if they do not judge themselves.
        batches: Batches in a sample for each replica.
    """

    replicas: Sequence[HttpServer]
    loads: Sequence[Worker]
    fronts: dict[int, HttpServer]
    redis: RedisServer
    judges: Sequence[Process]
    batches: int
    _taken: int = 0

    def sample(self, replicas: int, way: Way) -> Sample:
        """Takes one sample."""
        self._taken += 1
        if way == "direct":
            ports = [each.port for each in self.replicas[:replicas]]
            connections = _CONNECTIONS
        else:
            # One generator with as many concurrent requests.
            ports = [self.fronts[replicas].port]
            connections = _CONNECTIONS * replicas
        batches = self.batches * replicas // len(ports)
        before, busy = self._cpu_s(), _busy_s()
        began = time.perf_counter()
        with ThreadPoolExecutor(len(ports)) as threads:
            asked = [
                threads.submit(
                    load.ask,
                    port=port,
                    path="/judge/batch",
                    first=(2 * self._taken + i) * _APART,
                    requests=batches,
                    batch=_BATCH,
                    connections=connections,
                )
                for i, (load, port) in enumerate(zip(self.loads, ports, strict=False))
            ]
            answers = [each.result() for each in asked]
        whole = time.perf_counter() - began
        # The time until the last generator is done, without the creation of the bodies.
        seconds = max(answer["seconds"] for answer in answers)
        after = self._cpu_s()
        cpu_s = {name: round(after[name] - before[name], 3) for name in after}
        others = (_busy_s() - busy - sum(cpu_s.values())) / whole
        compared = batches * len(ports) * _BATCH
        ours = cpu_s["replica1"] + cpu_s["replica2"]
        return Sample(
            replicas=replicas,
            way=way,
            rate=compared / seconds,
            cpu_s=cpu_s,
            seconds=seconds,
            others_cores=max(0.0, others),
            per_1000_s=1000 * ours / compared,
        )

    def _cpu_s(self) -> dict[str, float]:
        found = {f"replica{i}": each.cpu_s() for i, each in enumerate(self.replicas, 1)}
        found["generator"] = sum(load.cpu_s() for load in self.loads)
        found["haproxy"] = sum(front.cpu_s() for front in self.fronts.values())
        found["redis"] = _redis_cpu_s(self.redis)
        found["judges"] = sum(judge.cpu_s() for judge in self.judges)
        return found


def _busy_s() -> float:
    """CPU seconds that all programs on this machine have used."""
    user, nice, system, _, _, irq, softirq = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _redis_cpu_s(redis: RedisServer) -> float:
    found: Any = redis.command("INFO", "cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def pin(process: HttpServer, core: int) -> None:
    """Binds every thread of a process to a core; later threads inherit the binding."""
    for thread in Path(f"/proc/{process.popen.pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


@contextmanager
def computing(folder: Path, batches: int) -> Iterator[Bench]:
    """Replicas with the scripted engine: all their work is the service's own."""
    cores = sorted(os.sched_getaffinity(0))
    with _bench(folder, batches, [{"engine": "scripted"}] * 2, []) as bench:
        for each, core in zip(bench.replicas, cores, strict=False):
            pin(each, core)
        yield bench


@contextmanager
def waiting(folder: Path, batches: int, each_s: float) -> Iterator[Bench]:
    """Replicas whose judges work elsewhere: each asks an HTTP server of its own."""
    with ExitStack() as stack:
        ports = [free_port(), free_port()]
        judges = [
            stack.enter_context(
                HttpServer(
                    folder,
                    f"judge-{port}",
                    [
                        sys.executable,
                        "-m",
                        "tests.drills.replicas.slow_judge",
                        str(port),
                        str(each_s),
                    ],
                    {},
                    port=port,
                    ready_path="/v1/models",
                )
            )
            for port in ports
        ]
        settings = [
            {
                "engine": "openai",
                "openai_urls": f"{judge.url}/v1",
                "model": NAME,
                "tokenizer": str(DEMO_FOLDER / "model"),
            }
            for judge in judges
        ]
        yield stack.enter_context(_bench(folder, batches, settings, judges))


@contextmanager
def _bench(
    folder: Path,
    batches: int,
    settings: Sequence[dict[str, str]],
    judges: Sequence[Process],
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
        fronts = {
            n: stack.enter_context(
                haproxy(folder, free_port(), [each.port for each in services[:n]])
            )
            for n in (1, 2)
        }
        loads = [stack.enter_context(Worker(folder, f"load{i}", "load", {})) for i in range(2)]
        yield Bench(services, loads, fronts, redis, judges, batches)


def in_turns(
    bench: Bench, repeats: int, on_sample: Callable[[], None] = lambda: None
) -> list[Sample]:
    """One replica and two, direct and through haproxy, in turns; the first round is discarded."""
    found = []
    for repeat in range(repeats + 1):
        for way in ("direct", "haproxy"):
            for replicas in (1, 2):
                sample = bench.sample(replicas, way)
                if repeat:
                    found.append(sample)
                on_sample()
    return found
