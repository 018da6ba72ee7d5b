"""Drills of bulk judging: a machine or the driver is killed; every pair is judged once."""

import asyncio
import hashlib
import json
import math
import random
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from app.wiring.stores import make_store
from tests.drills.fleet.ray_cluster import BIN, RayCluster, kill
from tests.drills.fleet.serving_run import Row
from tests.redis_server import RedisServer
from tests.serving import labelled, services_of

PAIRS = 20_000
_BATCH = 10
_RUN_S = 400.0
_JUDGE = "ray::BulkJudge"


def write_pairs(file: Path) -> None:
    """Writes pairs with spread scores, so that only some of them are accepted."""
    rng = random.Random(7)
    with file.open("w") as lines:
        for i in range(PAIRS):
            a, b = rng.gauss(0, 1.5), rng.gauss(0, 1.5)
            row = {"id": i, "question": f"Question {i}?"}
            row |= {"response_a": f"quality={a:.4f}", "response_b": f"quality={b:.4f}"}
            lines.write(json.dumps(row) + "\n")


class Bulk:
    """One run of `scope-judge judge --ray` into one file."""

    def __init__(
        self, cluster: RayCluster, settings: Mapping[str, str], pairs: Path, out: Path
    ) -> None:
        self.out = out
        self._journal = out.with_name(f"{out.name}.partial")
        self._environment = {**cluster.environment, **settings}
        options = [f"--address={cluster.address}", f"--out={out}", "--replicas=2"]
        self._command = [str(BIN / "scope-judge"), "judge", str(pairs), "--ray", *options]
        self._command.append(f"--batch-size={_BATCH}")
        self._process: subprocess.Popen[bytes] | None = None
        self._log = out.with_suffix(".log")

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, cwd=self.out.parent
            )

    def wait(self) -> None:
        """Waits for the end of the run and asserts its success."""
        assert self._process is not None
        status = self._process.wait(_RUN_S)
        assert status == 0, self._log.read_text()[-4000:]

    def kill(self) -> None:
        assert self._process is not None
        kill([self._process.pid])
        self._process.wait()

    def wait_for(self, count: int) -> int:
        """Waits until at least `count` pairs are judged; returns their number."""
        deadline = time.monotonic() + _RUN_S
        while (done := self._judged()) < count:
            assert self._process is not None
            assert self._process.poll() is None, self._log.read_text()[-4000:]
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return done

    def _judged(self) -> int:
        return self._journal.read_bytes().count(b"\n") if self._journal.exists() else 0

    def results(self) -> list[dict[str, Any]]:
        return [json.loads(line)["judgment"] for line in self.out.read_text().splitlines()]

    def digest(self) -> str:
        return hashlib.sha256(self.out.read_bytes()).hexdigest()


def check_whole(results: list[dict[str, Any]]) -> str:
    """Asserts that every pair has one result; returns the counts of the verdicts."""
    assert len(results) == PAIRS
    assert not any("error" in result for result in results)
    counts = {v: sum(r["verdict"] == v for r in results) for v in ("A", "B", "abstain")}
    return ", ".join(f"{n} x {verdict}" for verdict, n in counts.items())


def run(cluster: RayCluster, redis: RedisServer, folder: Path) -> Iterator[Row]:
    """Runs the drills with the scripted judge and yields a row for each."""
    _calibrate(redis)
    pairs = folder / "pairs.jsonl"
    write_pairs(pairs)
    settings = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": redis.url}

    plain = Bulk(cluster, settings, pairs, folder / "plain.jsonl")
    begun = time.monotonic()
    plain.start()
    plain.wait()
    took = time.monotonic() - begun
    yield f"bulk, {PAIRS} pairs, 2 machines", f"{took:.0f} s; {check_whole(plain.results())}"

    lost = Bulk(cluster, settings, pairs, folder / "lost.jsonl")
    begun = time.monotonic()
    lost.start()
    # Its judge may need longer to load than the first one.
    while not cluster.running(f"{_JUDGE}.judge", machine=1):
        assert lost.wait_for(1) < PAIRS, "the second machine judges nothing"
    done = lost.wait_for(5000)
    killed = cluster.kill_second_machine()
    lost.wait()
    took = time.monotonic() - begun
    check_whole(lost.results())
    assert lost.digest() == plain.digest()
    yield (
        "bulk, a machine killed in the middle",
        f"{killed} processes killed with {done} of {PAIRS} pairs judged; every pair judged once, "
        f"results equal to the byte, {took:.0f} s",
    )
    cluster.start_second_machine()

    gone = Bulk(cluster, settings, pairs, folder / "gone.jsonl")
    gone.start()
    before = gone.wait_for(5000)
    gone.kill()
    while cluster.running(_JUDGE):
        time.sleep(0.05)
    gone.start()
    gone.wait()
    check_whole(gone.results())
    assert gone.digest() == plain.digest()
    yield "bulk, the driver killed, run again", f"{before} pairs were done; results equal"


def _calibrate(redis: RedisServer) -> None:
    """Calibrates the scripted judge with 400 pairs; it is wrong more often when unsure."""
    rng = random.Random(3)
    examples = []
    for number in range(400):
        gap = rng.gauss(0, 2)
        right = rng.random() < 1 / (1 + math.exp(-abs(gap)))
        examples.append(labelled(gap, "A" if (gap > 0) == right else "B", number=number))

    async def add() -> None:
        store = make_store(redis.url)
        async with services_of(store=store) as services:
            await services.calibrator.add("default", examples)
        await store.close()

    asyncio.run(add())
