"""Replicas on one Redis act as one service: each sees the others' writes within a second."""

import asyncio
import itertools
import os
import signal
from pathlib import Path
from typing import Any

from tests.drills.load.client import Answer, Client
from tests.drills.load.material import BATCH, calibrate_body
from tests.drills.load.supervised import service
from tests.drills.replicas.fleet import Fleet
from tests.drills.replicas.rolling import rolling_restart
from tests.drills.replicas.watching import WITHIN_S, Replica, Used
from tests.patience import PATIENCE_S

_POSTS = 6
_WRITERS = 4
_POSTS_OF_A_WRITER = 5


async def test_a_version_posted_at_one_replica_is_used_by_the_other_within_a_second(
    fleet: Fleet,
) -> None:
    one, other = (Replica(each.process, "posted") for each in fleet.replicas)
    async with one, other:
        for version in range(1, _POSTS + 1):
            answer = await one.post(version)
            assert answer.body["version"] == version
            assert await other.until_used(version) < WITHIN_S
            # The replica that wrote the version uses it at once.
            assert await one.used() == await other.used() == Used(version, version * BATCH)


async def test_versions_never_go_back_at_a_replica_that_judges_all_the_time(fleet: Fleet) -> None:
    one, other = (Replica(each.process, "busy") for each in fleet.replicas)
    async with one, other:
        await one.post(0)
        stopping = asyncio.Event()

        async def judge(replica: Replica) -> list[int]:
            versions = []
            while not stopping.is_set():
                versions.append((await replica.used()).version)
                await asyncio.sleep(0.002)
            # On a busy machine the last judgment may have begun before the last post.
            versions.append((await replica.used()).version)
            return versions

        judging = [asyncio.ensure_future(judge(replica)) for replica in (one, other)]
        try:
            for version in range(2, _POSTS + 2):
                writer, reader = (one, other) if version % 2 else (other, one)
                await writer.post(version)
                assert await reader.until_used(version) < WITHIN_S
        finally:
            stopping.set()
            used = await asyncio.gather(*judging)
        for versions in used:
            assert versions == sorted(versions)
            assert versions[-1] == _POSTS + 1


async def test_two_replicas_that_calibrate_at_once_lose_nothing_and_double_nothing(
    fleet: Fleet,
) -> None:
    name, shared = "both", 1000

    async def write(client: Client, writer: int) -> list[Answer]:
        first = writer * _POSTS_OF_A_WRITER
        # Each writer has batches of its own, and one that all writers post.
        batches = [*range(first, first + _POSTS_OF_A_WRITER), shared]
        return [
            await client.ask("POST", "/calibrate", calibrate_body(name, [batch]))
            for batch in batches
        ]

    async with Client(fleet.ports[0]) as one, Client(fleet.ports[1]) as other:
        written = await asyncio.gather(
            *(write(one if i % 2 else other, i) for i in range(_WRITERS))
        )
        found = await one.ask("GET", f"/calibrations/{name}")
        trail = await other.ask("GET", f"/calibrations/{name}/versions?limit=1000")
    answers = list(itertools.chain(*written))
    assert {answer.outcome for answer in answers} == {"200"}
    for each in written:
        versions = [answer.body["version"] for answer in each[:-1]]
        assert versions == sorted(set(versions))
    distinct = _WRITERS * _POSTS_OF_A_WRITER + 1
    assert found.body["n"] == distinct * BATCH
    assert sum(answer.body["added"] for answer in answers) == distinct * BATCH
    changes = trail.body["versions"]
    assert [change["version"] for change in changes] == list(range(distinct, 0, -1))
    assert [change["n"] for change in changes] == [i * BATCH for i in range(distinct, 0, -1)]
    assert found.body["version"] == distinct


