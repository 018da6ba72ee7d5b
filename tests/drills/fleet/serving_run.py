"""Drills of Ray Serve: a new calibration, a killed replica and a lost machine under load."""

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.drills.fleet.ray_cluster import BIN, RayCluster, kill
from tests.drills.running import ROOT
from tests.integration.processes.server import free_port
from tests.redis_server import RedisServer

_DEPLOY_S = 300.0
_CLIENTS = 8
# Most failed requests: one in flight for each client, and a few until Serve stops routing there.
_LOST_AT_MOST = _CLIENTS + 4
_REPLICA = "ray::ServeReplica:judge:Judge"
Row = tuple[str, str]


class Deployment:
    """A deployment of deploy/ray/serve-scripted.yaml."""

    def __init__(self, cluster: RayCluster, redis: RedisServer, folder: Path) -> None:
        self._cluster = cluster
        keys = folder / "keys.json"
        roles = [f"--role={role}" for role in ("judge", "calibrate", "metrics")]
        command = [str(BIN / "scope-judge"), "keys", "add", "run", f"--file={keys}", *roles]
        made = subprocess.run(command, check=True, capture_output=True, text=True)
        self._port = free_port()
        text = (ROOT / "deploy" / "ray" / "serve-scripted.yaml").read_text()
        for there, here in (
            ("redis://127.0.0.1:6379/0", redis.url),
            ("/etc/scope-judge/keys.json", str(keys)),
            ("port: 8000", f"port: {self._port}"),
        ):
            assert there in text
            text = text.replace(there, here)
        self._yaml = folder / "serve.yaml"
        self._yaml.write_text(text)
        self.headers = {"Authorization": f"Bearer {made.stdout.strip().splitlines()[-1]}"}
        self.client = self.new_client()

    def new_client(self) -> httpx.Client:
        base = f"http://127.0.0.1:{self._port}"
        return httpx.Client(base_url=base, headers=self.headers, timeout=60)

    def deploy(self) -> float:
        """Runs `serve deploy`; returns the seconds until both replicas run."""
        begun = time.monotonic()
        self._serve("deploy", str(self._yaml))
        self.wait_until_whole()
        return time.monotonic() - begun

    def wait_until_whole(self, *, machines: int = 2) -> None:
        """Waits until two replicas and a proxy on each machine run, and the service is ready."""
        deadline = time.monotonic() + _DEPLOY_S
        while not (self._whole(machines) and self.ready()):
            assert time.monotonic() < deadline, f"the deployment is not whole: {self._status()}"
            time.sleep(0.1)

    def _whole(self, machines: int) -> bool:
        said = self._status()
        proxies = [proxy["status"] for proxy in said["proxies"].values()]
        found = said["applications"].get("judge", {}).get("deployments", {})
        replicas = [each["state"] for each in found.get("Judge", {}).get("replicas", ())]
        return proxies == ["HEALTHY"] * machines and replicas == ["RUNNING"] * 2

    def _status(self) -> dict[str, Any]:
        return self._cluster.ask("/api/serve/applications/")

    def ready(self) -> bool:
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def shutdown(self) -> None:
        self._serve("shutdown", "-y")

    def _serve(self, *words: str) -> str:
        command = [str(BIN / "serve"), *words, "-a", self._cluster.dashboard]
        said = subprocess.run(
            command, env=self._cluster.environment, capture_output=True, text=True, check=True
        )
        return said.stdout

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
        answer = self.client.post("/calibrate", json={"examples": examples})
        assert answer.status_code == 200, answer.text
        return int(answer.json()["version"])

    def judge(self, client: httpx.Client) -> httpx.Response:
        body = {"question": "Which?", "response_a": "quality=2", "response_b": "quality=0"}
        return client.post("/judge", json=body)

    def versions(self, times: int = 60) -> dict[str, set[int]]:
        """Start time of each replica's process -> calibration versions that its /metrics showed."""
        found: dict[str, set[int]] = {}
        for _ in range(times):
            # A new connection each time, because a proxy prefers the replica on its machine.
            with self.new_client() as client:
                lines = client.get("/metrics").text.splitlines()
            figures = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
            of_one = found.setdefault(figures["process_start_time_seconds"], set())
            version = figures.get('scope_calibration_version{calibration="default"}', "0")
            of_one.add(int(float(version)))
        return found


