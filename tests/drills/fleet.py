"""`make ray`: Ray Serve and bulk runs on a local cluster of two machines, one of them killed."""

import argparse
import asyncio
import json
import math
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

from app.wiring.stores import make_store
from tests.programs import free_port
from tests.redis_server import RedisServer
from tests.serving import labelled, services_of

BIN = Path(sys.executable).parent
DEPLOYMENT = Path(__file__).parents[2] / "deploy" / "ray" / "serve-scripted.yaml"
START_S = 400.0
CLIENTS = 8
# Most failed requests: one in flight for each client, and a few until Serve stops routing there.
LOST_AT_MOST = CLIENTS + 4
SERVING, JUDGING = "ray::ServeReplica:judge:Judge", "ray::BulkJudge"
PAIRS, PAIRS_A_BATCH = 20_000, 10


def seconds_until(holds: Callable[[], bool], *, within_s: float = START_S) -> float:
    """Waits until the condition holds; returns the seconds."""
    begun = time.monotonic()
    while not holds():
        assert time.monotonic() - begun < within_s, f"not true within {within_s:g} s"
        time.sleep(0.05)
    return time.monotonic() - begun


def family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


class RayCluster:
    """Two machines that offer two CPUs each and are raylets; the first is the head.

    Args:
        folder: Folder of the sessions and the cluster's token; its path must be short.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._machines: list[psutil.Process] = []
        port, dashboard = free_port(), free_port()
        self.address, self.dashboard = f"127.0.0.2:{port}", f"http://127.0.0.1:{dashboard}"
        token = folder / "token"
        self._token = secrets.token_hex(32)
        token.write_text(self._token)
        token.chmod(0o600)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("SCOPE_")} | {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            # Ends the children of a Ray worker with it; otherwise vLLM's process outlives it.
            "RAY_process_group_cleanup_enabled": "true",
        }
        self._head = ["--head", f"--port={port}", f"--temp-dir={folder}", "--disable-usage-stats"]
        self._head.append(f"--dashboard-port={dashboard}")

    def __enter__(self) -> Self:
        self._start_machine("127.0.0.2", *self._head)
        seconds_until(lambda: self.machines() == 1)
        self.start_second_machine()
        return self

    def __exit__(self, *exc: object) -> None:
        while self._machines:
            self.kill_machine()

    def start_second_machine(self) -> None:
        self._start_machine("127.0.0.3", f"--address={self.address}")
        seconds_until(lambda: self.machines() == 2)

    def _start_machine(self, address: str, *options: str) -> None:
        command = [str(BIN / "ray"), "start", "--block", f"--node-ip-address={address}"]
        command += ["--num-cpus=2", f"--object-store-memory={10**8}"]
        command += [f"--dashboard-agent-listen-port={free_port()}", *options]
        with (self._folder / f"{address}.log").open("ab") as log:
            self._machines.append(
                psutil.Popen(
                    command, env=self.environment, stdout=log, stderr=log, start_new_session=True
                )
            )

    def machines(self) -> int:
        """Number of live machines that the cluster reports."""
        with suppress(httpx.HTTPError, ValueError):
            nodes = self.ask("/nodes?view=summary")["data"]["summary"]
            return sum(node["raylet"]["state"] == "ALIVE" for node in nodes)
        return 0

    def ask(self, path: str) -> Any:
        """Asks the dashboard's HTTP API, as Ray's commands do, which start slowly."""
        headers = {"Authorization": f"Bearer {self._token}"}
        return httpx.get(self.dashboard + path, headers=headers, timeout=30).json()

    def running(self, name: str, *, machine: int | None = None) -> list[int]:
        """Pids of the processes with this name in their command line, on one machine or both."""
        found = []
        for each in self._machines if machine is None else [self._machines[machine]]:
            for process in family(each):
                with suppress(psutil.NoSuchProcess):
                    if name in " ".join(process.cmdline()):
                        found.append(process.pid)
        return found

    def kill_machine(self) -> int:
        """Kills the last raylet and all its descendants; returns the number of processes."""
        machine = self._machines.pop()
        killed = family(machine)
        for process in killed:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        machine.wait()
        return len(killed)


class Deployment:
    """A deployment of deploy/ray/serve-scripted.yaml."""

    def __init__(self, cluster: RayCluster, redis: RedisServer, folder: Path) -> None:
        self._cluster = cluster
        keys, port = folder / "keys.json", free_port()
        roles = [f"--role={role}" for role in ("judge", "calibrate", "metrics")]
        command = [str(BIN / "scope-judge"), "keys", "add", "run", f"--file={keys}", *roles]
        key = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        text = DEPLOYMENT.read_text()
        for there, here in (
            ("redis://127.0.0.1:6379/0", redis.url),
            ("/etc/scope-judge/keys.json", str(keys)),
            ("port: 8000", f"port: {port}"),
        ):
            assert there in text
            text = text.replace(there, here)
        self._yaml = folder / "serve.yaml"
        self._yaml.write_text(text)
        self._base = f"http://127.0.0.1:{port}"
        self._headers = {"Authorization": f"Bearer {key.strip().splitlines()[-1]}"}
        self.client = self.new_client()

    def new_client(self) -> httpx.Client:
        return httpx.Client(base_url=self._base, headers=self._headers, timeout=60)

    def run(self, *words: str) -> None:
        """Runs a command of Ray Serve."""
        command = [str(BIN / "serve"), *words, "-a", self._cluster.dashboard]
        subprocess.run(command, env=self._cluster.environment, capture_output=True, check=True)

    def deploy(self) -> float:
        """Returns the seconds until both replicas run."""
        begun = time.monotonic()
        self.run("deploy", str(self._yaml))
        seconds_until(lambda: self.is_whole(2))
        return time.monotonic() - begun

    def is_whole(self, machines: int) -> bool:
        """Whether two replicas and a proxy on each machine run, and the service is ready."""
        said = self._cluster.ask("/api/serve/applications/")
        proxies = [proxy["status"] for proxy in said["proxies"].values()]
        judge = said["applications"].get("judge", {}).get("deployments", {}).get("Judge", {})
        replicas = [each["state"] for each in judge.get("replicas", ())]
        if proxies != ["HEALTHY"] * machines or replicas != ["RUNNING"] * 2:
            return False
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def calibrate(self, first: int, count: int) -> int:
        """Adds labeled examples; returns the new version."""
        examples = [
            {
                "question": f"Question {i}?",
                "response_a": f"quality={(i % 17) / 4 - 2}",
                "response_b": "quality=0",
                "label": "A" if i % 17 > 8 else "B",
            }
            for i in range(first, first + count)
        ]
        answer = self.client.post("/calibrate", json={"examples": examples}).raise_for_status()
        return int(answer.json()["version"])

    def versions(self) -> dict[str, set[int]]:
        """Start time of each replica's process -> calibration versions that its /metrics showed."""
        found: dict[str, set[int]] = {}
        for _ in range(60):
            # A new connection each time, because a proxy prefers the replica on its machine.
            with self.new_client() as client:
                lines = client.get("/metrics").text.splitlines()
            figures = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
            version = figures.get('scope_calibration_version{calibration="default"}', "0")
            own = found.setdefault(figures["process_start_time_seconds"], set())
            own.add(int(float(version)))
        return found


