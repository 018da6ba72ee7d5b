"""The contract of the calibration stores: trails."""

import asyncio
from dataclasses import replace

import pytest

from app.ports import CalibrationStore, Version
from tests.integration.stores.backends import (
    delete,
    entry,
    numbers,
    state,
    trail,
    write,
    written_by,
)
from tests.integration.stores.conftest import Connect
from tests.patience import PATIENCE_S


async def test_a_set_that_never_was_has_no_trail(store: CalibrationStore) -> None:
    assert await trail(store) == {}
    assert await store.last_number("default") == 0
    assert await delete(store) is False
    assert await trail(store) == {}


async def test_the_trail_lists_every_change_newest_first(store: CalibrationStore) -> None:
    for number in range(1, 6):
        expected = await store.version("default")
        assert await store.last_number("default") == number - 1
        assert await write(store, state(number), expected=expected)
    assert await store.records("default", before=None, limit=2) == [
        "record 5 of one",
        "record 4 of one",
    ]
    undos = await store.undos("default", before=3, limit=9)
    assert list(undos.items()) == [(2, "undo 2 of one"), (1, "undo 1 of one")]
    assert await store.records("default", before=1, limit=9) == []
    assert await store.undos("default", before=1, limit=9) == {}
    assert await store.records("default", before=99, limit=1) == ["record 5 of one"]


async def test_a_trail_outlives_its_set_and_goes_on_with_the_next(store: CalibrationStore) -> None:
    await write(store, state(1), expected=None)
    assert await delete(store)
    assert await store.names() == []
    assert await numbers(store) == [1, 2]
    assert await store.last_number("default") == 2
    assert await write(store, state(3, write_id="two"), expected=None)
    assert await store.records("default", before=None, limit=9) == [
        "record 3 of two",
        "record 2 of deletion",
        "record 1 of one",
    ]


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_number_is_never_used_twice(store: CalibrationStore, number: int) -> None:
    await write(store, state(1), expected=None)
    await write(store, state(3), expected=Version("one", 1))
    again = state(number, write_id="two")
    assert await write(store, again, expected=Version("one", 3)) is False
    assert await store.delete("default", change=entry(number)) is False
    assert await store.read("default") == state(3)
    await delete(store)
    assert await write(store, state(4, write_id="two"), expected=None) is False
    assert await store.version("default") is None
    assert await store.names() == []
    assert await numbers(store) == [1, 3, 4]


async def test_a_write_on_another_version_leaves_no_trail(store: CalibrationStore) -> None:
    await write(store, state(1), expected=None)
    for expected in (None, Version("two", 1), Version("one", 2)):
        assert await write(store, state(9), expected=expected) is False
    assert await numbers(store) == [1]


async def test_trails_of_different_sets_are_separate(store: CalibrationStore) -> None:
    await write(store, state(1), expected=None, name="a")
    await write(store, state(7), expected=None, name="a.b")
    await delete(store, name="a")
    assert await numbers(store, "a") == [1, 2]
    assert await numbers(store, "a.b") == [7]


async def test_text_of_any_size_survives_as_it_is(store: CalibrationStore) -> None:
    odd = replace(entry(2**40), record='{"by":"裁判 🏛 \\n\\"\0"}', undo="" + "é" * 3_000_000)
    first = state(2**40)
    assert await store.write("default", first, change=odd, expected=None)
    assert await store.records("default", before=None, limit=1) == [odd.record]
    assert await store.undos("default", before=None, limit=1) == {2**40: odd.undo}
    assert await store.last_number("default") == 2**40


async def test_a_set_and_its_trail_are_one_step(connect: Connect) -> None:
    writer, reader = await connect(), await connect()
    last = 60
    seen: list[int] = []

    async def write_on() -> None:
        for number in range(1, last + 1):
            if number % 5 == 0:
                assert await delete(writer)
            else:
                expected = await writer.version("default")
                assert await write(writer, state(number, examples=20), expected=expected)
            await asyncio.sleep(0)

    async def read_on() -> None:
        while not seen or seen[-1] < last:
            # The trail is at least as new as the set read before it, and not newer than the next.
            stored = await reader.read("default")
            told = await reader.last_number("default")
            after = await reader.version("default")
            undos = await reader.undos("default", before=None, limit=1000)
            trailed = list(reversed(undos))
            if stored is not None:
                assert written_by(stored) == {str(stored.version.number)}
                assert told >= stored.version.number
            assert after is None or trailed[-1] >= after.number
            assert trailed == list(range(1, len(trailed) + 1))
            seen.append(told)
            await asyncio.sleep(0)

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(write_on(), read_on())
    assert seen == sorted(seen)
    assert len(set(seen)) > 3, "the reader did not run while the writer wrote"


async def test_one_of_many_writers_and_deleters_gets_a_number(connect: Connect) -> None:
    clients = [await connect() for _ in range(6)]
    await write(clients[0], state(1), expected=None)
    wins = await asyncio.gather(
        *(
            write(client, state(2, write_id=f"writer-{i}"), expected=Version("one", 1))
            for i, client in enumerate(clients[:3])
        ),
        *(
            client.delete("default", change=entry(2, by=f"deleter-{i}"))
            for i, client in enumerate(clients[3:])
        ),
    )
    assert wins.count(True) == 1
    (newest,) = await clients[0].records("default", before=None, limit=1)
    assert (
        newest
        == [
            *(f"record 2 of writer-{i}" for i in range(3)),
            *(f"record 2 of deleter-{i}" for i in range(3)),
        ][wins.index(True)]
    )
    assert await numbers(clients[0]) == [1, 2]


async def test_a_cancelled_deletion_is_whole(store: CalibrationStore) -> None:
    done = set()
    for turns in range(40):
        number = await store.last_number("default") + 1
        old = state(number, examples=300)
        await write(store, old, expected=await store.version("default"))
        task = asyncio.create_task(store.delete("default", change=entry(number + 1)))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        # The cancelled deletion may still be running; after the next deletion it has ended.
        while not await delete(store):
            if await store.version("default") is None:
                break
        last = await store.last_number("default")
        assert last == number + 1
        (newest,) = await store.records("default", before=None, limit=1)
        assert await numbers(store) == list(range(1, last + 1))
        assert await store.read("default") is None
        done.add(newest)
    assert any("deletion" in each for each in done), "no deletion was cancelled before it began"
