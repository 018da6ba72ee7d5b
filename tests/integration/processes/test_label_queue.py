"""The queue of a real service that is killed: no acknowledged label is lost, and none doubled."""

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.processes.server import Server
from tests.integration.processes.test_audits import (
    calibrate,
    drawn,
    folded,
    listed,
    settings,
    text_keys,
)
from tests.redis_server import RedisServer

KILLS = 3
DRAWS = 200
# Each of them has two answers.
OPINION_DRAWS = 60
QUEUE = "/calibrations/default/queue"
PEOPLE = ("anna", "ben", "cem")


@pytest.fixture(params=["sqlite", "redis"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/calibration.db"
    return redis_server.url


class Person:
    """One person who labels as fast as the service gives pairs, through kills of it."""

    def __init__(self, server: Server, name: str, seed: int, *, reviewers: int = 1) -> None:
        self._server = server
        self._reviewers = reviewers
        self._rng = random.Random(seed)
        self.name = name
        # Id of an audit -> label that the service has acknowledged.
        self.acknowledged: dict[str, str] = {}
        # The pairs that this person was shown, with the number of times.
        self.shown: dict[str, int] = {}
        self.repeated = self.refused = 0
        self._unsure: dict[str, str] = {}

    def label(self, until: threading.Event) -> None:
        """Labels until the event is set or the service is gone."""
        while not until.is_set():
            with suppress(httpx.TransportError):
                if not self._step():
                    return
                continue
            return

    def _step(self) -> bool:
        answers = self._unsure or self._taken()
        if not answers:
            return False
        # An answer without an acknowledgement is sent again.
        self._unsure = answers
        rows = [{"ticket": ticket, "choice": choice} for ticket, choice in answers.items()]
        found = self._post("/answers", answers=rows, reviewers=self._reviewers)
        self._unsure = {}
        self.repeated += found["again"]
        refused = {each["index"] for each in found["errors"]}
        self.refused += len(refused)
        assert found["corrected"] == 0
        assert found["labelled"] + found["again"] + len(refused) == len(answers)
        for index, (ticket, choice) in enumerate(answers.items()):
            if index not in refused:
                audit, left, _ = ticket.split(".")
                assert audit not in self.acknowledged, "the service showed a labelled pair"
                other = {"A": "B", "B": "A"}[left]
                label = {"left": left, "right": other, "tie": "tie"}[choice]
                self.acknowledged[audit] = label
        return True

    def _taken(self) -> dict[str, str]:
        asked = {"take": self._rng.randint(1, 5), "reviewers": self._reviewers}
        pairs = self._post("", **asked)["pairs"]
        for pair in pairs:
            audit = pair["ticket"].partition(".")[0]
            self.shown[audit] = self.shown.get(audit, 0) + 1
        return {pair["ticket"]: self._rng.choice(("left", "right", "tie")) for pair in pairs}

    def _post(self, path: str, **body: Any) -> Any:
        body = {"reviewer": self.name, **body}
        return self._server.client.post(QUEUE + path, json=body).raise_for_status().json()


def label_through_kills(
    server: Server, people: list[Person], *, total: int, kills: int
) -> Iterator[None]:
    """Lets people label all pairs while the service is killed; yields after each kill.

    Args:
        server: The service.
        people: The people.
        total: Number of answers that all of them can give.
        kills: Number of kills.
    """
    for number in range(kills + 1):
        is_last = number == kills
        stop = threading.Event()
        threads = [threading.Thread(target=person.label, args=(stop,)) for person in people]
        for thread in threads:
            thread.start()
        if not is_last:
            # Each kill comes after some more labels, at another moment of a request.
            enough = (number + 1) * total // (kills + 2)
            while sum(len(person.acknowledged) for person in people) < enough:
                time.sleep(0.001)
                assert any(thread.is_alive() for thread in threads)
            server.kill()
            stop.set()
        for thread in threads:
            thread.join()
        if not is_last:
            server.start()
            yield


def test_kill_9_while_people_label_loses_no_label_and_takes_none_twice(
    store_url: str, tmp_path: Path
) -> None:
    with Server(tmp_path, settings(store_url)) as server:
        calibrate(server.client)
        people = [Person(server, name, seed) for seed, name in enumerate(PEOPLE)]
        ids = set(drawn(server.client, range(DRAWS)).values())
        for _ in label_through_kills(server, people, total=len(ids), kills=KILLS):
            there = listed(server.client)
            for person in people:
                for audit, label in person.acknowledged.items():
                    assert there[audit] == label, "an acknowledged label was lost"
        told = {k: v for person in people for k, v in person.acknowledged.items()}
        assert sum(len(person.acknowledged) for person in people) == len(told) == len(ids)
        assert listed(server.client) == told
        # A lease outlives the service, so nobody is shown the pair of somebody else.
        assert sum(len(person.shown) for person in people) == len(ids)
        assert sum(person.refused for person in people) == 0
    ledger, labels = asyncio.run(folded(store_url))
    assert {audit.draw.id: audit.label for audit in ledger.audits()} == told
    assert len(labels) == len(told), "a label was taken twice"
    assert asyncio.run(text_keys(store_url)) == set()
    print(f"{len(told)} labels; {sum(person.repeated for person in people)} sent twice")


def test_kill_9_while_two_people_label_each_pair_loses_no_opinion_and_takes_none_twice(
    tmp_path: Path,
) -> None:
    store_url = f"sqlite:///{tmp_path}/calibration.db"
    with Server(tmp_path, settings(store_url)) as server:
        calibrate(server.client)
        people = [
            Person(server, name, seed, reviewers=2) for seed, name in enumerate(PEOPLE, start=29)
        ]
        ids = set(drawn(server.client, range(OPINION_DRAWS)).values())
        total = 2 * len(ids)
        assert len(list(label_through_kills(server, people, total=total, kills=1))) == 1
    ledger, labels = asyncio.run(folded(store_url))
    assert labels == []
    told = {
        (audit, f"{person.name}@anonymous"): label
        for person in people
        for audit, label in person.acknowledged.items()
    }
    there = {
        (audit.draw.id, opinion.by): opinion.label
        for audit in ledger.audits()
        for opinion in audit.opinions
    }
    assert told == there
    assert len(there) == total
    for audit in ledger.audits():
        one, other = (opinion.label for opinion in audit.opinions)
        assert audit.label == (one if one == other else None)
