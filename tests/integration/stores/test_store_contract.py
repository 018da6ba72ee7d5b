"""The contract of the calibration stores: sets."""

import asyncio
import sys
from dataclasses import replace

import pytest

from app.ports import CalibrationStore, StoredCalibration, Version
from tests.integration.stores.backends import (
    delete,
    numbers,
    state,
    store_at,
    write,
    written_by,
)
from tests.integration.stores.conftest import Connect
from tests.patience import PATIENCE_S

SHARED = ("sqlite", "redis")


async def test_an_empty_store_has_nothing(store: CalibrationStore) -> None:
    assert await store.names() == []
    assert await store.version("default") is None
    assert await store.read("default") is None
    assert await delete(store) is False
    assert await store.names() == []


async def test_what_is_written_is_read(store: CalibrationStore) -> None:
    assert await write(store, state(1), expected=None) is True
    assert await store.read("default") == state(1)
    assert await store.version("default") == Version("one", 1)
    assert await store.names() == ["default"]


async def test_posting_an_example_again_updates_it_and_adds_nothing(
    store: CalibrationStore,
) -> None:
    await write(store, state(1), expected=None)
    assert await write(store, state(2), expected=Version("one", 1)) is True
    assert await store.read("default") == state(2)


async def test_examples_that_a_write_does_not_mention_are_kept(store: CalibrationStore) -> None:
    await write(store, state(1), expected=None)
    await write(store, replace(state(2), examples={"d1": "2", "d9": "2"}),
                      expected=Version("one", 1))  # fmt: skip
    stored = await store.read("default")
    assert stored is not None
    assert stored.examples == {"d0": "1", "d1": "2", "d2": "1", "d9": "2"}


async def test_examples_are_removed_in_the_same_step(store: CalibrationStore) -> None:
    await write(store, state(1, examples=5000), expected=None)
    gone = [f"d{i}" for i in range(4500)]
    change = replace(state(2), examples={"d4600": "2"})
    written = await write(store, change, expected=Version("one", 1), removed=[*gone, "absent"])
    assert written
    stored = await store.read("default")
    assert stored is not None
    assert stored.examples == {f"d{i}": "2" if i == 4600 else "1" for i in range(4500, 5000)}
    assert stored.thresholds == state(2).thresholds


async def test_a_write_without_examples_keeps_all(store: CalibrationStore) -> None:
    await write(store, state(1), expected=None)
    await write(store, state(2, examples=0), expected=Version("one", 1))
    assert await store.read("default") == replace(state(2), examples=state(1).examples)


async def test_meta_and_thresholds_are_replaced_whole(store: CalibrationStore) -> None:
    await write(store, state(1), expected=None)
    replaced = StoredCalibration(
        version=Version("one", 2),
        meta={"judge": "other"},
        examples={},
        thresholds={"pac:0.05": "0.5"},
    )
    await write(store, replaced, expected=Version("one", 1))
    assert await store.read("default") == replace(replaced, examples=state(1).examples)
    emptied = StoredCalibration(version=Version("one", 3), meta={}, examples={}, thresholds={})
    await write(store, emptied, expected=Version("one", 2))
    assert await store.read("default") == replace(emptied, examples=state(1).examples)


@pytest.mark.parametrize(
    "expected",
    [None, Version("one", 1), Version("one", 3), Version("two", 2)],
    ids=["none", "older", "newer", "other write_id"],
)
async def test_a_write_on_another_version_writes_nothing(
    store: CalibrationStore, expected: Version | None
) -> None:
    await write(store, state(1), expected=None)
    await write(store, state(2), expected=Version("one", 1))
    assert await write(store, state(9, examples=9), expected=expected) is False
    assert await store.read("default") == state(2)


async def test_a_write_that_expects_a_version_makes_no_set(store: CalibrationStore) -> None:
    assert await write(store, state(2), expected=Version("one", 1)) is False
    assert await store.read("default") is None
    assert await store.names() == []


async def test_a_deleted_set_leaves_nothing_to_its_successor(store: CalibrationStore) -> None:
    await write(store, state(1, examples=9), expected=None)
    assert await delete(store) is True
    assert await delete(store) is False
    assert await store.version("default") is None
    successor = state(3, write_id="two", examples=2)
    assert await write(store, successor, expected=Version("one", 1)) is False
    assert await write(store, successor, expected=None) is True
    assert await store.read("default") == successor


async def test_names_are_sorted_and_sets_are_apart(store: CalibrationStore) -> None:
    names = ["b", "a.b-c_1", "B", "default", "a", "a.b"]
    for number, name in enumerate(names, 1):
        await write(store, state(number), name=name, expected=None)
    assert await store.names() == sorted(names)
    await delete(store, name="a.b")
    assert await store.names() == sorted(set(names) - {"a.b"})
    for number, name in enumerate(names, 1):
        assert await store.read(name) == (None if name == "a.b" else state(number))


async def test_text_survives_as_it_is(store: CalibrationStore) -> None:
    odd = StoredCalibration(
        version=Version("0b5f-é", 2**40),
        meta={"judge": "裁判 🏛 \n\t\"'\\", "empty": "", "zero\0byte": "a\0b"},
        examples={"d0": "-0.0", "d1": "1e-320"},
        thresholds={"marginal:0.05": "-inf", "marginal:0.10": "0.6931471805599453"},
    )
    await write(store, odd, expected=None)
    assert await store.read("default") == odd


