"""kill -9 in the middle of POST /calibrate, many times on one store."""

import random
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.integration.processes.server import Server

_BATCH = 600


class Kills(NamedTuple):
    """The kills of one run.

    Args:
        interrupted: Number of kills that came before the answer.
        committed: Number of kills that came after the commit.
    """

    interrupted: int
    committed: int


class _State(NamedTuple):
    """The visible state of a calibration set; every label changes the accuracy."""

    version: int
    n: int
    accuracy: float | None


def kill_during_calibrate(folder: Path, store_url: str, *, kills: int) -> Kills:
    """Kills a service during POST /calibrate, starts it again and checks the set, `kills` times.

    After each kill the set has either its old version or the new one, whole: no example is lost,
    doubled or half written.

    Args:
        folder: Folder of the service's log.
        store_url: `SCOPE_STORE_URL` of the service; the store is empty.
        kills: Number of kills, at least 2. The last one comes after the answer.

    Raises:
        AssertionError: A write was lost, or written in part.
    """
    rng = random.Random(20)
    settings = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": store_url}
    interrupted, committed = 0, 0
    with Server(folder, settings) as server:
        server.client.get("/calibrations")  # opens the connection
        usual_s = _post(server.client, 0, [])
        for number in range(1, kills + 1):
            # One kill in each part of the time that a post takes.
            delay_s = (number - 1 + rng.random()) / (kills - 1) * usual_s
            before = _state(server)
            answered = _killed(server, number, delay_s if number < kills else None)
            after = _state(server)
            interrupted += not answered
            committed += after != before
            usual_s = _check(server, number, before, after, answered=answered)
    return Kills(interrupted, committed)


def _killed(server: Server, number: int, delay_s: float | None) -> bool:
    """Posts a batch, kills the service and starts it again; returns whether the post was answered.

    Args:
        server: Runs before and after.
        number: Number of the batch.
        delay_s: Seconds between the post and the kill; None to wait for the answer first.
    """
    answers: list[dict[str, Any]] = []
    poster = threading.Thread(target=_post, args=(server.client, number, answers))
    poster.start()
    if delay_s is None:
        poster.join()
    else:
        time.sleep(delay_s)
    server.kill()
    poster.join()
    server.start()
    return bool(answers)


def _check(server: Server, number: int, before: _State, after: _State, *, answered: bool) -> float:
    """Checks the set after a kill, then posts the batch again; returns the seconds of that post."""
    new = (before.version + 1, before.n + _BATCH - _BATCH // 3)
    assert after == before or after[:2] == new, (before, after)
    # A write is durable when its answer is sent.
    if answered:
        assert after[:2] == new, (before, after)
    again: list[dict[str, Any]] = []
    # The next post takes about as long: the service has just started, and the set has this size.
    usual_s = _post(server.client, number, again)
    added = new[1] - after.n
    assert "added" in again[0], again[0]
    assert (again[0]["added"], again[0]["updated"]) == (added, _BATCH - added)
    final = _state(server)
    # A batch that was written before the kill changes nothing when it is posted again.
    assert final[:2] == new
    # The interrupted write had every label, or none of them.
    assert after == before or after.accuracy == final.accuracy
    return usual_s


def _batch(number: int) -> list[dict[str, Any]]:
    """The examples of one post; a third of them are in the post before, with another label."""
    first = number * (_BATCH * 2 // 3)
    return [
        {
            "question": f"question {i}",
            "response_a": f"quality={i % 7} of {i}",
            "response_b": f"quality={i % 5} of {i}",
            "label": "AB"[(i + number) % 2],
        }
        for i in range(first, first + _BATCH)
    ]


def _state(server: Server) -> _State:
    answer = server.client.get("/calibrations/default")
    if answer.status_code == 404:
        return _State(0, 0, None)
    content = answer.json()
    return _State(content["version"], content["n"], content["accuracy"])


def _post(client: httpx.Client, number: int, answers: list[dict[str, Any]]) -> float:
    """Posts a batch and appends its answer, if there is one; returns the seconds that it took."""
    begun = time.monotonic()
    with suppress(httpx.TransportError):
        answers.append(client.post("/calibrate", json={"examples": _batch(number)}).json())
    return time.monotonic() - begun