async def test_a_replica_with_another_judge_is_refused_and_changes_nothing(
    fleet: Fleet, tmp_path: Path
) -> None:
    name = "of-one-judge"
    async with Replica(fleet.replicas[0].process, name) as replica:
        await replica.post(0)
        before = await _state(replica)
        # The prefill is part of a judge, because it changes the scores.
        other = service(tmp_path, store_url=fleet.redis.url, prefill="[[")
        async with other as running, Replica(running.process, name) as stranger:
            judged = await stranger.judgment()
            calibrated = await stranger.ask("POST", "/calibrate", calibrate_body(name, [1]))
            rolled_back = await stranger.ask(
                "POST", f"/calibrations/{name}/rollback", b'{"version": 1}'
            )
        assert judged.outcome == calibrated.outcome == "409 judge_mismatch"
        assert rolled_back.outcome == "409 judge_mismatch"
        assert await _state(replica) == before
        assert await replica.used() == Used(1, BATCH)


async def _state(replica: Replica) -> list[Any]:
    """Everything that the service shows of a set."""
    path = f"/calibrations/{replica.name}"
    return [(await replica.ask("GET", path + part)).body for part in ("", "/versions")]


async def test_a_rollback_and_a_deletion_at_one_replica_reach_the_other_within_a_second(
    fleet: Fleet,
) -> None:
    one, other = (Replica(each.process, "undone") for each in fleet.replicas)
    path = f"/calibrations/{one.name}"
    async with one, other:
        await one.post(0)
        await one.post(1)
        assert await other.until_used(2) < WITHIN_S
        assert (await one.ask("POST", f"{path}/rollback", b'{"version": 1}')).status == 200
        assert await other.until_used(3) < WITHIN_S
        assert await other.used() == Used(3, BATCH)
        assert (await one.ask("DELETE", path)).status == 204
        assert await other.until_used(0) < WITHIN_S


async def test_a_rolling_restart_behind_the_shipped_proxy_fails_no_request(fleet: Fleet) -> None:
    found = await rolling_restart(fleet)
    assert found.wrong == []
    assert found.failed == 0, found.requests
    assert (found.lost, found.doubled) == (0, 0)
    assert found.restarts == 2
    # Without load the test would show nothing.
    assert found.judgments > 500
    assert found.versions > 5


async def test_a_killed_replica_fails_no_judgment_behind_the_shipped_proxy(fleet: Fleet) -> None:
    killed = fleet.replicas[0]
    async with Replica(fleet.front, "killed") as client:
        await client.post(0)
        answers: list[Answer] = []
        stopping = asyncio.Event()

        async def judge() -> None:
            while not stopping.is_set():
                answers.append(await client.judgment())

        judging = [asyncio.ensure_future(judge()) for _ in range(4)]
        try:
            await _more(answers, 40)
            # Requests to it are in flight, and more arrive until the proxy's checks notice.
            os.killpg(killed.process.popen.pid, signal.SIGKILL)
            await _more(answers, 200)
        finally:
            stopping.set()
            await asyncio.gather(*judging)
            await asyncio.to_thread(killed.start_again)
    statuses = [answer.status for answer in answers]
    assert set(statuses) <= {200, 0}
    # The proxy cannot repeat a request whose answer had begun: the client sees it cut, status 0.
    assert statuses.count(0) <= 1


async def _more(answers: list[Answer], count: int) -> None:
    wanted = len(answers) + count
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if len(answers) >= wanted:
                return
            await asyncio.sleep(0.01)


async def test_the_shipped_proxy_logs_no_texts_and_no_keys(fleet: Fleet) -> None:
    async with Replica(fleet.front, "logged") as client:
        body = calibrate_body("logged", [0])
        posted = await client.ask("POST", "/calibrate?secret=1", body, key="secret-key")
        assert posted.status == 200
        # The metrics of one replica, which Prometheus reads directly.
        for path in ("/metrics", "/%6Detrics"):
            assert (await client.ask("GET", path)).status == 404
    async with asyncio.timeout(PATIENCE_S):
        while True:
            lines = fleet.front.log.read_text().splitlines()
            if any(" GET /metrics " in line for line in lines):
                break
            await asyncio.sleep(0.01)
    assert [line for line in lines if " POST /calibrate status=200 " in line]
    assert not [line for line in lines if "secret" in line or "quality" in line]
