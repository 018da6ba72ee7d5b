"""A store that is backed up under load, destroyed and restored has all that was acknowledged."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from app.cli import app
from tests.integration.processes.server import Server
from tests.integration.processes.test_audits import drawn, listed, pair, settings
from tests.patience import PATIENCE_S, wait_until
from tests.redis_server import RedisServer

BATCH = 8


def scope_judge(store_url: str, *arguments: str | Path) -> None:
    """Runs a command on a store."""
    environment = {"SCOPE_STORE_URL": store_url}
    done = CliRunner().invoke(app, [*map(str, arguments)], env=environment)
    assert done.exit_code == 0, done.output


def url_of(kind: str, folder: Path, server: RedisServer) -> str:
    return server.url if kind == "redis" else f"sqlite:///{folder}/store.db"


def labelled(number: int) -> list[dict[str, Any]]:
    """A batch of examples."""
    numbers = range(number * BATCH, (number + 1) * BATCH)
    return [{**pair(-each - 1), "label": "A"} for each in numbers]


def calibrated(client: httpx.Client, number: int) -> dict[str, Any]:
    answer = client.post("/calibrate", json={"examples": labelled(number)}).raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


class Load:
    """Two clients, and the batches and draws that the service has acknowledged to them."""

    def __init__(self, server: Server) -> None:
        self.batches: list[int] = []
        self.draws: dict[int, str] = {}
        self._url = server.url
        self._stopped = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=work) for work in (self._calibrate, self._judge)]
        for each in threads:
            each.start()
        try:
            yield
        finally:
            self._stopped.set()
            for each in threads:
                each.join()

    def wait_for(self, batches: int, draws: int) -> None:
        """Waits until so much more was acknowledged."""
        batches, draws = len(self.batches) + batches, len(self.draws) + draws
        wait_until(lambda: len(self.batches) >= batches and len(self.draws) >= draws)

    def _calibrate(self) -> None:
        client = httpx.Client(base_url=self._url, timeout=PATIENCE_S)
        with client, suppress(httpx.TransportError):
            while not self._stopped.is_set():
                number = len(self.batches)
                calibrated(client, number)
                self.batches.append(number)

    def _judge(self) -> None:
        first = 0
        client = httpx.Client(base_url=self._url, timeout=PATIENCE_S)
        with client, suppress(httpx.TransportError):
            while not self._stopped.is_set():
                self.draws |= drawn(client, range(first, first + 50))
                first += 50


def destroy(kind: str, folder: Path, server: RedisServer) -> None:
    if kind == "redis":
        server.command("FLUSHALL")
    for file in folder.glob("store.db*"):
        file.unlink()


@pytest.mark.parametrize(("source", "target"), [("sqlite", "redis"), ("redis", "sqlite")])
def test_a_restored_store_has_all_that_was_acknowledged_before_the_backup(
    source: str, target: str, tmp_path: Path, redis_server: RedisServer
) -> None:
    file, url = tmp_path / "backup.jsonl", url_of(source, tmp_path, redis_server)
    with Server(tmp_path, settings(url)) as server:
        # No draw is made before the first set.
        calibrated(server.client, 0)
        load = Load(server)
        with load.running():
            load.wait_for(batches=10, draws=300)
            batches, draws = list(load.batches), dict(load.draws)
            scope_judge(url, "backup", file)
            load.wait_for(batches=3, draws=50)
            server.kill()
    destroy(source, tmp_path, redis_server)
    url = url_of(target, tmp_path, redis_server)
    scope_judge(url, "restore", file)
    with Server(tmp_path, settings(url)) as server:
        for number in batches:
            again = calibrated(server.client, number)
            assert (again["added"], again["updated"]) == (0, BATCH)
        assert listed(server.client).keys() >= set(draws.values())
        # Another version draws other comparisons, and a comparison has the id that it had.
        again_drawn = drawn(server.client, range(400))
        in_both = draws.keys() & again_drawn.keys()
        assert len(in_both) > 50
        assert all(draws[each] == again_drawn[each] for each in in_both)
        made = calibrated(server.client, 10**6)
        assert made["added"] == BATCH
        # One of the versions that are kept: each has one batch more than the one before it.
        body = {"version": max(1, made["version"] - 15)}
        server.client.post("/calibrations/default/rollback", json=body).raise_for_status()
        detail = server.client.get("/calibrations/default").raise_for_status().json()
        assert detail["n"] == BATCH * body["version"]
