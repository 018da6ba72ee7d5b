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
from tests.drills.running import ROOT
from tests.redis_server import RedisServer
from tests.serving import labelled, services_of

PAIRS = 5000
_ROWS_PER_PART = 10
_RUN_S = 400.0


def write_pairs(folder: Path) -> None:
    """Writes four shards with spread scores, so that only some pairs are accepted."""
    rng = random.Random(7)
    folder.mkdir()
    for shard in range(4):
        with (folder / f"shard-{shard}.jsonl").open("w") as lines:
            for i in range(PAIRS // 4):
                a, b = rng.gauss(0, 1.5), rng.gauss(0, 1.5)
                row = {"id": f"{shard}-{i}", "question": f"Question {shard}-{i}?"}
                row |= {"response_a": f"quality={a:.4f}", "response_b": f"quality={b:.4f}"}
                lines.write(json.dumps(row) + "\n")


class Bulk:
    """One run of `scope-judge judge --ray` into one folder."""

    def __init__(
        self, cluster: RayCluster, settings: Mapping[str, str], pairs: Path, out: Path
    ) -> None:
        self.out = out
        self._environment = {**cluster.environment, **settings}
        self._command = [
            str(BIN / "scope-judge"),
            "judge",
            str(pairs),
            "--ray",
            f"--address={cluster.address}",
            f"--out={out}",
            "--replicas=2",
            f"--batch-size={_ROWS_PER_PART}",
        ]
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

    def wait_for_parts(self, count: int) -> int:
        """Waits until at least `count` parts are done; returns their number."""
        deadline = time.monotonic() + _RUN_S
        while (done := len(self.done())) < count:
            assert self._process is not None
            assert self._process.poll() is None, self._log.read_text()[-4000:]
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return done

    def done(self) -> dict[str, int]:
        """Name of each receipt -> time of its last change in ns."""
        return {p.name: p.stat().st_mtime_ns for p in self.out.glob("parts/[0-9]*.json")}

    def results(self) -> list[dict[str, Any]]:
        files = sorted(self.out.glob("parts/[0-9]*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def digest(self) -> str:
        files = sorted(self.out.glob("parts/[0-9]*.jsonl"))
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def check_whole(results: list[dict[str, Any]]) -> str:
    """Asserts that every pair has one result, in order; returns the counts of the verdicts."""
    wanted = [(f"shard-{s}.jsonl", i, f"{s}-{i}") for s in range(4) for i in range(PAIRS // 4)]
    found = [(r["input"]["shard"], r["input"]["row"], r["id"]) for r in results]
    assert found == wanted
    assert not any("error" in result for result in results)
    counts = {v: sum(r["verdict"] == v for r in results) for v in ("A", "B", "abstain")}
    return ", ".join(f"{n} x {verdict}" for verdict, n in counts.items())


def run(cluster: RayCluster, redis: RedisServer, folder: Path) -> Iterator[Row]:
    """Runs the drills with the scripted judge and yields a row for each."""
    _calibrate(redis)
    pairs = folder / "pairs"
    write_pairs(pairs)
    settings = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": redis.url}

    plain = Bulk(cluster, settings, pairs, folder / "plain")
    begun = time.monotonic()
    plain.start()
    plain.wait()
    took = time.monotonic() - begun
    yield f"bulk, {PAIRS} pairs, 2 machines", f"{took:.0f} s; {check_whole(plain.results())}"

    lost = Bulk(cluster, settings, pairs, folder / "lost")
    begun = time.monotonic()
    lost.start()
    done = lost.wait_for_parts(100)
    assert cluster.running("ray::MapWorker", machine=1), "the second machine judges nothing"
    killed = cluster.kill_second_machine()
    lost.wait()
    took = time.monotonic() - begun
    check_whole(lost.results())
    assert lost.digest() == plain.digest()
    yield (
        "bulk, a machine killed in the middle",
        f"{killed} processes killed with {done} of {PAIRS // _ROWS_PER_PART} parts done; every "
        f"pair judged once, results equal to the byte, {took:.0f} s",
    )
    cluster.start_second_machine()

    gone = Bulk(cluster, settings, pairs, folder / "gone")
    gone.start()
    gone.wait_for_parts(100)
    gone.kill()
    # The judges end with the driver; parts that they still write count as done.
    while cluster.running("ray::MapWorker"):
        time.sleep(0.05)
    before = gone.done()
    gone.start()
    gone.wait()
    after = gone.done()
    again = sum(after[name] != written for name, written in before.items())
    check_whole(gone.results())
    assert gone.digest() == plain.digest()
    assert again == 0
    yield (
        "bulk, the driver killed, run again",
        f"{len(before)} parts were done, {again} of them again, {len(after) - len(before)} more; "
        "results equal to the byte",
    )


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


def run_demo(cluster: RayCluster, redis: RedisServer, folder: Path) -> Iterator[Row]:
    """Runs the bundled judge in vLLM on both machines and kills the engine of one."""
    pairs = folder / "try.jsonl"
    lines = (ROOT / "app" / "demo" / "try.jsonl").read_text().splitlines()[:200]
    pairs.write_text("\n".join(lines) + "\n")
    settings = {"SCOPE_ENGINE": "vllm", "SCOPE_STORE_URL": redis.url.replace("/0", "/1")}
    bulk = Bulk(cluster, settings, pairs, folder / "demo")
    begun = time.monotonic()
    bulk.start()
    bulk.wait_for_parts(4)
    engines = cluster.running("VLLM::EngineCore")
    kill(engines[:1])
    bulk.wait()
    took = time.monotonic() - begun
    results = bulk.results()
    labels = [json.loads(line)["label"] for line in lines]
    accepted = [
        (r["verdict"], label)
        for r, label in zip(results, labels, strict=True)
        if r["verdict"] != "abstain"
    ]
    right = sum(verdict == label for verdict, label in accepted)
    yield (
        f"bulk, {len(lines)} pairs, demo judge in vLLM",
        f"{len(engines)} engines, one killed in the middle: {len(results)} judged, "
        f"{len(accepted)} accepted, {right} of them as labelled, {took:.0f} s with loading",
    )
