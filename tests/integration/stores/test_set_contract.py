"""The contract of the stores of calibration sets."""

import asyncio
import sys
from functools import partial

import pytest

from app.ports import KEPT_VERSIONS, Head, SetStore
from tests.integration.stores.backends import (
    State,
    delete,
    deleted,
    last,
    numbers,
    read,
    records,
    state,
    store_at,
    write,
)
from tests.integration.stores.conftest import Connect
from tests.patience import PATIENCE_S, until


async def test_an_empty_store_has_nothing(store: SetStore) -> None:
    assert await store.names() == await store.names(deleted=True) == []
    assert await store.head("default") is None
    assert await store.read("default") is None
    assert await store.read("default", 1) is None
    assert await store.trail("default", before=None, limit=9) == []


async def test_what_is_written_is_read(store: SetStore) -> None:
    assert await write(store, state(1), expected=None) is True
    assert await read(store) == state(1)
    assert await store.head("default") == Head("one", 1)
    assert await store.names() == ["default"]
    assert await write(store, state(2), expected=Head("one", 1)) is True
    assert await read(store) == await read(store, number=2) == state(2)
    assert await read(store, number=1) == state(1)
    assert await read(store, number=3) is None


@pytest.mark.parametrize(
    "expected",
    [None, Head("one", 1), Head("one", 3), Head("two", 2), Head("", 2)],
    ids=["none", "older", "newer", "other write_id", "deletion"],
)
async def test_a_write_on_another_version_writes_nothing(
    store: SetStore, expected: Head | None
) -> None:
    await write(store, state(1), expected=None)
    await write(store, state(2), expected=Head("one", 1))
    assert await write(store, state(9, examples=9), expected=expected) is False
    assert await read(store) == state(2)
    assert await read(store, number=9) is None
    assert await numbers(store) == [1, 2]


async def test_a_write_that_expects_a_version_makes_no_set(store: SetStore) -> None:
    assert await write(store, state(2), expected=Head("one", 1)) is False
    assert await store.head("default") is None
    assert await store.names(deleted=True) == []


async def test_a_deleted_set_has_its_trail_and_versions_and_goes_on(store: SetStore) -> None:
    await write(store, state(1, examples=9), expected=None)
    assert await delete(store) is True
    assert await delete(store) is False
    assert await store.head("default") == Head("", 2)
    assert await read(store) is None
    assert await read(store, number=1) == state(1, examples=9)
    assert (await store.names(), await store.names(deleted=True)) == ([], ["default"])
    successor = state(3, write_id="two", examples=2)
    for expected in (None, Head("one", 1)):
        assert await write(store, successor, expected=expected) is False
    assert await write(store, successor, expected=Head("", 2)) is True
    assert await read(store) == successor
    assert await store.names() == ["default"]
    assert await records(store) == ["record 3 of two", "record 2 of deletion", "record 1 of one"]


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_number_is_never_used_twice(store: SetStore, number: int) -> None:
    await write(store, state(1), expected=None)
    await write(store, state(3), expected=Head("one", 1))
    again = state(number, write_id="two")
    assert await write(store, again, expected=Head("one", 3)) is False
    assert await read(store) == state(3)
    assert await numbers(store) == [1, 3]


async def test_the_last_versions_are_kept_and_the_whole_trail(store: SetStore) -> None:
    head = None
    for number in range(1, KEPT_VERSIONS + 4):
        assert await write(store, state(number), expected=head)
        head = Head("one", number)
    kept = [number for number in range(1, 30) if await store.read("default", number) is not None]
    assert kept == list(range(4, KEPT_VERSIONS + 4))
    assert await numbers(store) == list(range(1, KEPT_VERSIONS + 4))
    entries = await store.trail("default", before=3, limit=9)
    assert [entry.head for entry in entries] == [Head("one", 2), Head("one", 1)]
    (newest,) = await store.trail("default", before=99, limit=1)
    assert newest.head == head


async def test_names_are_sorted_and_sets_are_apart(store: SetStore) -> None:
    names = ["b", "a.b-c_1", "B", "default", "a", "a.b"]
    for number, name in enumerate(names, 1):
        await write(store, state(number), name=name, expected=None)
    assert await store.names() == sorted(names)
    await delete(store, name="a.b")
    assert await store.names() == sorted(set(names) - {"a.b"})
    assert await store.names(deleted=True) == sorted(names)
    for number, name in enumerate(names, 1):
        assert await read(store, name) == (None if name == "a.b" else state(number))
        assert await numbers(store, name) == ([6, 7] if name == "a.b" else [number])


