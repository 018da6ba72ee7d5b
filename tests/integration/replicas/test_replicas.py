"""Replicas on one Redis act as one service: each sees the others' writes within a second."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.replicas.fleet import Fleet, failures, fleet_of, rolling_restart
from tests.patience import PATIENCE_S, until
from tests.traffic import ALPHA, BATCH, Answer, Client, batches_of, pair
from tests.unit.api.keyring import key_of

# The promised delay; polling alone keeps it.
WITHIN_S = 1.0
_PAUSE_S = 0.005
_POSTS = 6
_WRITERS = 4
_POSTS_OF_A_WRITER = 5


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet_of(tmp_path_factory.mktemp("fleet")) as running:
        yield running


class Replica(Client):
    """A client of one replica for one calibration set."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(port)
        self.name = name
        self.path = f"/calibrations/{name}"

    async def post(self, *batches: int) -> Answer:
        """Adds numbered batches."""
        answer = await self.ask("POST", "/calibrate", batches_of(self.name, batches))
        assert answer.status == 200, answer
        return answer

    async def judgment(self) -> Answer:
        """Judges one pair with the set."""
        asked, _ = pair(0)
        return await self.ask("POST", "/judge", {**asked, "alpha": ALPHA, "calibration": self.name})

    async def used(self) -> tuple[int, int]:
        """Version and n of the calibration that a judgment rests on; zeros if the set is gone."""
        answer = await self.judgment()
        if answer.outcome == "404 calibration_not_found":
            return 0, 0
        assert answer.status == 200, answer
        named = answer.body["calibration"]
        return named["version"], named["n"]

    async def until_used(self, version: int) -> float:
        """Judges until an answer rests on this version; returns the seconds."""
        loop = asyncio.get_running_loop()
        began, held_up_s = loop.time(), 0.0
        while (await self.used())[0] != version:
            assert loop.time() - began < PATIENCE_S, f"version {version} did not arrive in time"
            slept = loop.time()
            await asyncio.sleep(_PAUSE_S)
            held_up_s += loop.time() - slept - _PAUSE_S
        # Time in which other work kept this process from running is not the replica's delay.
        return loop.time() - began - held_up_s

    async def shown(self) -> list[Any]:
        """Everything that the service shows of the set."""
        return [(await self.ask("GET", self.path + part)).body for part in ("", "/versions")]


async def test_a_change_at_one_replica_is_used_by_the_other_within_a_second(fleet: Fleet) -> None:
    one, other = (Replica(each.port, "changed") for each in fleet.replicas)
    async with one, other:
        stopping = asyncio.Event()

        async def judge(replica: Replica) -> list[int]:
            versions = []
            while not stopping.is_set():
                versions.append((await replica.used())[0])
                await asyncio.sleep(0.002)
            # On a busy machine the last judgment may have begun before the last post.
            versions.append((await replica.used())[0])
            return versions

        await one.post(0)
        judging = [asyncio.ensure_future(judge(each)) for each in (one, other)]
        for version in range(2, _POSTS + 2):
            writer, reader = (one, other) if version % 2 else (other, one)
            assert (await writer.post(version)).body["version"] == version
            assert await reader.until_used(version) < WITHIN_S
            # The replica that wrote the version uses it at once.
            assert await one.used() == await other.used() == (version, version * BATCH)
        stopping.set()
        for versions in await asyncio.gather(*judging):
            assert versions == sorted(versions)
            assert versions[-1] == _POSTS + 1
        assert (await one.ask("POST", f"{one.path}/rollback", {"version": 1})).status == 200
        assert await other.until_used(_POSTS + 2) < WITHIN_S
        assert await other.used() == (_POSTS + 2, BATCH)
        assert (await one.ask("DELETE", one.path)).status == 204
        assert await other.until_used(0) < WITHIN_S


async def test_two_replicas_that_calibrate_at_once_lose_nothing_and_double_nothing(
    fleet: Fleet,
) -> None:
    one, other = (Replica(each.port, "both") for each in fleet.replicas)

    async def write(client: Replica, writer: int) -> list[Answer]:
        first = writer * _POSTS_OF_A_WRITER
        # Each writer has batches of its own, and one that all writers post.
        return [
            await client.post(batch) for batch in (*range(first, first + _POSTS_OF_A_WRITER), 1000)
        ]

    async with one, other:
        written = await asyncio.gather(
            *(write(one if i % 2 else other, i) for i in range(_WRITERS))
        )
        found, trail = await one.shown()
    for each in written:
        versions = [answer.body["version"] for answer in each[:-1]]
        assert versions == sorted(set(versions))
    distinct = _WRITERS * _POSTS_OF_A_WRITER + 1
    added = sum(answer.body["added"] for answer in itertools.chain(*written))
    assert (found["n"], found["version"], added) == (distinct * BATCH, distinct, distinct * BATCH)
    changes = [(change["version"], change["n"]) for change in trail["versions"]]
    assert (
        changes == [(number, number * BATCH) for number in range(distinct, 0, -1)][: len(changes)]
    )


async def test_a_rolling_restart_behind_the_shipped_proxy_fails_no_request(fleet: Fleet) -> None:
    traffic = await rolling_restart(fleet)
    assert traffic.wrong == []
    assert not failures(traffic)
    # Without load the test would show nothing.
    assert traffic.verdicts > 500


async def test_a_killed_replica_fails_no_judgment_behind_the_shipped_proxy(fleet: Fleet) -> None:
    killed = fleet.replicas[0]
    async with Replica(fleet.front.port, "killed") as client:
        await client.post(0)
        answers: list[Answer] = []
        stopping = asyncio.Event()

        async def judge() -> None:
            while not stopping.is_set():
                answers.append(await client.judgment())

        judging = [asyncio.ensure_future(judge()) for _ in range(4)]
        await until(lambda: len(answers) > 40)
        # Requests to it are in flight, and more arrive until the proxy's checks notice.
        await asyncio.to_thread(killed.kill)
        seen = len(answers)
        await until(lambda: len(answers) > seen + 200)
        stopping.set()
        await asyncio.gather(*judging)
        await asyncio.to_thread(killed.start)
    statuses = [answer.status for answer in answers]
    assert set(statuses) <= {200, 0}
    # The proxy cannot repeat a request whose answer had begun: the client sees it cut, status 0.
    # Four were in flight, and most of them were repeated.
    assert statuses.count(0) <= 2


async def test_the_shipped_proxy_logs_no_texts_and_no_keys(fleet: Fleet) -> None:
    async with Client(fleet.front.port) as client:
        body = batches_of("logged", [0])
        posted = await client.ask("POST", "/calibrate?secret=1", body)
        assert posted.status == 200
        # The metrics of one replica, which Prometheus reads directly.
        for path in ("/metrics", "/%6Detrics"):
            assert (await client.ask("GET", path)).status == 404
    await until(lambda: " GET /metrics " in fleet.front.log.read_text())
    lines = fleet.front.log.read_text().splitlines()
    texts = ("secret", "quality", key_of("fleet"))
    assert [line for line in lines if " POST /calibrate status=200 " in line]
    assert not [line for line in lines if any(text in line for text in texts)]