class Clients:
    """Concurrent clients that judge in a loop without retries; every answer is counted."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work) for _ in range(_CLIENTS)]
        self.answers: Counter[str] = Counter()
        self.versions: list[tuple[float, int]] = []

    def _work(self) -> None:
        with self._deployment.new_client() as client:
            while not self._stop.is_set():
                try:
                    answer = self._deployment.judge(client)
                except httpx.TransportError as exc:
                    self.answers[type(exc).__name__] += 1
                    continue
                self.answers[_kind(answer)] += 1
                if answer.status_code == 200:
                    version = answer.json()["calibration"]["version"]
                    self.versions.append((time.monotonic(), version))

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def check(self) -> None:
        """Asserts that hardly more than the requests in flight has failed."""
        lost = {kind: n for kind, n in self.answers.items() if kind != "200"}
        assert sum(lost.values()) <= _LOST_AT_MOST, self.summary()
        assert self.answers["200"] > 200, self.summary()

    def summary(self) -> str:
        return ", ".join(f"{n} x {kind}" for kind, n in self.answers.most_common())


def _kind(answer: httpx.Response) -> str:
    try:
        code = answer.json().get("code", "")
    except (ValueError, AttributeError):
        code = "no JSON"
    return f"{answer.status_code} {code}".strip()


def _wait(until: Callable[[], bool], *, timeout_s: float) -> float:
    """Waits until the condition holds; returns the seconds."""
    begun = time.monotonic()
    while not until():
        assert time.monotonic() - begun < timeout_s, f"not true within {timeout_s:g} s"
        time.sleep(0.05)
    return time.monotonic() - begun


def run(cluster: RayCluster, redis: RedisServer, folder: Path) -> Iterator[Row]:
    """Runs the drills and yields a row for each."""
    deployment = Deployment(cluster, redis, folder)
    yield "serve deploy, 2 machines", f"2 replicas after {deployment.deploy():.0f} s"
    deployment.calibrate(0, 200)
    assert len(deployment.versions()) == 2
    yield from _calibrated_under_load(deployment)
    yield from _replica_killed(deployment, cluster)
    yield from _machine_lost(deployment, cluster)
    deployment.shutdown()


def _calibrated_under_load(deployment: Deployment) -> Iterator[Row]:
    with Clients(deployment) as load:
        _wait(lambda: len(load.versions) > 200, timeout_s=60)
        version = deployment.calibrate(200, 100)
        posted = time.monotonic()
        _wait(lambda: time.monotonic() > posted + 3, timeout_s=10)
        held = deployment.versions()
    old = [at - posted for at, seen in load.versions if seen < version]
    new = [at for at, seen in load.versions if seen == version]
    assert new, "nobody has used the new version"
    assert list(held.values()) == [{version}] * 2, f"versions of the two replicas: {held}"
    assert set(load.answers) == {"200"}, load.summary()
    assert max(old) < 1.0, f"the old version was used {max(old):.2f} s after the answer"
    late = max(0.0, max(old))
    yield (
        "a new calibration under load",
        f"used by both replicas {late:.2f} s after the answer; {load.summary()}",
    )


def _replica_killed(deployment: Deployment, cluster: RayCluster) -> Iterator[Row]:
    def replicas() -> list[int]:
        return cluster.running(_REPLICA)

    with Clients(deployment) as load:
        _wait(lambda: load.answers["200"] > 200, timeout_s=60)
        victim = replicas()[0]
        kill([victim])
        took = _wait(lambda: len(set(replicas()) - {victim}) == 2, timeout_s=90)
        deployment.wait_until_whole()
    load.check()
    yield "a replica killed under load", f"another process after {took:.1f} s; {load.summary()}"


def _machine_lost(deployment: Deployment, cluster: RayCluster) -> Iterator[Row]:
    with Clients(deployment) as load:
        _wait(lambda: load.answers["200"] > 200, timeout_s=60)
        cluster.kill_second_machine()
        begun = time.monotonic()
        cluster.wait_for_machines(1)
        noticed = time.monotonic() - begun
        # The processes are checked, too: Serve's status may be out of date.
        _wait(lambda: len(cluster.running(_REPLICA, machine=0)) == 2, timeout_s=_DEPLOY_S)
        deployment.wait_until_whole(machines=1)
        took = time.monotonic() - begun
    load.check()
    yield (
        "a machine killed under load",
        f"Ray noticed after {noticed:.0f} s, two replicas after {took:.0f} s; {load.summary()}",
    )
    cluster.start_second_machine()