async def test_twenty_thousand_examples_are_one_write(store: CalibrationStore) -> None:
    many = state(1, examples=20_000)
    assert await write(store, many, expected=None) is True
    assert await store.read("default") == many


async def test_nothing_is_shared_with_the_caller(store: CalibrationStore) -> None:
    meta, examples, thresholds = {"judge": "1"}, {"d0": "1"}, {"marginal:0.10": "1"}
    await write(
        store,
        StoredCalibration(
            version=Version("one", 1), meta=meta, examples=examples, thresholds=thresholds
        ),
        expected=None,
    )
    first = await store.read("default")
    assert first is not None
    for mapping in (meta, examples, thresholds, first.meta, first.examples, first.thresholds):
        assert isinstance(mapping, dict)
        mapping["d0"] = "changed"
    assert await store.read("default") == StoredCalibration(
        version=Version("one", 1),
        meta={"judge": "1"},
        examples={"d0": "1"},
        thresholds={"marginal:0.10": "1"},
    )


async def test_opening_and_closing_twice_is_safe(address: str) -> None:
    never_opened = store_at(address)
    await never_opened.close()
    store = store_at(address)
    await store.open()
    await write(store, state(1), expected=None)
    await store.open()
    await store.ping()
    assert await store.read("default") == state(1)
    await store.close()
    await store.close()
    await store.open()
    await store.ping()
    await store.close()


@pytest.mark.parametrize("scheme", SHARED)
async def test_a_set_and_its_trail_outlive_their_client(address: str) -> None:
    for number in (1, 2):
        store = store_at(address)
        await store.open()
        expected = await store.version("default")
        assert await write(store, state(number), expected=expected) is True
        await store.close()
    store = store_at(address)
    await store.open()
    assert await store.read("default") == state(2)
    assert await numbers(store) == [1, 2]
    await store.close()


async def test_a_reader_never_sees_half_a_write(connect: Connect) -> None:
    writer, reader = await connect(), await connect()
    last = 40
    await write(writer, state(1, examples=50), expected=None)
    seen: list[int] = []

    async def write_on() -> None:
        for number in range(2, last + 1):
            expected = Version("one", number - 1)
            assert await write(writer, state(number, examples=50), expected=expected)
            await asyncio.sleep(0)

    async def read_on() -> None:
        while not seen or seen[-1] < last:
            stored = await reader.read("default")
            assert stored is not None
            assert written_by(stored) == {str(stored.version.number)}
            seen.append(stored.version.number)
            await asyncio.sleep(0)

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(write_on(), read_on())
    assert seen == sorted(seen)
    assert len(set(seen)) > 3, "the reader did not run while the writer wrote"


async def test_one_of_many_writers_of_a_version_wins(connect: Connect) -> None:
    clients = [await connect() for _ in range(5)]
    states = [state(1, write_id=f"writer-{i}") for i in range(len(clients))]
    wins = await asyncio.gather(
        *(write(client, own, expected=None)
          for client, own in zip(clients, states, strict=True))
    )  # fmt: skip
    assert wins.count(True) == 1
    assert await clients[0].read("default") == states[wins.index(True)]


async def test_a_cancelled_write_is_whole_and_the_store_stays_usable(
    store: CalibrationStore,
) -> None:
    done = set()
    for turns in range(40):
        await delete(store)
        number = await store.last_number("default") + 1
        old, new = state(number, examples=300), state(number + 1, examples=300)
        await write(store, old, expected=None)
        task = asyncio.create_task(write(store, new, expected=old.version))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await store.names() == ["default"]
        stored = await store.read("default")
        assert stored in (old, new)
        done.add(stored == old)
        # The cancelled write may still be running and conflict once; then the next write succeeds.
        while True:
            last = await store.last_number("default")
            again = state(last + 1, examples=300)
            if await write(store, again, expected=await store.version("default")):
                break
        assert await store.read("default") == again
        assert await numbers(store) == list(range(1, last + 2))
    assert True in done, "no write was cancelled before it began"


async def test_a_cancelled_read_does_not_answer_the_next_call(store: CalibrationStore) -> None:
    await write(store, state(1, examples=300), name="big", expected=None)
    await write(store, state(7), name="small", expected=None)
    for turns in range(40):
        task = asyncio.create_task(store.read("big"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await store.version("small") == Version("one", 7)
        assert await store.names() == ["big", "small"]
        assert await store.read("small") == state(7)


@pytest.mark.parametrize("scheme", SHARED)
async def test_two_processes_lose_nothing(address: str) -> None:
    program = [sys.executable, "-m", "tests.integration.stores.increments", address, "default"]
    processes = [await asyncio.create_subprocess_exec(*program, tag, "40") for tag in "ab"]
    codes = [await process.wait() for process in processes]
    assert codes == [0, 0]
    store = store_at(address)
    await store.open()
    stored = await store.read("default")
    trailed = await numbers(store)
    await store.close()
    assert stored is not None
    assert stored.version == Version("one", 80)
    assert set(stored.examples) == {f"{tag}-{i}" for tag in "ab" for i in range(40)}
    assert sorted(map(int, stored.examples.values())) == list(range(1, 81))
    assert trailed == list(range(1, 81))
