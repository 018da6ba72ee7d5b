"""The contract of the stores of audits: rows with texts, and the secret."""

import asyncio
import os
from pathlib import Path

import pytest

from app.core.errors import StoreUnavailableError
from app.ports import AuditState, RowsChange, Store, StoredRow, placed
from app.stores.redis import RedisStore
from app.stores.sqlite import SqliteStore
from tests.integration.stores.backends import (
    delete,
    put_rows,
    state,
    stored_rows,
    write,
)
from tests.integration.stores.conftest import Connect
from tests.redis_server import RedisServer

ODD = 'é裁判🏛\n"\0\\'


async def test_a_set_without_audits_has_nothing(store: Store) -> None:
    assert await store.audit_states() == {}
    assert await store.audits("default", after=0, limit=10) == []
    assert await store.audit_texts("default", ["a"]) == {}
    assert await store.audit_texts("default", []) == {}


@pytest.mark.parametrize("size", [1, 8, 9, 3000])
async def test_rows_are_read_in_the_order_of_their_changes(store: Store, size: int) -> None:
    texts = {f"key {i}": f"{ODD}{i}" for i in range(size)}
    assert await put_rows(store, {"first": "1"}) == 1
    assert await put_rows(store, texts) == size + 1
    assert await stored_rows(store) == {"first": "1", **texts}
    # A row that changes comes last.
    await put_rows(store, {"first": "2"})
    assert list((await stored_rows(store)).items()) == [*texts.items(), ("first", "2")]


async def test_positions_follow_a_clock_in_microseconds(store: Store) -> None:
    position = 32_503_680_000_000_000 // 10
    rows = [StoredRow("a", position - 1, "1"), StoredRow("b", position, "2")]
    assert await store.write_audits("default", RowsChange(rows=rows)) == 0
    assert await store.audit_states() == {"default": AuditState(position, 2)}
    assert await store.audits("default", after=0, limit=9) == rows
    assert await store.audits("default", after=position - 1, limit=9) == rows[1:]
    # A row whose place is taken comes after all others.
    late = [StoredRow("c", position - 5, "3"), StoredRow("d", position, "4")]
    assert await store.write_audits("default", RowsChange(rows=late)) == position
    found = await store.audits("default", after=position, limit=9)
    assert found == placed(late, after=position)
    assert [row.position for row in found] == [position + 1, position + 2]
    removal = RowsChange(expected={"c": position + 1}, removed=["c"])
    assert await store.write_audits("default", removal) == position + 2
    assert await store.audit_states() == {"default": AuditState(position + 3, 3)}


async def test_a_page_begins_after_its_position(store: Store) -> None:
    await put_rows(store, {f"{i}": "x" for i in range(1, 26)})
    for after, keys in ((0, ["1", "2"]), (23, ["24", "25"]), (25, []), (99, [])):
        page = await store.audits("default", after=after, limit=2)
        assert [row.key for row in page] == keys


@pytest.mark.parametrize(
    ("rows", "expected", "removed"),
    [
        # A row that is there is no new one, one that is not there none to change.
        ("ac", {}, ""),
        ("ad", {"a": 1, "d": 5}, ""),
        # It was changed, or changed back and forth, since it was read.
        ("ab", {"a": 1, "b": 3}, ""),
        ("c", {"b": 4}, "b"),
        ("c", {}, "a"),
    ],
)
async def test_a_change_of_rows_that_are_not_as_expected_changes_nothing(
    store: Store, rows: str, expected: dict[str, int], removed: str
) -> None:
    await put_rows(store, {"a": "1", "b": "1"}, texts={"a": "x"})
    change = RowsChange(
        rows=[StoredRow(key, 9, "2") for key in rows],
        expected=expected,
        texts=dict.fromkeys(rows, "y"),
        removed=[*removed],
    )
    assert await store.write_audits("default", change) is None
    assert await stored_rows(store) == {"a": "1", "b": "1"}
    assert await store.audit_states() == {"default": AuditState(2, 2)}
    assert await store.audit_texts("default", ["a", "b", "c"]) == {"a": "x"}


async def test_a_change_does_not_mind_those_of_other_rows(store: Store) -> None:
    await put_rows(store, {"a": "1", "b": "1"})
    for key, expected, before in (("b", {"b": 2}, 2), ("a", {"a": 1}, 3), ("c", {}, 4)):
        change = RowsChange(rows=[StoredRow(key, 1, "2")], expected=expected)
        assert await store.write_audits("default", change) == before
    assert list(await stored_rows(store)) == ["b", "a", "c"]


