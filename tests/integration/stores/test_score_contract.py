"""The contract of the stores of scores: slots with texts that expire."""

import asyncio

import pytest

from app.ports import Store
from tests.integration.stores.backends import put_rows, read, state, stored_rows, write
from tests.integration.stores.conftest import Connect
from tests.patience import PATIENCE_S


async def test_empty_slots_have_nothing(store: Store) -> None:
    assert await store.kept_scores([]) == {}
    assert await store.kept_scores([0, 1, 10**9]) == {}


@pytest.mark.parametrize("count", [1, 8, 3000])
async def test_a_slot_has_the_newest_text(store: Store, count: int) -> None:
    first = {slot: f'["{slot}", 1.5, null, 1.0]' for slot in range(count)}
    await store.keep_scores(first, seconds=600)
    newer = {0: "newer", 10**9: "far"}
    await store.keep_scores(newer, seconds=600)
    assert await store.kept_scores([*first, 10**9, 10**6]) == first | newer


async def test_other_clients_see_the_texts(connect: Connect) -> None:
    writer, reader = await connect(), await connect()
    await writer.keep_scores({7: "text"}, seconds=600)
    assert await reader.kept_scores([7]) == {7: "text"}


async def test_a_text_expires(store: Store) -> None:
    await store.keep_scores({1: "short"}, seconds=1)
    await store.keep_scores({2: "long"}, seconds=600)
    async with asyncio.timeout(PATIENCE_S):
        while await store.kept_scores([1]):
            pass
    assert await store.kept_scores([1, 2]) == {2: "long"}


async def test_sets_and_audits_do_not_see_scores(store: Store) -> None:
    assert await write(store, state(1), expected=None)
    await put_rows(store, {"key": "x"})
    before = await read(store)
    await store.keep_scores(dict.fromkeys(range(100), "text"), seconds=600)
    assert await read(store) == before
    assert await store.names() == ["default"]
    assert await stored_rows(store) == {"key": "x"}


async def test_what_a_caller_owes_is_the_same_for_all_who_share_the_store(
    connect: Connect,
) -> None:
    one, other = await connect(), await connect()
    if await one.charge("k", 1.0, most_owed_s=50.0) is None:
        assert await other.charge("k", 100.0, most_owed_s=0.0) is None
        return
    owed = await other.charge("k", 100.0, most_owed_s=50.0)
    assert owed is not None
    assert 0.0 <= owed <= 1.0
    for client in (one, other):
        # More is owed than allowed, so that nothing is added.
        owed = await client.charge("k", 100.0, most_owed_s=50.0)
        assert owed is not None
        assert 50.0 < owed <= 101.0
    assert await other.charge("another", 1.0, most_owed_s=0.0) == 0.0
    await asyncio.sleep(1.05)
    assert await one.charge("another", 1.0, most_owed_s=0.0) == 0.0
