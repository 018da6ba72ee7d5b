"""Measures HTTP without a model: batches, single requests, and memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import httpx
import psutil

from tests.benchmarks.figures import Figure, Sampling
from tests.benchmarks.service import AS_USERS_RUN_IT, HEADERS, KEY, scripted_service
from tests.benchmarks.worker import Worker
from tests.programs import HttpServer

# Enough connections to keep one process busy; more would only lengthen the queue.
_BATCH_CONNECTIONS = 4
_SINGLE_CONNECTIONS = 64
# Repeat r uses the comparison numbers from r times this value on, so that no comparison repeats.
_APART = 10_000_000
_DRAWS = "scope_audit_draws_total"
# Judgments after which memory is measured. The process remembers 100,000 recent comparisons, to
# test each for drift once: this memory is full at the second number.
_MEMORY = (10_000, 100_000, 1_000_000)
_MEMORY_SMALL = (5_000, 10_000, 25_000)


class _Loaded(NamedTuple):
    """The scripted judge's service, and a load generator."""

    server: HttpServer
    load: Worker

    def rate(self, path: str, *, first: int, requests: int, connections: int, **size: int) -> float:
        """Requests a second; `batch` is the number of comparisons in a request."""
        answer = self.load.ask(
            port=self.server.port,
            path=path,
            first=first,
            requests=requests,
            connections=connections,
            key=KEY,
            **size,
        )
        return float(answer["answered"] / answer["seconds"])

    def judge(self, first: int, count: int) -> float:
        """Judges in batches of a thousand; returns the service's resident memory in MiB."""
        for start in range(first, first + count, 10_000):
            self.rate("/judge/batch", first=start, requests=10, connections=2, batch=1000)
            self.draws()
        return float(psutil.Process(self.server.pid).memory_info().rss / 2**20)

    def draws(self) -> int:
        """Reads /metrics, as Prometheus does, and returns the number of draws for audits."""
        answer = httpx.get(f"{self.server.url}/metrics", headers=HEADERS).raise_for_status()
        (line,) = (x for x in answer.text.splitlines() if x.startswith(f"{_DRAWS} "))
        return int(float(line.split()[1]))


@contextmanager
def _loaded(sampling: Sampling) -> Iterator[_Loaded]:
    with (
        Worker(sampling.folder, "load", "tests.benchmarks.load", {}) as load,
        scripted_service(sampling.folder) as server,
    ):
        yield _Loaded(server, load)


def batches(sampling: Sampling) -> Figure:
    """Comparisons a second through HTTP in batches of 64, with one server process."""
    with _loaded(sampling) as loaded:

        def sample(repeat: int) -> float:
            return 64 * loaded.rate(
                "/judge/batch",
                first=repeat * _APART,
                requests=30 if sampling.small else 300,
                connections=_BATCH_CONNECTIONS,
                batch=64,
            )

        (samples,) = sampling.in_turns([sample], warm_up=True)
    return Figure(
        "http-scripted",
        "comparisons/s",
        samples,
        (),
        target=3000,
        notes=(
            f"absolute; {_BATCH_CONNECTIONS} connections, alpha 0.1 with a calibration",
            AS_USERS_RUN_IT,
        ),
    )


def singles(sampling: Sampling) -> Figure:
    """Requests a second of /judge at 64 connections."""
    with _loaded(sampling) as loaded:

        def sample(repeat: int) -> float:
            return loaded.rate(
                "/judge",
                first=repeat * _APART,
                requests=400 if sampling.small else 4000,
                connections=_SINGLE_CONNECTIONS,
            )

        (samples,) = sampling.in_turns([sample], warm_up=True)
    return Figure(
        "single-scripted",
        "requests/s",
        samples,
        (),
        target=None,
        notes=(f"absolute; {_SINGLE_CONNECTIONS} connections", AS_USERS_RUN_IT),
    )


def memory(sampling: Sampling) -> Figure:
    """Resident memory of the API process after 1e6 judgments, divided by that after 1e4."""
    few, more, many = _MEMORY_SMALL if sampling.small else _MEMORY
    with _loaded(sampling) as loaded:
        after_few = loaded.judge(0, few)
        after_more = loaded.judge(few, more - few)
        after_many = loaded.judge(more, many - more)
        drawn = loaded.draws()
    return Figure(
        "memory",
        "MiB",
        (after_many,),
        (after_few,),
        target=1.05,
        at_most=True,
        notes=(
            f"after {many:,} judgments over after {few:,}; one run, no repeats",
            f"{AS_USERS_RUN_IT}: {drawn:,} draws; /metrics read every 10,000 judgments",
        ),
        extra={f"after {more:,}": (after_more,)},
    )