class Load:
    """Concurrent clients that judge in a loop without retries; every answer is counted."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work) for _ in range(CLIENTS)]
        self.answers: Counter[str] = Counter()
        self.versions: list[tuple[float, int]] = []

    def _work(self) -> None:
        body = {"question": "Which?", "response_a": "quality=2", "response_b": "quality=0"}
        with self._deployment.new_client() as client:
            while not self._stop.is_set():
                try:
                    answer = client.post("/judge", json=body)
                except httpx.TransportError as exc:
                    self.answers[type(exc).__name__] += 1
                    continue
                self.answers[str(answer.status_code)] += 1
                if answer.status_code == 200:
                    version = answer.json()["calibration"]["version"]
                    self.versions.append((time.monotonic(), version))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        seconds_until(lambda: self.answers["200"] > 200)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def check(self) -> str:
        """Asserts that hardly more than the requests in flight has failed; returns the counts."""
        assert self.answers.total() - self.answers["200"] <= LOST_AT_MOST, self.answers
        return ", ".join(f"{n} x {kind}" for kind, n in self.answers.most_common())


def serve(cluster: RayCluster, redis: RedisServer, folder: Path) -> None:
    """A new calibration, a killed replica and a lost machine under load."""
    deployment = Deployment(cluster, redis, folder)
    print(f"serve deploy, 2 machines: 2 replicas after {deployment.deploy():.0f} s", flush=True)
    deployment.calibrate(0, 200)
    assert len(deployment.versions()) == 2

    with Load(deployment) as load:
        version = deployment.calibrate(200, 100)
        posted = time.monotonic()
        time.sleep(3)
        held = deployment.versions()
    assert list(held.values()) == [{version}] * 2, held
    assert set(load.answers) == {"200"}, load.answers
    late = max(0.0, *(at - posted for at, seen in load.versions if seen < version))
    assert late < 1.0, f"the old version was used {late:.2f} s after the answer"
    print(f"a new calibration: used {late:.2f} s after the answer; {load.check()}", flush=True)

    with Load(deployment) as load:
        victim = cluster.running(SERVING)[0]
        os.kill(victim, signal.SIGKILL)
        took = seconds_until(lambda: len({*cluster.running(SERVING)} - {victim}) == 2)
        seconds_until(lambda: deployment.is_whole(2))
    print(f"a replica killed: another one after {took:.1f} s; {load.check()}", flush=True)

    with Load(deployment) as load:
        cluster.kill_machine()
        noticed = seconds_until(lambda: cluster.machines() == 1)
        # The processes are checked, too: Serve's status may be out of date.
        took = seconds_until(lambda: len(cluster.running(SERVING, machine=0)) == 2)
        seconds_until(lambda: deployment.is_whole(1))
    told = f"noticed after {noticed:.0f} s, two replicas {took:.0f} s later; {load.check()}"
    print(f"a machine killed: {told}", flush=True)
    cluster.start_second_machine()
    deployment.run("shutdown", "-y")


class Bulk:
    """One run of `scope-judge judge --ray` into one file."""

    def __init__(self, cluster: RayCluster, settings: Mapping[str, str], out: Path) -> None:
        self._out = out
        self._environment = {**cluster.environment, **settings}
        self._command = [str(BIN / "scope-judge"), "judge", str(out.with_name("pairs.jsonl"))]
        self._command += ["--ray", f"--address={cluster.address}", f"--out={out}", "--replicas=2"]
        self._command.append(f"--batch-size={PAIRS_A_BATCH}")
        self._log = out.with_suffix(".log")

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, cwd=self._out.parent
            )

    def results(self) -> bytes:
        """Waits for the end; returns the file, in which each pair has its verdict."""
        assert self.process.wait(START_S) == 0, self._log.read_text()[-4000:]
        content = self._out.read_bytes()
        judgments = [json.loads(line)["judgment"] for line in content.splitlines()]
        assert len(judgments) == PAIRS
        assert not any("error" in judgment for judgment in judgments)
        return content

    def wait_for(self, count: int) -> int:
        """Waits until at least `count` pairs are judged; returns their number."""
        seconds_until(lambda: self._judged() >= count)
        return self._judged()

    def _judged(self) -> int:
        assert self.process.poll() is None, self._log.read_text()[-4000:]
        journal = self._out.with_name(f"{self._out.name}.partial")
        return journal.read_bytes().count(b"\n") if journal.exists() else 0


def bulk(cluster: RayCluster, redis: RedisServer, folder: Path) -> None:
    """A machine or the driver is killed; every pair is judged once."""
    rng = random.Random(7)
    with (folder / "pairs.jsonl").open("w") as lines:
        for i in range(PAIRS):
            a, b = rng.gauss(0, 1.5), rng.gauss(0, 1.5)
            row = {"id": i, "question": f"Question {i}?"}
            row |= {"response_a": f"quality={a:.4f}", "response_b": f"quality={b:.4f}"}
            lines.write(json.dumps(row) + "\n")
    asyncio.run(_calibrate(redis))
    settings = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": redis.url}

    begun = time.monotonic()
    plain = Bulk(cluster, settings, folder / "plain.jsonl")
    plain.start()
    expected = plain.results()
    print(f"bulk, {PAIRS} pairs, 2 machines: {time.monotonic() - begun:.0f} s", flush=True)

    lost = Bulk(cluster, settings, folder / "lost.jsonl")
    lost.start()
    # Its judge may need longer to load than the first one.
    while not cluster.running(f"{JUDGING}.judge", machine=1):
        assert lost.wait_for(1) < PAIRS, "the second machine judges nothing"
    done = lost.wait_for(5000)
    killed = cluster.kill_machine()
    assert lost.results() == expected
    print(f"bulk, {killed} processes of a machine killed after {done} pairs: equal", flush=True)
    cluster.start_second_machine()

    gone = Bulk(cluster, settings, folder / "gone.jsonl")
    gone.start()
    done = gone.wait_for(5000)
    gone.process.kill()
    gone.process.wait()
    seconds_until(lambda: not cluster.running(JUDGING))
    gone.start()
    assert gone.results() == expected
    print(f"bulk, the driver killed after {done} pairs, run again: equal", flush=True)


async def _calibrate(redis: RedisServer) -> None:
    """Calibrates the scripted judge with 400 pairs; it is wrong more often when unsure."""
    rng = random.Random(3)
    examples = []
    for number in range(400):
        gap = rng.gauss(0, 2)
        right = rng.random() < 1 / (1 + math.exp(-abs(gap)))
        examples.append(labelled(gap, "A" if (gap > 0) == right else "B", number=number))
    store = make_store(redis.url)
    async with services_of(store=store) as services:
        await services.calibrator.add("default", examples)
    await store.close()


def main() -> None:
    runs = {"serve": serve, "bulk": bulk}
    parser = argparse.ArgumentParser(prog="make ray", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=runs, default=list(runs), metavar="NAME")
    names = parser.parse_args().only
    # A short path, because it is part of the names of Ray's sockets.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        with RedisServer(folder) as redis, RayCluster(folder) as cluster:
            for name in names:
                redis.command("FLUSHALL")
                runs[name](cluster, redis, folder)


if __name__ == "__main__":
    main()
