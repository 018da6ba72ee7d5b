"""The contract of the stores of audits: the log and its secret."""

import asyncio
import sqlite3
import sys
from pathlib import Path

import pytest

from app.core.errors import StoreCorruptError, StoreUnavailableError
from app.ports import Store
from app.stores.redis import RedisStore
from app.stores.redis_keys import AUDITS_KEY, SECRET_KEY
from app.stores.sqlite import SqliteStore
from tests.integration.stores.backends import audit_log, delete, state, store_at, write
from tests.integration.stores.conftest import Connect
from tests.redis_server import RedisServer

SHARED = ("sqlite", "redis")


async def test_an_empty_log_has_nothing(store: Store) -> None:
    assert await store.last_audit() == 0
    assert await store.audits(after=0, limit=10) == []
    assert await store.audits(after=7, limit=10) == []


@pytest.mark.parametrize("size", [1, 8, 9, 3000])
@pytest.mark.parametrize("synced", [True, False])
async def test_entries_are_read_in_the_order_in_which_they_were_appended(
    store: Store, size: int, *, synced: bool
) -> None:
    texts = [f'{{"é裁判🏛\\n\\"": "\0{i}"}}' for i in range(size)]
    assert await store.append_audits(["first"]) == 1
    assert await store.append_audits(texts, synced=synced) == size + 1
    assert await store.last_audit() == size + 1
    assert await audit_log(store) == ["first", *texts]


async def test_a_page_begins_after_its_position(store: Store) -> None:
    await store.append_audits([f"entry {i}" for i in range(1, 26)])
    assert await store.audits(after=0, limit=2) == [(1, "entry 1"), (2, "entry 2")]
    assert await store.audits(after=23, limit=5) == [(24, "entry 24"), (25, "entry 25")]
    assert await store.audits(after=25, limit=5) == []
    assert await store.audits(after=99, limit=5) == []


async def test_batches_of_several_clients_do_not_mix(connect: Connect) -> None:
    clients = [await connect() for _ in range(5)]
    ends = await asyncio.gather(
        *(client.append_audits([f"of {i}"] * 10) for i, client in enumerate(clients))
    )
    assert sorted(ends) == [10, 20, 30, 40, 50]
    entries = await audit_log(clients[0])
    assert all(entries[end - 10 : end] == [f"of {i}"] * 10 for i, end in enumerate(ends))


async def test_a_batch_is_never_read_in_part(connect: Connect) -> None:
    writer, reader = await connect(), await connect()

    async def write_on() -> None:
        for _ in range(30):
            await writer.append_audits(["x"] * 20)
            await asyncio.sleep(0)

    async def read_on() -> None:
        last = 0
        while last < 600:
            last = await reader.last_audit()
            entries = await reader.audits(after=0, limit=1000)
            assert last % 20 == 0
            assert len(entries) % 20 == 0
            assert len(entries) >= last
            await asyncio.sleep(0)

    await asyncio.gather(write_on(), read_on())


async def test_the_secret_is_made_once(connect: Connect) -> None:
    clients = [await connect() for _ in range(4)]
    found = await asyncio.gather(*(client.secret() for client in clients))
    assert len(set(found)) == 1
    assert len(found[0]) == 32
    assert await clients[0].secret() == found[0]


async def test_another_store_has_another_secret(store: Store, tmp_path: Path) -> None:
    other = SqliteStore(tmp_path / "other.db")
    await other.open()
    assert await other.secret() != await store.secret()
    await other.close()


async def test_sets_and_audits_do_not_touch_each_other(store: Store) -> None:
    await store.append_audits(["a"])
    await write(store, state(1), expected=None)
    await store.append_audits(["b"])
    assert await delete(store) is True
    assert await audit_log(store) == ["a", "b"]


@pytest.mark.parametrize("scheme", SHARED)
async def test_a_log_outlives_its_client(address: str) -> None:
    found = []
    for number in (1, 2):
        store = store_at(address)
        await store.open()
        assert await store.append_audits([f"entry {number}"]) == number
        found.append(await store.secret())
        await store.close()
    assert found[0] == found[1]


@pytest.mark.parametrize("scheme", SHARED)
async def test_two_processes_that_append_lose_nothing(address: str) -> None:
    program = [sys.executable, "-m", "tests.integration.stores.appends", address]
    processes = [await asyncio.create_subprocess_exec(*program, tag, "40") for tag in "ab"]
    assert [await process.wait() for process in processes] == [0, 0]
    store = store_at(address)
    await store.open()
    entries = await audit_log(store)
    await store.close()
    for tag in "ab":
        # Each writer appended two entries a time, which nothing separates.
        own = [entry for entry in entries if entry.startswith(tag)]
        assert own == [f"{tag}-{i}-{half}" for i in range(40) for half in (0, 1)]
    pairs = list(zip(entries[::2], entries[1::2], strict=True))
    assert all(first[:-1] == second[:-1] for first, second in pairs)


async def test_a_secret_that_this_service_did_not_make_is_refused(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "calibrations.db")
    await store.open()
    connection = sqlite3.connect(tmp_path / "calibrations.db")
    connection.execute("INSERT INTO audit_secret VALUES (1, 'guess me')")
    connection.commit()
    connection.close()
    with pytest.raises(StoreCorruptError, match="secret"):
        await store.secret()
    await store.close()


async def use_everything(store: Store) -> None:
    await store.secret()
    await store.last_audit()
    await store.append_audits(["x"])


@pytest.mark.parametrize(
    ("commands", "error"),
    [
        ([("SET", SECRET_KEY, "guess me")], StoreCorruptError),
        ([("SET", AUDITS_KEY, "no stream")], StoreCorruptError),
        ([("XADD", AUDITS_KEY, "3-7", "entry", "x")], StoreCorruptError),
        # Redis refuses to append at or below the position of an entry that was deleted.
        (
            [("XADD", AUDITS_KEY, "9-0", "entry", "x"), ("XTRIM", AUDITS_KEY, "MAXLEN", "0")],
            StoreUnavailableError,
        ),
    ],
)
async def test_redis_that_another_program_wrote_to_is_refused(
    redis_server: RedisServer, commands: list[tuple[str, ...]], error: type[Exception]
) -> None:
    for command in commands:
        redis_server.command(*command)
    store = RedisStore(redis_server.url)
    await store.open()
    with pytest.raises(error):
        await use_everything(store)
    await store.close()
