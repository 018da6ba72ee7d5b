"""Measures HTTP without a model: batches, single requests, and memory."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx

from tests.benchmarks.measurement import Figure, in_turns
from tests.benchmarks.processes import HttpServer, Worker
from tests.benchmarks.service import AS_USERS_RUN_IT, HEADERS, KEY, scripted_service
from tests.integration.processes.server import free_port

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


class HttpBench:
    """The scripted judge's service, a bare FastAPI route, and a load generator.

    Args:
        folder: Folder for logs.
        repeats: Number of samples of each contestant.
        small: Whether to send a tenth of the requests and of the memory figure's judgments.
        on_sample: Called after each sample.
    """

    def __init__(
        self,
        folder: Path,
        *,
        repeats: int,
        small: bool,
        on_sample: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder = folder
        self._repeats = repeats
        self._small = small
        self._on_sample = on_sample
        self._stack = ExitStack()
        self._load = self._stack.enter_context(Worker(folder, "load", "load", {}))

    def close(self) -> None:
        """Ends the load generator."""
        self._stack.close()

    def batches(self) -> Figure:
        """Comparisons a second through HTTP in batches of 64, with one server process."""
        count = 30 if self._small else 300

        with scripted_service(self._folder) as ours:

            def sample(repeat: int) -> float:
                return 64 * self._rate(
                    ours, "/judge/batch", repeat, count, _BATCH_CONNECTIONS, size=64
                )

            sample(self._repeats)  # a warm-up
            (samples,) = in_turns([sample], self._repeats, self._on_sample)
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

    def singles(self) -> Figure:
        """Requests a second of /judge at 64 connections, compared with a bare FastAPI route."""
        count = 400 if self._small else 4000
        with scripted_service(self._folder) as ours, self._bare() as theirs:

            def sample_of(server: HttpServer) -> Callable[[int], float]:
                return lambda repeat: self._rate(
                    server, "/judge", repeat, count, _SINGLE_CONNECTIONS
                )

            contestants = [sample_of(ours), sample_of(theirs)]
            for warm_up in contestants:
                warm_up(self._repeats)
            our_samples, their_samples = in_turns(contestants, self._repeats, self._on_sample)
            spent = self._load.cpu_s()
            seconds = count / contestants[1](self._repeats + 1)
            busy = (self._load.cpu_s() - spent) / seconds
        return Figure(
            "single-scripted",
            "requests/s",
            our_samples,
            their_samples,
            target=0.6,
            notes=(
                f"64 connections; the load generator used {busy:.0%} of a core for theirs",
                AS_USERS_RUN_IT,
            ),
        )

    def memory(self) -> Figure:
        """Resident memory of the API process after 1e6 judgments, divided by that after 1e4."""
        few, more, many = _MEMORY_SMALL if self._small else _MEMORY
        with scripted_service(self._folder) as ours:
            self._judge_in_thousands(ours, 0, few)
            after_few = ours.rss_bytes() / 2**20
            self._judge_in_thousands(ours, few, more - few)
            after_more = ours.rss_bytes() / 2**20
            self._judge_in_thousands(ours, more, many - more)
            after_many = ours.rss_bytes() / 2**20
            drawn = self._draws(ours)
        self._on_sample()
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

    def _judge_in_thousands(self, server: HttpServer, first: int, count: int) -> None:
        for start in range(first, first + count, 10_000):
            self._load.ask(
                port=server.port,
                path="/judge/batch",
                first=start,
                requests=10,
                batch=1000,
                connections=2,
                key=KEY,
            )
            self._draws(server)

    def _draws(self, server: HttpServer) -> int:
        """Reads /metrics, as Prometheus does, and returns the number of draws for audits."""
        answer = httpx.get(f"{server.url}/metrics", headers=HEADERS).raise_for_status()
        (line,) = (x for x in answer.text.splitlines() if x.startswith(f"{_DRAWS} "))
        return int(float(line.split()[1]))

    def _rate(
        self,
        server: HttpServer,
        path: str,
        repeat: int,
        count: int,
        connections: int,
        *,
        size: int | None = None,
    ) -> float:
        question = {
            "port": server.port,
            "path": path,
            "first": repeat * _APART,
            "requests": count,
            "connections": connections,
            "key": KEY,
        }
        answer = self._load.ask(**question, **({} if size is None else {"batch": size}))
        return float(answer["answered"] / answer["seconds"])

    def _bare(self) -> HttpServer:
        port = free_port()
        command = [sys.executable, "-m", "tests.benchmarks.bare_route", str(port)]
        return HttpServer(self._folder, "bare", command, {}, port=port, ready_path="/readyz")