async def test_bytes_and_text_survive_as_they_are(store: SetStore) -> None:
    head = Head("0b5f-é", 2**40)
    blob, record = bytes(range(256)) * 40_000, '{"by":"裁判 🏛 \\n\\"\0"}' + "é" * 100_000
    thresholds = {"marginal:0.05": "-inf", "marginal:0.10": "0.6931471805599453"}
    assert await store.write(
        "default", head, blob=blob, thresholds=thresholds, record=record, expected=None
    )
    assert await store.read("default") == blob
    assert await store.head("default") == head
    assert [entry.record for entry in await store.trail("default", before=None, limit=1)] == [
        record
    ]


async def test_opening_and_closing_twice_is_safe(address: str) -> None:
    never_opened = store_at(address)
    await never_opened.close()
    store = store_at(address)
    await store.open()
    await write(store, state(1), expected=None)
    await store.open()
    await store.ping()
    assert await read(store) == state(1)
    await store.close()
    await store.close()
    await store.open()
    await store.ping()
    await store.close()


async def test_a_set_and_its_trail_are_one_step(connect: Connect) -> None:
    writer, reader = await connect(), await connect()
    end = 20
    seen: list[int] = []

    def has_read(times: int) -> bool:
        return len(seen) >= times

    async def write_on() -> None:
        for number in range(1, end + 1):
            if number % 5 == 0:
                # The reader gets its turn, however busy the machine is.
                await until(partial(has_read, len(seen) + 1))
                assert await delete(writer)
            else:
                expected = await writer.head("default")
                assert await write(writer, state(number, examples=20), expected=expected)
            await asyncio.sleep(0)

    async def read_on() -> None:
        while not seen or seen[-1] < end:
            # The trail is at least as new as the set read before it.
            stored = await read(reader)
            told = await last(reader)
            trailed = await numbers(reader)
            if stored is not None:
                assert set(stored.examples.values()) == {stored.head.number}
                assert told >= stored.head.number
            assert trailed == list(range(1, len(trailed) + 1))
            assert len(trailed) >= told
            seen.append(told)
            await asyncio.sleep(0)

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(write_on(), read_on())
    assert seen == sorted(seen)
    assert len(set(seen)) > 3


async def test_one_of_many_writers_and_deleters_wins(connect: Connect) -> None:
    clients = [await connect() for _ in range(6)]
    await write(clients[0], state(1), expected=None)
    wins = await asyncio.gather(
        *(
            write(client, state(2, write_id=f"writer-{i}"), expected=Head("one", 1))
            for i, client in enumerate(clients[:3])
        ),
        *(
            deleted(client, Head("one", 1), by=f"deleter-{i}")
            for i, client in enumerate(clients[3:])
        ),
    )
    assert wins.count(True) == 1
    by = [*(f"writer-{i}" for i in range(3)), *(f"deleter-{i}" for i in range(3))]
    assert await records(clients[0]) == [f"record 2 of {by[wins.index(True)]}", "record 1 of one"]


async def test_a_cancelled_change_is_whole_and_the_store_stays_usable(store: SetStore) -> None:
    done = set()
    for turns in range(40):
        head = await store.head("default")
        old = state(head.number + 1 if head else 1, examples=300)
        assert await write(store, old, expected=head)
        new = state(old.head.number + 1, examples=300)
        changing = write(store, new, expected=old.head) if turns % 2 else deleted(store, old.head)
        task = asyncio.create_task(changing)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        stored = await read(store)
        assert stored in (old, new, None)
        done.add(stored == old)
        # The cancelled change may still be running and conflict once; then the next one succeeds.
        while True:
            present = await store.head("default")
            assert present is not None
            again = state(present.number + 1, examples=300)
            if await write(store, again, expected=present):
                break
        assert await read(store) == again
        assert await numbers(store) == list(range(1, again.head.number + 1))
    assert True in done, "no change was cancelled before it began"


async def test_two_processes_lose_nothing(address: str) -> None:
    if address.startswith("memory"):
        return
    program = [sys.executable, "-m", "tests.integration.stores.increments", address, "default"]
    processes = [await asyncio.create_subprocess_exec(*program, tag, "30") for tag in "ab"]
    codes = [await process.wait() for process in processes]
    assert codes == [0, 0]
    store = store_at(address)
    await store.open()
    stored = await read(store)
    trailed = await numbers(store)
    await store.close()
    assert isinstance(stored, State)
    assert stored.head == Head("one", 60)
    assert set(stored.examples) == {f"{tag}-{i}" for tag in "ab" for i in range(30)}
    assert sorted(stored.examples.values()) == trailed == list(range(1, 61))
