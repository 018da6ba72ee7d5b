"""The contract of texts of drawn pairs: they come and go with entries of the log, in one step."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from app.core.errors import StoreCorruptError, StoreUnavailableError
from app.ports import MOST_AUDIT_TEXTS, Store
from app.stores.redis import RedisStore
from app.stores.redis_keys import AUDIT_TEXTS_KEY
from app.stores.sqlite import SqliteStore
from tests.integration.stores.backends import audit_log, store_at
from tests.integration.stores.conftest import Connect
from tests.integration.stores.test_sqlite_file import content, names
from tests.patience import PATIENCE_S
from tests.redis_server import RedisServer

ODD = 'é裁判🏛\n\\"\0'


async def all_texts(store: Store) -> dict[str, str]:
    return await store.audit_texts(sorted(await store.audit_text_keys()))


async def test_a_store_without_texts_has_none(store: Store) -> None:
    assert await store.audit_text_keys() == set()
    assert await store.audit_texts([]) == {}
    assert await store.audit_texts(["a"]) == {}
    await store.forget_audit_texts([])
    await store.forget_audit_texts(["a"])


@pytest.mark.parametrize("synced", [True, False])
async def test_texts_come_with_entries_and_go_with_others(store: Store, *, synced: bool) -> None:
    texts = {"a": ODD, "b": "b" * 2**17, "c": "c"}
    assert await store.append_audits(["1", "2"], synced=synced, texts=texts) == 2
    assert await store.audit_text_keys() == set(texts)
    assert await store.audit_texts(["b", "x", "a"]) == {"a": ODD, "b": texts["b"]}
    assert await store.append_audits(["3"], synced=synced, forgotten=["a", "x"]) == 3
    assert await all_texts(store) == {"b": texts["b"], "c": "c"}
    await store.forget_audit_texts({"b", "y"})
    assert await all_texts(store) == {"c": "c"}
    assert await audit_log(store) == ["1", "2", "3"]


async def test_a_key_keeps_its_first_texts_until_they_are_forgotten(store: Store) -> None:
    await store.append_audits(["1"], texts={"a": "first"})
    await store.append_audits(["2"], texts={"a": "second", "b": "b"})
    assert await all_texts(store) == {"a": "first", "b": "b"}
    await store.append_audits(["3"], forgotten=["a"])
    await store.append_audits(["4"], texts={"a": "third"})
    assert await all_texts(store) == {"a": "third", "b": "b"}


async def test_texts_beyond_the_limit_are_left_out_and_entries_are_not(store: Store) -> None:
    most = {f"key {number}": "x" for number in range(MOST_AUDIT_TEXTS - 1)}
    await store.append_audits(["1"], texts=most)
    # The key that is there takes no room.
    more = {"key 0": "y", "one": "1", "two": "2"}
    assert await store.append_audits(["2"], texts=more) == 2
    keys = await store.audit_text_keys()
    assert keys == {*most, "one"}
    await store.append_audits(["3"], forgotten=["key 5"])
    await store.append_audits(["4"], texts={"two": "2"})
    assert await store.audit_texts(["one", "two", "key 5"]) == {"one": "1", "two": "2"}
    assert len(await store.audit_text_keys()) == MOST_AUDIT_TEXTS


async def test_every_client_sees_the_texts_of_the_others(connect: Connect) -> None:
    clients = [await connect() for _ in range(4)]
    await asyncio.gather(
        *(
            client.append_audits([f"{i}"], texts={f"{i}": f"of {i}", "shared": f"of {i}"})
            for i, client in enumerate(clients)
        )
    )
    await asyncio.gather(
        clients[1].append_audits(["x"], forgotten=["0"]),
        clients[2].forget_audit_texts(["3"]),
    )
    for client in clients:
        found = await all_texts(client)
        assert found.pop("shared").startswith("of ")
        assert found == {"1": "of 1", "2": "of 2"}


@pytest.mark.parametrize("scheme", ["sqlite", "redis"])
@pytest.mark.parametrize("steps", [1, 8, 25])
async def test_a_killed_process_leaves_texts_with_their_entries_and_none_without(
    address: str, steps: int
) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.integration.stores.drawn_texts",
        address,
        stdout=asyncio.subprocess.PIPE,
    )
    assert program.stdout is not None
    reported = [(await program.stdout.readline()).decode().strip() for _ in range(steps)]
    program.send_signal(signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_S):
        await program.wait()
    store = store_at(address)
    await store.open()
    log = await audit_log(store)
    assert set(reported) <= set(log)
    drawn, labeled = (
        {entry.removeprefix(kind) for entry in log if entry.startswith(kind)}
        for kind in ("draw ", "label ")
    )
    assert await all_texts(store) == {key: f"texts of {key}" for key in drawn - labeled}
    await store.close()


async def test_forgotten_texts_are_not_in_the_file_of_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "calibrations.db"
    store = SqliteStore(path)
    await store.open()
    texts = {"short": "never seen again", "long": "never seen again" * 5000}
    await store.append_audits(["1"], texts={**texts, "other": "still here"})
    # The log of SQLite is written into the file when the last connection is closed.
    await store.close()
    assert b"never seen again" in content(path)
    await store.open()
    await store.append_audits(["2"], forgotten=["short", "long"])
    await store.close()
    assert names(tmp_path) == [path.name]
    assert b"still here" in content(path)
    assert b"never seen again" not in content(path)


async def test_a_full_redis_takes_neither_entry_nor_texts_and_still_forgets(
    tmp_path: Path,
) -> None:
    with RedisServer(tmp_path) as server:
        store = RedisStore(server.url)
        await store.open()
        await store.append_audits(["1"], texts={"a": "x", "b": "y"})
        server.command("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(StoreUnavailableError):
            await store.append_audits(["2"], texts={"c": "z"}, forgotten=["a"])
        await store.forget_audit_texts(["b"])
        assert await all_texts(store) == {"a": "x"}
        server.command("CONFIG", "SET", "maxmemory", "0")
        assert await audit_log(store) == ["1"]
        await store.close()


async def test_redis_texts_of_another_program_stop_an_entry_before_it_is_written(
    redis_server: RedisServer,
) -> None:
    redis_server.command("SET", AUDIT_TEXTS_KEY, "no hash")
    store = RedisStore(redis_server.url)
    await store.open()
    with pytest.raises(StoreCorruptError):
        await store.append_audits(["1"], texts={"a": "x"})
    assert await audit_log(store) == []
    await store.close()
