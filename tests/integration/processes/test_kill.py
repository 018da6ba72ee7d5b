"""kill -9 in the middle of /calibrate: nothing lost, nothing twice, nothing in between."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.integration.processes.server import Server
from tests.redis_server import RedisServer

KILLS = 5
BATCH = 600


@pytest.fixture(params=["sqlite", "redis"])
def store_url(
    request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer
) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/calibration.db"
    else:
        redis_server.command("FLUSHALL")
        yield redis_server.url


def batch(number: int) -> list[dict[str, Any]]:
    """The examples of one post; a third of them stood in the post before, with another label."""
    first = number * (BATCH * 2 // 3)
    return [
        {
            "question": f"question {i}",
            "response_a": f"quality={i % 7} of {i}",
            "response_b": f"quality={i % 5} of {i}",
            "label": "AB"[(i + number) % 2],
        }
        for i in range(first, first + BATCH)
    ]


class State(NamedTuple):
    """What can be seen of a set; the accuracy moves with every label."""

    version: int
    n: int
    accuracy: float | None


def state(server: Server) -> State:
    answer = server.client.get("/calibrations/default")
    if answer.status_code == 404:
        return State(0, 0, None)
    content = answer.json()
    return State(content["version"], content["n"], content["accuracy"])


def post(client: httpx.Client, number: int, answers: list[dict[str, Any]]) -> float:
    """Posts a batch and takes its answer, if there is one; returns the seconds that it took."""
    begun = time.monotonic()
    with suppress(httpx.TransportError):
        answers.append(client.post("/calibrate", json={"examples": batch(number)}).json())
    return time.monotonic() - begun


def test_a_kill_during_calibrate_leaves_the_old_version_or_the_new_one(
    store_url: str, tmp_path: Path
) -> None:
    rng = random.Random(20)
    settings = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": store_url}
    interrupted, committed = 0, 0
    with Server(tmp_path, settings) as server:
        server.client.get("/calibrations")  # the connection stands
        usual_s = post(server.client, 0, [])
        for number in range(1, KILLS + 1):
            before = state(server)
            fresh = BATCH - BATCH // 3
            answers: list[dict[str, Any]] = []
            poster = threading.Thread(target=post, args=(server.client, number, answers))
            poster.start()
            if number == KILLS:
                # After the answer: what it acknowledges is there.
                poster.join()
            else:
                # One kill in each part of the time that a post takes.
                time.sleep((number - 1 + rng.random()) / (KILLS - 1) * usual_s)
            server.kill()
            poster.join()
            server.start()

            after = state(server)
            new = (before.version + 1, before.n + fresh)
            assert after == before or after[:2] == new
            # What was answered with 200 is there: durable at the response.
            if answers:
                assert after[:2] == new
            interrupted += not answers
            committed += after != before
            again: list[dict[str, Any]] = []
            # As long as the next post may take: a service just started, a set of this size.
            usual_s = post(server.client, number, again)
            added = new[1] - after.n
            assert "added" in again[0], again[0]
            assert (again[0]["added"], again[0]["updated"]) == (added, BATCH - added)
            final = state(server)
            # What was written before the kill changes nothing when it is posted again.
            assert final[:2] == new
            # The interrupted write had every label, or none of them.
            assert after == before or after.accuracy == final.accuracy
    print(f"{KILLS} kills: {interrupted} before the answer, {committed} after the commit")
    # Kills that all came after the answer, or before the work, would show nothing.
    assert interrupted >= 1
    assert committed >= 1
