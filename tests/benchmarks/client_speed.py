"""Measures the Python client: a batch over the bare HTTP call, and a stream over connections."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from scope_judge import Judgment, ScopeClient
from tests.benchmarks.figures import Figure, Sampling
from tests.benchmarks.service import AS_USERS_RUN_IT, HEADERS, KEY, scripted_service
from tests.patience import PATIENCE_S
from tests.programs import HttpServer

# The size of the batches that are compared with a bare call.
_BATCH = 64
# Numbers of connections, and sizes of batches, among which the best is chosen by measuring.
_CONNECTIONS = (1, 2, 4, 8)
_SIZES = (64, 250)
# Repeat r uses the comparison numbers from r times this value on, so that no comparison repeats.
_APART = 10_000_000


def batches(sampling: Sampling) -> Figure:
    """Milliseconds of `judge_many` with 64 pairs, over those of httpx with the same body."""
    calls = 20 if sampling.small else 200
    with (
        scripted_service(sampling.folder) as server,
        ScopeClient(server.url, KEY) as client,
        httpx.Client(base_url=server.url, headers=HEADERS, timeout=PATIENCE_S) as http,
    ):

        def ours(given: list[dict[str, Any]]) -> None:
            _check(list(client.judge_many(given)), len(given))

        def theirs(given: list[dict[str, Any]]) -> None:
            answer = http.post("/judge/batch", json={"comparisons": given}).json()
            assert len(answer["results"]) == len(given)

        contestants = [_milliseconds(each, calls) for each in (ours, theirs)]
        our_samples, their_samples = sampling.in_turns(contestants, warm_up=True)
    return Figure(
        "client-batch",
        "ms",
        our_samples,
        their_samples,
        target=1.10,
        at_most=True,
        notes=(
            f"{calls} calls with {_BATCH} pairs each, one after the other",
            f"the service: {AS_USERS_RUN_IT}",
        ),
    )


def stream(sampling: Sampling) -> Figure:
    """Pairs a second of `judge_many`, over those of httpx with the best connections."""
    count = 2_000 if sampling.small else 20_000
    with scripted_service(sampling.folder) as server:
        tried = {
            (connections, size): _by_hand(server, pairs(sampling.repeats, count), connections, size)
            for connections in _CONNECTIONS
            for size in _SIZES
        }
        connections, size = max(tried, key=lambda each: tried[each])

        def ours(repeat: int) -> float:
            given = pairs(repeat, count)
            begun = time.perf_counter()
            with ScopeClient(server.url, KEY) as client:
                _check(list(client.judge_many(given)), count)
            return count / (time.perf_counter() - begun)

        def theirs(repeat: int) -> float:
            return _by_hand(server, pairs(repeat, count), connections, size)

        our_samples, their_samples = sampling.in_turns([ours, theirs])
    return Figure(
        "client-stream",
        "pairs/s",
        our_samples,
        their_samples,
        target=0.95,
        notes=(
            f"{count:,} pairs; the best by hand were {connections} connections with batches of "
            f"{size}, of {_CONNECTIONS} and {_SIZES}",
            f"the service: {AS_USERS_RUN_IT}",
        ),
    )


def pairs(repeat: int, count: int) -> list[dict[str, Any]]:
    """Comparisons; each number gives a different one."""
    first = repeat * _APART
    return [
        {
            "id": i,
            "question": f"Which of the two answers to question {i} is the better one?",
            "response_a": f"The first answer to {i} has quality={i % 7 - 3}.",
            "response_b": f"The second answer to {i} has quality={i % 5 - 2}.",
        }
        for i in range(first, first + count)
    ]


def _milliseconds(
    send: Callable[[list[dict[str, Any]]], None], calls: int
) -> Callable[[int], float]:
    def sample(repeat: int) -> float:
        given = pairs(repeat, calls * _BATCH)
        begun = time.perf_counter()
        for start in range(0, len(given), _BATCH):
            send(given[start : start + _BATCH])
        return 1000 * (time.perf_counter() - begun) / calls

    return sample


def _by_hand(
    server: HttpServer, given: Sequence[dict[str, Any]], connections: int, size: int
) -> float:
    """Pairs a second with a thread for each connection and batches of one size."""
    bodies = [given[start : start + size] for start in range(0, len(given), size)]
    begun = time.perf_counter()
    with (
        httpx.Client(base_url=server.url, headers=HEADERS, timeout=PATIENCE_S) as http,
        ThreadPoolExecutor(connections) as threads,
    ):

        def send(body: Sequence[dict[str, Any]]) -> int:
            answer = http.post("/judge/batch", json={"comparisons": body}).json()
            return sum("verdict" in result for result in answer["results"])

        judged = sum(threads.map(send, bodies))
    assert judged == len(given)
    return judged / (time.perf_counter() - begun)


def _check(results: Sequence[object], count: int) -> None:
    assert sum(isinstance(result, Judgment) for result in results) == count
