"""Changes of a large set do not stall the event loop.

A stall is the time between two turns of the event loop, or the CPU time of the process in between
if that is less, because on a busy machine the loop also waits for other processes. Stalls are
compared with one call of `json.dumps` for the whole set.
"""

import asyncio
import gc
import hashlib
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from gc import freeze  # tests/conftest.py replaces `gc.freeze` after this import
from itertools import pairwise
from pathlib import Path

import pytest

from app.core.calibration import Calibration, LabeledExample
from app.core.examples import Examples
from app.judging.services import Services
from app.ports import Head, Store
from app.sets.codec import encode, thresholds_in
from app.sets.trail import Change, SetChange
from app.stores.redis import RedisStore
from app.stores.sqlite import SqliteStore
from tests import serving
from tests.labeled_examples import labeled_example
from tests.redis_server import RedisServer
from tests.serving import labelled, pair, services_of

N = 49_000
# One undisturbed run suffices; a busy machine disturbs most of them.
MOST_RUNS = 8


def scores() -> dict[str, LabeledExample]:
    rng = random.Random(5)
    return {
        hashlib.sha256(str(i).encode()).hexdigest(): labeled_example(
            rng.gauss(0, 3), rng.gauss(0, 3), rng.random(), "A" if rng.random() < 0.8 else "B"
        )
        for i in range(N)
    }


def one_call_s(table: dict[str, LabeledExample]) -> float:
    """Returns the CPU seconds of one call for the whole set, the shortest of three."""
    fields = {
        digest: (*example.score.fields.values(), example.label) for digest, example in table.items()
    }
    begun = [time.process_time()]
    for _ in range(3):
        json.dumps(fields)
        begun.append(time.process_time())
    return min(end - start for start, end in pairwise(begun))


async def longest_turn_s(work: Awaitable[object]) -> float:
    """Returns the longest stall during some work, in seconds."""
    turns = [(time.process_time(), time.perf_counter())]

    async def turn() -> None:
        while True:
            await asyncio.sleep(0.001)
            turns.append((time.process_time(), time.perf_counter()))

    turning = asyncio.create_task(turn())
    await work
    await asyncio.sleep(0.02)
    turning.cancel()
    return max(
        min(cpu - cpu_before, wall - wall_before)
        for (cpu_before, wall_before), (cpu, wall) in pairwise(turns)
    )


@asynccontextmanager
async def large_set(
    kind: str, folder: Path, fixtures: pytest.FixtureRequest, table: dict[str, LabeledExample]
) -> AsyncIterator[Services]:
    """A service with an empty cache, on a store with the set at version 1."""
    store: Store = SqliteStore(folder / "sets.db")
    if kind == "redis":
        server: RedisServer = fixtures.getfixturevalue("redis_server")
        server.command("FLUSHALL")
        store = RedisStore(server.url)
    async with services_of(store=store) as services:
        identity = services.identity.fingerprint
        content = Examples.of(table)
        first = Calibration(
            name="default",
            write_id="one",
            version=1,
            judge=services.identity.name,
            fingerprint=identity,
            examples=content,
        )
        change = SetChange(
            action="calibrate",
            by="service",
            at=datetime.now(UTC),
            before=replace(first, write_id="", examples={}),
            after=first,
            added=N,
        )
        blob = await asyncio.to_thread(encode, first)
        assert await store.write(
            "default",
            Head("one", 1),
            blob=blob,
            thresholds=thresholds_in(blob),
            record=Change.of(1, change).record,
            expected=None,
        )
        yield services
    await store.close()


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_no_change_of_a_large_set_stalls_the_event_loop(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    table = scores()
    whole_s = one_call_s(table)
    runs, stalls = list[dict[str, float]](), dict[str, float]()
    for number in range(MOST_RUNS):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with large_set(kind, folder, request, table) as services:
            # Garbage collection visits only the objects that the changes make.
            gc.collect()
            freeze()
            runs.append(await turns_of(services))
        # Other work of the machine only adds to a stall, and a stall of ours is in every run.
        stalls = {step: min(run[step] for run in runs) for step in runs[0]}
        # On a busy machine SQLite can use much CPU time beside the loop, so the longest stall has a
        # larger limit.
        *_, second, longest = sorted(stalls.values())
        if second < whole_s / 4 and longest < whole_s * 3 / 4:
            return
    pytest.fail(f"stalls in seconds: {stalls}; one call for the whole set: {whole_s:.3f}")


async def turns_of(services: Services) -> dict[str, float]:
    calibrator = services.calibrator
    comparison = serving.request(pair(2.0, 0.0))
    return {
        "first judgment": await longest_turn_s(services.judge.judge(comparison)),
        "judgment": await longest_turn_s(services.judge.judge(comparison)),
        "calibrate one": await longest_turn_s(
            calibrator.add("default", [labelled(1.0, "A", number=1)])
        ),
        "delete": await longest_turn_s(calibrator.delete("default")),
        "roll back a deletion": await longest_turn_s(calibrator.rollback("default", 2)),
        "roll back": await longest_turn_s(calibrator.rollback("default", 1)),
    }
