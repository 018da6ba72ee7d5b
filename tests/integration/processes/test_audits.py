"""Audits of a real service that is killed with -9 again and again while labels arrive."""

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.audits.entries import Audit, TrailEntry, read_row
from app.core.fingerprint import drawn_pair
from app.ports import Store
from tests.integration.processes.server import Server
from tests.integration.stores.backends import store_at
from tests.redis_server import RedisServer

KILLS = 4
DRAWS = 400


@pytest.fixture(params=["sqlite", "redis"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/calibration.db"
    return redis_server.url


def settings(store_url: str) -> dict[str, str]:
    return {
        "SCOPE_ENGINE": "scripted",
        "SCOPE_STORE_URL": store_url,
        "SCOPE_AUDIT_RATE": "0.5",
        "SCOPE_AUDIT_TEXTS": "on",
    }


def pair(number: int) -> dict[str, str]:
    gap = f"quality={number % 50 / 10}"
    return {"question": f"Traffic {number}?", "response_a": gap, "response_b": "quality=0"}


def calibrate(client: httpx.Client) -> None:
    examples = [{**pair(-number), "label": "A"} for number in range(1, 61)]
    client.post("/calibrate", json={"examples": examples}).raise_for_status()


def drawn(client: httpx.Client, numbers: range) -> dict[int, str]:
    """Judges these pairs; returns the ids of those that were drawn."""
    body = {"comparisons": [pair(number) for number in numbers]}
    results = client.post("/judge/batch", json=body).raise_for_status().json()["results"]
    both = zip(numbers, results, strict=True)
    return {number: each["audit"]["id"] for number, each in both if each["audit"]}


def send(client: httpx.Client, labels: dict[str, str]) -> dict[str, Any]:
    rows = [{"id": each, "label": label} for each, label in labels.items()]
    answer = client.post("/audits/labels", json={"labels": rows}).raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def listed(client: httpx.Client) -> dict[str, str | None]:
    """Id -> label of all audits."""
    found: dict[str, str | None] = {}
    after: int | None = 0
    while after is not None:
        page = client.get(f"/audits?limit=1000&after={after}").raise_for_status().json()
        found |= {each["id"]: each["label"] for each in page["audits"]}
        after = page["next_after"]
    return found


def kept_texts(client: httpx.Client) -> tuple[int, int, dict[int, str]]:
    """Open audits, those without texts, and the questions of some by the number of their pair."""
    page = client.get("/audits?texts=true").raise_for_status().json()
    shown = {drawn_pair(each["id"]): each["texts"]["question"] for each in page["audits"]}
    return page["open"], page["without_texts"], shown


@asynccontextmanager
async def store_of(store_url: str) -> AsyncIterator[Store]:
    """The store of a service, without the service."""
    store = store_at(store_url.replace("sqlite:///", "sqlite://"))
    await store.open()
    yield store
    await store.close()


async def stored(store_url: str) -> tuple[dict[str, str | None], list[TrailEntry], int]:
    """Id -> label of all audits, changes of labels, and the number of texts, read directly."""
    async with store_of(store_url) as store:
        rows = [read_row(row) for row in await store.audits("default", after=0, limit=100_000)]
        audits = [row for row in rows if isinstance(row, Audit)]
        texts = await store.audit_texts("default", [audit.key for audit in audits])
    trail = [row for row in rows if isinstance(row, TrailEntry) and row.before is not None]
    return {audit.id: audit.label for audit in audits}, trail, len(texts)


def test_kill_9_while_labels_arrive_loses_no_draw_and_takes_no_label_twice(
    store_url: str, tmp_path: Path
) -> None:
    rng = random.Random(16)
    told: dict[str, str] = {}
    interrupted = written = 0
    with Server(tmp_path, settings(store_url)) as server:
        calibrate(server.client)
        usual_s = 0.02
        for number in range(KILLS):
            new = drawn(server.client, range(number * DRAWS, (number + 1) * DRAWS))
            ids = list(new.values())
            batch = {each: rng.choice(("A", "B", "tie")) for each in ids}
            answers: list[dict[str, Any]] = []

            def post(labels: dict[str, str] = batch, into: list[Any] = answers) -> None:
                with suppress(httpx.TransportError):
                    into.append(send(server.client, labels))

            poster = threading.Thread(target=post)
            poster.start()
            # One kill in each part of the time that the labels take.
            time.sleep(usual_s * number / KILLS)
            server.kill()
            poster.join()
            server.start()
            interrupted += not answers
            there = listed(server.client)
            assert set(there) >= set(told) | set(batch), "a draw was lost"
            taken = {each for each in batch if there[each] is not None}
            # All labels of the batch, or none; all of them if the service has said so.
            assert taken in (set(), set(batch))
            assert taken or not answers
            written += bool(taken)
            texts = (
                {} if taken else {drawn_pair(each): f"Traffic {of}?" for of, each in new.items()}
            )
            opened, without_texts, shown = kept_texts(server.client)
            assert (opened, without_texts, bool(shown)) == (len(texts), 0, bool(texts))
            assert shown.items() <= texts.items()
            begun = time.monotonic()
            again = send(server.client, batch)
            usual_s = time.monotonic() - begun
            counts = (again["labelled"], again["unchanged"], again["updated"], again["unknown"])
            assert counts == ((0, len(batch), 0, 0) if taken else (len(batch), 0, 0, 0))
            told |= batch
        assert listed(server.client) == told
    assert asyncio.run(stored(store_url)) == (told, [], 0)
    assert interrupted >= 1
    print(f"{KILLS} kills: {interrupted} interrupted, {written} written")
