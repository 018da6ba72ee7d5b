"""The queue with pairs of the pool, whose texts only the person who labels has."""

from typing import Any

import httpx
import pytest

from app.wire.labelling import MOST_NAMED
from tests.serving import client_of
from tests.unit.api.problems import comparison, problem
from tests.unit.api.test_audits import drawn
from tests.unit.api.test_label_queue import AgeingStore

QUEUE = "/calibrations/default/queue"
PAIRS = [comparison(question=f"Pool {i}?", response_a=f"quality={i / 20 + 1}") for i in range(20)]


async def pooled(client: httpx.AsyncClient) -> list[str]:
    """Adds pairs to the pool; returns the digests of those that need a label, the surest first."""
    body = {"comparisons": PAIRS}
    (await client.post("/calibrations/default/pool", json=body)).raise_for_status()
    return await needed(client)


async def needed(client: httpx.AsyncClient) -> list[str]:
    found = (await client.get("/calibrations/default/next?alpha=0.3&delta=0.2")).json()
    digests: list[str] = found["digests"]
    return digests


async def take(client: httpx.AsyncClient, reviewer: str, digests: list[str], **more: Any) -> Any:
    body = {"take": 2, "reviewer": reviewer, "digests": digests, **more}
    return (await client.post(QUEUE, json=body)).raise_for_status().json()["pairs"]


async def taken(
    client: httpx.AsyncClient, reviewer: str, digests: list[str], **more: Any
) -> list[str]:
    """The tickets of the pairs that a person gets."""
    return [pair["ticket"] for pair in await take(client, reviewer, digests, **more)]


async def test_two_people_get_different_pairs_of_the_pool_in_its_order() -> None:
    store = AgeingStore()
    async with client_of(store=store) as client:
        digests = await pooled(client)
        assert len(digests) >= 4
        assert await taken(client, "anna", digests) == digests[:2]
        assert await taken(client, "anna", digests) == digests[:2]
        assert await taken(client, "ben", digests) == digests[2:4]
        store.pass_time(601)
        assert await taken(client, "ben", digests) == digests[:2]


async def test_a_pair_of_the_pool_has_no_texts_and_its_label_goes_to_calibrate() -> None:
    async with client_of() as client:
        digests = await pooled(client)
        (pair, _) = await take(client, "anna", digests)
        assert (pair["question"], pair["left"], pair["right"]) == (None, None, None)
        assert (pair["is_pooled"], pair["digest"], pair["ticket"]) == (True, *[digests[0]] * 2)
        answers = {"answers": [{"ticket": pair["ticket"], "choice": "left"}]}
        found = (await client.post(f"{QUEUE}/answers", json=answers)).json()
        assert [each["error"]["code"] for each in found["errors"]] == ["invalid_request"]
        examples = [{**each, "label": "A"} for each in PAIRS]
        (await client.post("/calibrate", json={"examples": examples})).raise_for_status()
        assert await take(client, "anna", digests) == []


async def test_a_skipped_pair_of_the_pool_comes_last() -> None:
    async with client_of() as client:
        digests = await pooled(client)
        body = {"reviewer": "anna", "tickets": (await taken(client, "anna", digests))[:1]}
        released = (await client.post(f"{QUEUE}/release", json=body)).json()
        assert released["released"] == 1
        assert await taken(client, "anna", digests) == digests[1:3]
        assert await taken(client, "ben", digests) == [digests[0], digests[3]]


async def test_audits_come_first_and_an_audit_is_no_pair_of_the_pool() -> None:
    async with client_of(audit_rate=1.0, audit_texts=True) as client:
        examples = [{**comparison(question=f"Known {i}?"), "label": "A"} for i in range(40)]
        (await client.post("/calibrate", json={"examples": examples})).raise_for_status()
        await drawn(client, [1, 2])
        digests = await pooled(client)
        both = await take(client, "anna", digests, take=3)
        assert [pair["is_pooled"] for pair in both] == [False, False, True]
        # Opinions of two people are about audits only.
        audits = await take(client, "ben", digests, take=5, reviewers=2)
        assert [pair["is_pooled"] for pair in audits] == [False, False]


async def test_the_words_count_the_labels_until_the_next_test() -> None:
    async with client_of() as client:
        digests = await pooled(client)
        path = "/calibrations/default/next?alpha=0.3&delta=0.2"
        found = (await client.get(path)).json()
        assert found["words"] == (
            f"{len(digests)} more labels until the next test of the threshold at alpha 0.3."
        )
        examples = [{**each, "label": "A"} for each in PAIRS]
        (await client.post("/calibrate", json={"examples": examples})).raise_for_status()
        found = (await client.get(path)).json()
        assert found["words"] == "The threshold at alpha 0.3 is decided."


@pytest.mark.parametrize("digests", [["x"], ["0" * 64] * (MOST_NAMED + 1)])
async def test_digests_out_of_range_are_refused(digests: list[str]) -> None:
    async with client_of() as client:
        await pooled(client)
        body = {"take": 1, "digests": digests}
        problem(await client.post(QUEUE, json=body), "invalid_request")
