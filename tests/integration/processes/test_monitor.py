"""Two real replicas on one store: the same monitor on both, after kill -9, and abstentions."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes.server import Server
from tests.patience import wait_until
from tests.redis_server import RedisServer
from tests.unit.api.problems import comparison, examples

DEFAULT = "/calibrations/default"


@pytest.fixture(params=["sqlite", "redis"])
def replicas(
    request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer
) -> Iterator[list[Server]]:
    url = f"sqlite:///{tmp_path}/scope.db" if request.param == "sqlite" else redis_server.url
    settings = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": url, "SCOPE_AUDIT_RATE": "1"}
    settings |= {"SCOPE_ON_ALARM": "abstain"}
    with ExitStack() as stack:
        servers = []
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            servers.append(stack.enter_context(Server(tmp_path / name, settings)))
        yield servers


def judge(server: Server, numbers: Sequence[int]) -> list[dict[str, Any]]:
    pairs = [comparison(question=f"Judged {number}?") for number in numbers]
    answer = server.client.post("/judge/batch", json={"comparisons": pairs}).raise_for_status()
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def label(server: Server, judged: Sequence[dict[str, Any]], given: str) -> None:
    labels = [{"id": each["audit"]["id"], "label": given} for each in judged]
    server.client.post("/audits/labels", json={"labels": labels}).raise_for_status()


def criteria(server: Server) -> Any:
    answer = server.client.get(f"{DEFAULT}/monitor").raise_for_status()
    return answer.json()["criteria"]


def test_replicas_agree_after_a_kill_and_both_abstain_after_an_alarm(
    replicas: list[Server],
) -> None:
    one, other = replicas
    one.client.post("/calibrate", json={"examples": examples(100)}).raise_for_status()
    judged = judge(one, range(20)) + judge(other, range(20, 40))
    # Both judge the same pairs: each is drawn once.
    assert [each["audit"] for each in judge(other, range(20))] == [
        each["audit"] for each in judged[:20]
    ]
    label(other, judged[:5], "A")
    (found,) = criteria(one)
    assert (found["audited"], found["open"], found["alarm"]) == (5, 35, False)
    assert criteria(other) == [found]
    one.kill()
    label(other, judged[5:], "B")
    (after,) = criteria(other)
    assert (after["audited"], after["open"], after["alarm"]) == (40, 0, True)
    one.start()
    # The restarted replica abstains from its first judgment on; the other one soon does.
    assert {each["reason"] for each in judge(one, range(100, 105))} == {"suspended"}
    numbers = iter(range(200, 10**6))

    def is_suspended(server: Server) -> bool:
        return bool(judge(server, [next(numbers)])[0]["reason"] == "suspended")

    wait_until(lambda: is_suspended(other))
    assert criteria(one) == criteria(other)
    # The alarm was recorded once. A new version of other pairs serves again, on both replicas.
    trails = [each.client.get(f"{DEFAULT}/audit-trail").json()["entries"] for each in replicas]
    assert trails[0] == trails[1]
    assert [each["event"] for each in trails[0]] == ["alarm"]
    one.client.post("/calibrate", json={"examples": examples(101)}).raise_for_status()
    for server in replicas:
        wait_until(lambda: not is_suspended(server))  # noqa: B023
        assert all(not each["alarm"] for each in criteria(server))
        entries = server.client.get(f"{DEFAULT}/audit-trail").json()["entries"]
        assert [each["event"] for each in entries] == ["alarm_ended", "alarm"]