async def test_texts_come_with_a_row_and_go_with_its_label_or_with_the_row(store: Store) -> None:
    texts = {"a": ODD, "b": "of b", "c": "of c"}
    await put_rows(store, dict.fromkeys(texts, "drawn"), texts=texts)
    assert await store.audit_texts("default", ["b", "x", "a"]) == {"a": ODD, "b": "of b"}
    await put_rows(store, {"a": "labeled"}, forgotten=["a", "x"])
    await put_rows(store, {}, removed=["b", "y"])
    assert await store.audit_texts("default", [*texts]) == {"c": "of c"}
    assert await stored_rows(store) == {"c": "drawn", "a": "labeled"}
    await put_rows(store, {}, removed=["a", "c"])
    assert await stored_rows(store) == {}
    assert await store.audit_states() == {"default": AuditState(6, 0)}


async def test_each_set_has_its_own_audits(store: Store) -> None:
    await put_rows(store, {"a": "1"}, texts={"a": "x"})
    await write(store, state(1), expected=None)
    await put_rows(store, {"a": "2", "b": "3"}, name="other")
    assert await delete(store) is True
    assert await stored_rows(store) == {"a": "1"}
    assert await stored_rows(store, "other") == {"a": "2", "b": "3"}
    assert await store.audit_texts("other", ["a"]) == {}


async def test_of_clients_that_change_a_row_at_once_one_is_first(connect: Connect) -> None:
    clients = [await connect() for _ in range(5)]
    taken = await asyncio.gather(
        *(
            client.write_audits(
                "default",
                RowsChange(rows=[StoredRow("a", 1, f"{i}"), StoredRow(f"of {i}", 1, "")]),
            )
            for i, client in enumerate(clients)
        )
    )
    first = taken.index(0)
    assert taken.count(None) == 4
    assert await stored_rows(clients[0]) == {"a": str(first), f"of {first}": ""}


async def test_a_change_is_never_read_in_part(connect: Connect) -> None:
    writer, reader = await connect(), await connect()

    async def write_on() -> None:
        for i in range(30):
            await put_rows(writer, {f"{i} {j}": "x" for j in range(20)})
            await asyncio.sleep(0)

    async def read_on() -> None:
        last = 0
        while last < 600:
            last = (await reader.audit_states()).get("default", AuditState(0, 0)).position
            rows = await reader.audits("default", after=0, limit=1000)
            assert last % 20 == 0
            assert len(rows) % 20 == 0
            assert len(rows) >= last
            await asyncio.sleep(0)

    await asyncio.gather(write_on(), read_on())


async def test_the_secret_is_made_once(connect: Connect) -> None:
    clients = [await connect() for _ in range(4)]
    found = await asyncio.gather(*(client.secret() for client in clients))
    assert len(set(found)) == 1
    assert len(found[0]) == 32
    assert await clients[0].secret() == found[0]


async def test_forgotten_texts_are_not_in_the_file_of_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "calibrations.db"
    store = SqliteStore(path)
    await store.open()
    texts = {"short": "never seen again", "long": "never seen again" * 5000, "gone": "never seen"}
    texts["other"] = "still here"
    await put_rows(store, dict.fromkeys(texts, "drawn"), texts=texts)
    # The log of SQLite is written into the file when the last connection is closed.
    await store.close()
    assert b"never seen again" in path.read_bytes()
    await store.open()
    await put_rows(store, {"short": "labeled"}, forgotten=["short", "long"], removed=["gone"])
    await store.close()
    assert os.listdir(tmp_path) == [path.name]
    assert b"still here" in path.read_bytes()
    assert b"never seen" not in path.read_bytes()


async def test_a_full_redis_takes_neither_row_nor_texts_and_still_removes(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        store = RedisStore(server.url)
        await store.open()
        await put_rows(store, {"a": "1", "b": "1"}, texts={"a": "x", "b": "y"})
        server.command("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(StoreUnavailableError):
            await put_rows(store, {"c": "1"}, texts={"c": "z"}, forgotten=["a"])
        await put_rows(store, {}, removed=["b"])
        assert await store.audit_texts("default", ["a", "b", "c"]) == {"a": "x"}
        server.command("CONFIG", "SET", "maxmemory", "0")
        assert await stored_rows(store) == {"a": "1"}
        await store.close()
