"""The contract of leases: one holder for an item, until he ends it or its time has passed."""

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from app.core.errors import StoreUnavailableError
from app.ports import Lease, Store
from app.stores.redis import RedisStore
from app.stores.redis_keys import LEASES_PREFIX
from app.stores.sqlite import SqliteStore
from tests.integration.stores.backends import audit_log, state, write
from tests.integration.stores.conftest import Connect
from tests.patience import PATIENCE_S
from tests.redis_server import RedisServer

LONG_S = 600
ODD = "anna@ключ ключ\n1 2"


async def holders(store: Store, room: str = "room") -> dict[str, str]:
    return {item: lease.holder for item, lease in (await store.leases(room)).items()}


async def test_an_empty_room_has_no_leases(store: Store) -> None:
    assert await store.leases("room") == {}
    assert await store.end_leases("room", ["a"], holder="anna") == 0
    assert await store.lease("room", [], holder="anna", most=1, seconds=LONG_S) == {}
    assert await store.leases("room") == {}


async def test_a_holder_gets_the_first_items_and_others_the_next(store: Store) -> None:
    before = time.time()
    got = await store.lease("room", ["b", "a", "c"], holder="anna", most=2, seconds=LONG_S)
    assert list(got) == ["b", "a"]
    # Redis has a clock of its own, with milliseconds.
    assert all(abs(until - before - LONG_S) < PATIENCE_S for until in got.values())
    other = await store.lease("room", ["a", "b", "c", "d"], holder="ben", most=5, seconds=LONG_S)
    assert list(other) == ["c", "d"]
    assert await store.lease("room", ["a", "c"], holder="cem", most=1, seconds=LONG_S) == {}
    assert await store.leases("room") == {
        **{item: Lease(holder="anna", until=until) for item, until in got.items()},
        **{item: Lease(holder="ben", until=until) for item, until in other.items()},
    }


async def test_a_lease_begins_anew_when_its_holder_asks_again(store: Store) -> None:
    first = await store.lease("room", ["a"], holder="anna", most=1, seconds=60)
    again = await store.lease("room", ["a", "b"], holder="anna", most=1, seconds=LONG_S)
    assert list(again) == ["a"]
    assert again["a"] > first["a"] + 60
    assert await holders(store) == {"a": "anna"}


async def test_a_holder_ends_his_own_leases_only(store: Store) -> None:
    await store.lease("room", ["a", "b"], holder="anna", most=2, seconds=LONG_S)
    await store.lease("room", ["c"], holder="ben", most=1, seconds=LONG_S)
    assert await store.end_leases("room", ["a", "c", "x"], holder="anna") == 1
    assert await store.end_leases("room", ["a"], holder="anna") == 0
    assert await holders(store) == {"b": "anna", "c": "ben"}
    assert list(await store.lease("room", ["a"], holder="ben", most=1, seconds=LONG_S)) == ["a"]


async def test_rooms_do_not_see_each_other(store: Store) -> None:
    await store.lease("room", ["a"], holder="anna", most=1, seconds=LONG_S)
    await store.lease("room/anna", ["a"], holder="ben", most=1, seconds=LONG_S)
    assert await store.end_leases("room", ["a"], holder="ben") == 0
    assert await holders(store) == {"a": "anna"}
    assert await holders(store, "room/anna") == {"a": "ben"}


async def test_a_lease_comes_back_after_its_time(store: Store) -> None:
    await store.lease("room", ["long"], holder="anna", most=1, seconds=LONG_S)
    await store.lease("room", ["short"], holder="anna", most=1, seconds=1)
    async with asyncio.timeout(PATIENCE_S):
        while not await store.lease("room", ["short"], holder="ben", most=1, seconds=LONG_S):
            pass
    assert await holders(store) == {"long": "anna", "short": "ben"}


async def test_an_ended_lease_is_not_shown_and_cannot_be_ended(store: Store) -> None:
    await store.lease("room", ["a"], holder="anna", most=1, seconds=1)
    async with asyncio.timeout(PATIENCE_S):
        while await store.leases("room"):
            pass
    assert await store.end_leases("room", ["a"], holder="anna") == 0


async def test_any_text_may_be_a_holder_or_an_item(store: Store) -> None:
    await store.lease("room", [ODD, "b"], holder=ODD, most=5, seconds=LONG_S)
    assert await holders(store) == {ODD: ODD, "b": ODD}
    assert await store.end_leases("room", [ODD], holder=ODD) == 1


async def test_clients_that_ask_at_once_get_different_items(connect: Connect) -> None:
    clients = [await connect() for _ in range(4)]
    items = [f"item {number}" for number in range(40)]
    for _ in range(5):
        got = await asyncio.gather(
            *(
                client.lease("room", items, holder=f"person {i}", most=2, seconds=LONG_S)
                for i, client in enumerate(clients)
            )
        )
        taken = [item for each in got for item in each]
        assert len(taken) == len(set(taken)) == 8
        assert set(await holders(clients[0])) == set(taken)
        for i, each in enumerate(got):
            assert await clients[-1].end_leases("room", each, holder=f"person {i}") == 2


async def test_sets_and_audits_do_not_see_leases(store: Store) -> None:
    assert await write(store, state(1), expected=None)
    await store.append_audits(["entry"], texts={"a": "x"})
    await store.lease("default", ["a"], holder="anna", most=1, seconds=LONG_S)
    assert await store.names() == ["default"]
    assert await audit_log(store) == ["entry"]
    assert await store.audit_text_keys() == {"a"}


async def test_redis_forgets_a_room_whose_leases_have_ended(redis_server: RedisServer) -> None:
    store = RedisStore(redis_server.url)
    await store.open()
    await store.lease("room", ["a"], holder="anna", most=1, seconds=1)
    await store.lease("other", ["a"], holder="anna", most=1, seconds=LONG_S)
    await store.lease("other", ["b"], holder="anna", most=1, seconds=1)
    deadline = time.monotonic() + PATIENCE_S
    while redis_server.command("EXISTS", f"{LEASES_PREFIX}room") != 0:
        assert time.monotonic() < deadline
    # The second lease of the other room began later.
    while await holders(store, "other") != {"a": "anna"}:
        assert time.monotonic() < deadline
    await store.close()


async def test_a_full_redis_takes_no_lease_and_still_ends_them(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        store = RedisStore(server.url)
        await store.open()
        await store.lease("room", ["a"], holder="anna", most=1, seconds=LONG_S)
        server.command("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(StoreUnavailableError):
            await store.lease("room", ["b"], holder="anna", most=1, seconds=LONG_S)
        assert await holders(store) == {"a": "anna"}
        assert await store.end_leases("room", ["a"], holder="anna") == 1
        await store.close()


async def test_ended_leases_leave_the_file_of_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "calibrations.db"
    store = SqliteStore(path)
    await store.open()
    await store.lease("room", ["a"], holder="anna", most=1, seconds=1)
    async with asyncio.timeout(PATIENCE_S):
        while await store.leases("room"):
            pass
    await store.lease("other", ["b"], holder="ben", most=1, seconds=LONG_S)
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT item, holder FROM lease").fetchall() == [("b", "ben")]
