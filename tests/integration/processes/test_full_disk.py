"""A full disk under the log of audits: judging goes on, no label is lost, and alarms ring later."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes.server import Server
from tests.patience import wait_until
from tests.redis_server import RedisServer
from tests.small_disk import fill, no_small_disk, small_disk, unfill
from tests.unit.api.problems import comparison, examples

OBSTACLE = no_small_disk()
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(OBSTACLE is not None, reason=OBSTACLE or ""),
]


@dataclass
class FullDisk:
    """A service whose store is on a small disk."""

    server: Server
    folder: Path
    judged: int = 0

    def judge(self, count: int) -> list[dict[str, Any]]:
        """Judges new pairs; each one is drawn if the store takes the draw."""
        numbers = range(self.judged, self.judged + count)
        self.judged += count
        pairs = [comparison(question=f"Judged {number}?") for number in numbers]
        answer = self.server.client.post("/judge/batch", json={"comparisons": pairs})
        results: list[dict[str, Any]] = answer.raise_for_status().json()["results"]
        return results

    def label(self, judged: list[dict[str, Any]], label: str) -> int:
        """Returns the status of the answer."""
        labels = [{"id": each["audit"]["id"], "label": label} for each in judged]
        return self.server.client.post("/audits/labels", json={"labels": labels}).status_code


@pytest.fixture(params=["sqlite", "redis"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FullDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        stack.enter_context(small_disk(folder))
        url = f"sqlite:///{folder}/scope.db"
        if request.param == "redis":
            server = RedisServer(folder)
            server.start()
            stack.callback(server.kill)
            server.command("CONFIG", "SET", "appendfsync", "everysec")
            url = server.url
        settings = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": url, "SCOPE_AUDIT_RATE": "1"}
        settings |= {"SCOPE_ON_ALARM": "abstain"}
        yield FullDisk(server=stack.enter_context(Server(tmp_path, settings)), folder=folder)


def test_judging_goes_on_and_no_label_is_lost(disk: FullDisk) -> None:
    client = disk.server.client
    client.post("/calibrate", json={"examples": examples(100)}).raise_for_status()
    drawn = disk.judge(40)
    fill(disk.folder)
    # Redis takes writes until its disk has refused one.
    wait_until(lambda: disk.judge(1)[0]["audit"] is None)
    for _ in range(5):
        (each,) = disk.judge(1)
        assert (each["verdict"], each["audit"]) == ("A", None)
    assert disk.label(drawn, "B") == 503
    for path in ("/audits", "/calibrations/default/monitor", "/calibrations/default/audit-trail"):
        assert client.get(path).status_code == 200
    unfill(disk.folder)
    wait_until(lambda: disk.label(drawn, "B") == 200)
    wait_until(lambda: disk.judge(1)[0]["reason"] == "suspended")
    wait_until(lambda: disk.judge(1)[0]["audit"] is not None)
    (alarm,) = client.get("/calibrations/default/audit-trail").json()["entries"]
    assert (alarm["event"], alarm["errors"], alarm["audited"]) == ("alarm", 40, 40)
    log = disk.server.log.read_text(encoding="utf-8")
    assert log.count("judging continues without draws") == 1
    assert log.count("takes draws for audits again") == 1
